// The key tiles of a warpgroup of attention_wgmma_tile.cuh: which they are, the ring of stages in
// shared memory that TMA fills with their keys and values, and how the new ones reach the KV state.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/attention/parts/attention_place.cuh"
#include "templates/attention/parts/attention_sizes.cuh"
#include "templates/device/tma.cuh"
#include "templates/device/wgmma.cuh"

namespace gpt2c {

template <typename C> struct AttentionWgmma {
  static constexpr int threads = 128 * C::KeySplit;
  static constexpr int blocks = 4 / C::KeySplit;  // that share an SM
  static constexpr bool apart = C::KeySplit == 1; // keys and values are waited for one by one
  static constexpr bool keepsQueries = !apart && sizeof(typename C::Y) == 2; // in registers
  static constexpr int units = C::Pairs ? 2 : 1; // tiles of queries that a block may have
  static constexpr int tileHalves = 64 * 64;
  static constexpr int width = C::Heads * 64, kvWidth = C::KvHeads * 64; // of queries, of keys
  static constexpr int group = C::Heads / C::KvHeads;                    // heads that share keys
  static constexpr int together = apart ? 1 : 2; // parts, keys and values, that come as one
  static constexpr int sharedBytes =
      (units + 2 * C::Stages * C::KeySplit) * tileHalves * 2 + 1024; // tiles begin at 1 KiB
  static_assert(C::Stages >= 2 && C::Stages <= 3 && C::KeySplit <= 4);
  static_assert(C::Heads % C::KvHeads == 0 && (!C::Pairs || C::KeySplit == 4));
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace tile {

/// ceil(n / d) for n >= 0 and d of 1 to 4. A division takes longer.
__device__ __forceinline__ int dividedUp(int n, int d) {
  const unsigned up = n + d - 1;
  return d == 4 ? up / 4 : d == 3 ? up / 3 : d == 2 ? up / 2 : up;
}

/// The block's barriers in shared memory, each for one thread's arrival and the bytes it expects.
template <typename C> struct AttentionWgmmaBarriers {
  using L = AttentionWgmma<C>;
  Barrier full[C::KeySplit][L::apart ? 2 : 1][C::Stages], queries[L::units];
  Barrier keys[C::KeySplit]; // of a group's first tile

  /// By all threads; a barrier of the block has to follow. Lanes of one warp would take turns.
  __device__ __forceinline__ void init() {
    if (threadIdx.x % 32 == 0) {
      constexpr int count = sizeof(AttentionWgmmaBarriers) / sizeof(Barrier);
      for (int i = threadIdx.x / 32; i < count; i += L::threads / 32)
        reinterpret_cast<Barrier *>(this)[i].init(1);
      fenceBarrierInit();
    }
  }
};

template <typename C, typename Tiles> struct AttentionWgmmaKeys;

/// Where tiles lie: the new tokens of sequence b of a prefill, and those of its slot of the state.
/// A tile of 64 tokens that the state has is at a row of a matrix of the state's map, a tile of new
/// tokens of one of the rows' map.
template <typename C> struct StateTiles {
  using L = AttentionWgmma<C>;
  using Keys = AttentionWgmmaKeys<C, StateTiles>;
  static constexpr bool endInZeros = true; ///< rows behind the last new token read as zeros
  int plane, planesOfPart; // of the state: this head's keys, and how far behind its values are

  __device__ __forceinline__ void locate(const Keys &k) {
    plane = (k.sizes.layer * 2 * k.sizes.batchMax + k.place.b) * C::KvHeads + k.place.h / L::group;
    planesOfPart = k.sizes.batchMax * C::KvHeads;
  }
  __device__ __forceinline__ int oldMatrix(int part, int) const {
    return plane + part * planesOfPart;
  }
  __device__ __forceinline__ int oldRow(int t) const { return t * 64; }
  __device__ __forceinline__ int freshMatrix(const Keys &k) const { return k.place.b; }
  __device__ __forceinline__ int freshRow(int row) const { return row; }
  /// What the compiler should have ahead of the wait.
  __device__ __forceinline__ int kept() const { return plane; }
  /// Of the sequence, in the results.
  __device__ __forceinline__ i64 firstRow(const Keys &k) const {
    return (i64)k.place.b * k.sizes.seq;
  }
  /// Whether the 64 tokens from q0 on are one box of the state; what a box has behind the context
  /// is dropped.
  __device__ __forceinline__ bool isBox(const Keys &k) const { return k.q0 + 64 <= k.sizes.seq; }
  __device__ __forceinline__ int newMatrix(int part) const { return plane + part * planesOfPart; }
  __device__ __forceinline__ int newRow(const Keys &k) const { return k.begin + k.q0; }
  /// Of the tile's tokens, those that the state has room for, and where row r of them goes.
  __device__ __forceinline__ int newRows(const Keys &k) const {
    return min(k.sizes.seq, k.sizes.context - k.begin) - k.q0;
  }
  __device__ __forceinline__ __half *newPlace(const Keys &k, int part, int r) const {
    return k.kv + ((i64)newMatrix(part) * k.sizes.context + k.begin + k.q0 + r) * 64;
  }
};

/// Part 0 is keys, part 1 values. What takes a part takes part 0 for both unless they are apart.
/// Tiles: where they lie, as StateTiles says it.
template <typename C, typename Tiles> struct AttentionWgmmaKeys {
  using L = AttentionWgmma<C>;
  using Barriers = AttentionWgmmaBarriers<C>;

  const TensorMap &qkvMap, &kvMap;
  __half *kv;
  AttentionSizes sizes;
  Barriers &barriers;
  int group, warp, lane;
  bool leader; // one thread of the group, which has TMA refill stages and store tiles
  AttentionPlace place;
  int begin, cached;    // tokens and tiles of the state
  int q0, tiles, count; // first query; key tiles that the queries see, and those of this group
  // The last tile of the state, if it is not full, and the block's own one, if that is not and what
  // follows need not be zeros; else -1.
  int partial, shortened;
  Tiles at;
  __half *queries, *ring;
  unsigned ringOperand, full; // kept addresses: of wgmma operands, of barriers
  u64 queriesOperand;

  __device__ __forceinline__ AttentionWgmmaKeys(const TensorMap &qkvMap, const TensorMap &kvMap,
                                                __half *kv, const AttentionSizes &sizes,
                                                Barriers &barriers)
      : qkvMap(qkvMap), kvMap(kvMap), kv(kv), sizes(sizes), barriers(barriers) {}

  __device__ __forceinline__ void takeRole() {
    // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
    group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
    warp = __shfl_sync(fullWarp, threadIdx.x / 32 % 4, 0);
    lane = threadIdx.x % 32;
    leader = threadIdx.x % 128 == 0;
    place = {};
  }
  __device__ __forceinline__ void initBarriers() {
    barriers.init();
    if (threadIdx.x == L::threads - 32)
      prefetchMap(qkvMap);
    __syncthreads();
  }
  /// Finds the group's queries and key tiles. `held`: tokens of the state, as lane 0 knows them.
  __device__ __forceinline__ void locate(int held, __half *shared) {
    begin = __shfl_sync(fullWarp, held, 0);
    cached = (begin + 63) / 64;
    const int tilesQ = (sizes.seq + 63) / 64;
    if constexpr (L::units == 2)
      place = attentionPair(tilesQ, group, [&](int tileQ) { return seenBy(tileQ, tilesQ); });
    queries = shared + place.unit * L::tileHalves;
    ring = shared + (L::units + group * C::Stages * 2) * L::tileHalves;
    q0 = place.tileQ * 64;
    tiles = seenBy(place.tileQ, tilesQ);
    count = dividedUp(tiles - place.rank, place.groups);
    at.locate(*this);
    const unsigned ringAddress = keptAddress(ring);
    ringOperand = (unsigned)swizzledOperand(ringAddress);
    queriesOperand = swizzledOperand(keptAddress(queries));
    full = keptAddress(barriers.full[group]);
  }
  __device__ __forceinline__ int seenBy(int tileQ, int tilesQ) const {
    return cached + (C::Causal ? tileQ + 1 : tilesQ);
  }

  __device__ __forceinline__ void findPartial() {
    partial = begin % 64 != 0 ? cached - 1 : -1;
    shortened = !Tiles::endInZeros && sizes.seq % 64 != 0 ? tiles - 1 : -1;
  }
  /// The group's tile i, from the last one on: a causal block's own tokens are the last tile.
  __device__ __forceinline__ int tileOf(int i) const {
    return tiles - 1 - place.rank - i * place.groups;
  }
  __device__ __forceinline__ __half *tileAt(int part, unsigned i) const {
    return ring + (i % C::Stages * 2 + part) * L::tileHalves;
  }
  /// Addresses never carry into the upper half of an operand.
  __device__ __forceinline__ u64 operandAt(int part, unsigned i, int unit) const {
    return swizzledOperand(0u) >> 32 << 32 |
           (ringOperand + (i % C::Stages * 2 + part) * (L::tileHalves * 2 / 16) + unit);
  }
  __device__ __forceinline__ Barrier &barrierOf(int part, unsigned i) const {
    return barriers.full[group][L::apart ? part : 0][i % C::Stages];
  }
  __device__ __forceinline__ void barrierOfGroup() const {
    if constexpr (C::KeySplit == 1)
      __syncthreads();
    else
      asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
  }

  /// Of qkv: the keys or values of a head of queries.
  static __device__ __forceinline__ int freshColumn(int part, int h) {
    return L::width + part * L::kvWidth + h / L::group * 64;
  }
  __device__ __forceinline__ void copy(int part, unsigned i) const {
    const int t = tileOf(i);
    if (t < cached)
      copyBox(tileAt(part, i), kvMap, at.oldMatrix(part, t), at.oldRow(t), 0, barrierOf(part, i));
    else
      copyBox(tileAt(part, i), qkvMap, at.freshMatrix(*this), at.freshRow((t - cached) * 64),
              freshColumn(part, place.h), barrierOf(part, i));
  }
  /// To their stage of the ring, by the leader.
  __device__ __forceinline__ void load(int part, unsigned i) const {
    waitForStores(); // of what was here
    barrierOf(part, i).expect(L::together * L::tileHalves * 2);
#pragma unroll
    for (int j = part; j < part + L::together; j++)
      copy(j, i);
  }
  /// A part of a tile whose stage was empty, by a thread for each part.
  __device__ __forceinline__ void loadPart(int part, unsigned i) const {
    if (L::apart || part == 0)
      barrierOf(part, i).expect(L::together * L::tileHalves * 2);
    copy(part, i);
  }

  __device__ __forceinline__ void waitForTile(int part, unsigned i) const {
    const unsigned which = (L::apart ? part * C::Stages : 0) + i % C::Stages;
    Barrier::waitAt(full + which * (int)sizeof(Barrier), i / C::Stages % 2);
    const bool isShort = !Tiles::endInZeros && tileOf(i) == shortened;
    if (part + L::together == 2 && (isShort || tileOf(i) == partial)) {
      // What is behind the last token may be no number.
      uint4 *values = reinterpret_cast<uint4 *>(tileAt(1, i));
      const int rows = (isShort ? sizes.seq : begin) % 64;
#pragma unroll 1
      for (int u = rows * 8 + threadIdx.x % 128; u < 64 * 8; u += 128)
        values[u] = uint4{};
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      barrierOfGroup();
    }
  }
  /// This warp has multiplied tile `keys` of the keys and `values`, no later, of the values; when
  /// all warps have, the next tiles are copied to their stages.
  __device__ __forceinline__ void refill(int keys, int values) const {
    if (values + C::Stages >= count)
      return;
    barrierOfGroup();
    if (leader) {
      if (L::apart && keys + C::Stages < count)
        load(0, keys + C::Stages);
      if (values >= 0)
        load(L::apart ? 1 : 0, values + C::Stages);
    }
  }

  /// Stores tile i in the KV state if it is the block's own, by the first of the heads that share
  /// it; called while tensor cores have work.
  __device__ __forceinline__ void append(int part, int i) const {
    if (tileOf(i) != cached + place.tileQ || place.h % L::group != 0)
      return;
    const __half *tile = tileAt(part, i);
    if (at.isBox(*this)) {
      if (leader) {
#pragma unroll
        for (int j = 0; j < L::together; j++)
          storeBox(kvMap, at.newMatrix(part + j), at.newRow(*this), 0, tile + j * L::tileHalves);
        commitStores();
      }
      return;
    }
    appendRows(part, tile);
  }
  __device__ __forceinline__ void appendRows(int part, const __half *tile) const {
    const int unit = threadIdx.x % 8, rows = at.newRows(*this);
#pragma unroll 1
    for (int row = threadIdx.x % 128 / 8; row < rows; row += 16) {
      const int from = row * 64 + (unit ^ row % 8) * 8;
      storePack(at.newPlace(*this, part, row) + unit * 8, loadPack<8>(tile + from));
      if constexpr (!L::apart)
        storePack(at.newPlace(*this, 1, row) + unit * 8, loadPack<8>(tile + L::tileHalves + from));
    }
  }
};

/// What a warp copies first: the group's first keys, its first values or, in the first group, the
/// queries. All of it is known, and expected, before the kernel waits for its predecessor.
template <typename C, typename Tiles> struct AttentionWgmmaFirstCopy {
  using L = AttentionWgmma<C>;
  bool valid; // in one lane
  const TensorMap *map;
  int matrix, row, column;
  __half *to;
  Barrier *barrier;

  __device__
      __forceinline__ explicit AttentionWgmmaFirstCopy(const AttentionWgmmaKeys<C, Tiles> &k) {
    // Loaded at once: the compiler makes selections of what would be branches else.
    const AttentionPlace place = k.place;
    const int warp = k.warp, tile0 = k.tileOf(0), cached = k.cached, q0 = k.q0, count = k.count;
    const TensorMap *const kvMap = &k.kvMap, *const qkvMap = &k.qkvMap;
    const bool ofQueries = warp == 2;
    valid = (k.lane == 0) & (ofQueries ? place.rank == 0 : (warp < 2) & (count > 0));
    const bool old = !ofQueries && tile0 < cached;
    map = old ? kvMap : qkvMap;
    matrix = old ? k.at.oldMatrix(warp, tile0) : k.at.freshMatrix(k);
    row = old ? k.at.oldRow(tile0) : k.at.freshRow(ofQueries ? q0 : (tile0 - cached) * 64);
    column = old ? 0
                 : (ofQueries ? 0 : L::width + warp * L::kvWidth) +
                       (ofQueries ? place.h : place.h / L::group) * 64;
    to = ofQueries ? k.queries : k.tileAt(warp, 0);
    barrier = ofQueries                ? &k.barriers.queries[place.unit]
              : !L::apart && warp == 0 ? &k.barriers.keys[k.group]
                                       : &k.barrierOf(warp, 0);
    if (valid)
      barrier->expect(L::tileHalves * 2);
    // The compiler would compute these behind the wait.
    asm volatile("" ::"l"(map), "r"(matrix), "r"(row), "r"(column), "r"(sharedAddress(to)),
                 "r"(barrier->address()), "r"(k.count), "r"(k.at.kept()), "r"(k.full),
                 "r"((int)valid));
  }
  __device__ __forceinline__ void start() const {
    copyBox(to, *map, matrix, row, column, *barrier);
  }
};

} // namespace tile

#endif

} // namespace gpt2c
