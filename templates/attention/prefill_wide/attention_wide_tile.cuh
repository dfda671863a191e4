// A tile of attention by wgmma for heads of a multiple of 16 from 64 to 256, fp16 or bf16, causal,
// of attention_prefill_wide.cuh and pages/attention_pages_wide.cuh: 64 queries of a head for each
// of Groups warpgroups, which share the tiles of 64 keys; one more warp has TMA fill the rings of
// keys and of values, Stages tiles each, from the last tile on: first the new tokens, then the
// state. While the weights of a tile are computed, the product O += P V of the tile before runs.
//
// A head's rows come in boxes of 64 columns, the last of which may have columns of what lies behind
// the head: they meet no column of queries, and of values give columns that nobody stores.
//
// Config: X (__half or __nv_bfloat16), Heads, KvHeads, HeadDim, Window, Groups, Stages; SoftCap as
// in score.cuh.
#pragma once

#include "templates/attention/prefill_wgmma/attention_wgmma_softmax.cuh"
#include "templates/attention/score.cuh"
#include "templates/device/tma.cuh"

namespace gpt2c {

template <typename C> struct AttentionWide {
  static constexpr int boxes = ceilDiv(C::HeadDim, 64);
  static constexpr int consumers = 128 * C::Groups, threads = consumers + 32;
  static constexpr int boxHalves = 64 * 64, tileHalves = boxes * boxHalves;
  static constexpr int sharedBytes = (C::Groups + 2 * C::Stages) * tileHalves * 2 + 1024;
  static_assert(C::HeadDim % 16 == 0 && C::Heads % C::KvHeads == 0);
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace tile {

/// In shared memory. A tile's keys and values are waited for and handed back one by one.
template <typename C> struct AttentionWideBarriers {
  Barrier queries, full[2][C::Stages], empty[2][C::Stages];

  /// By one thread; a barrier of the block has to follow.
  __device__ __forceinline__ void init() {
    queries.init(1);
    for (int part = 0; part < 2; part++)
      for (int s = 0; s < C::Stages; s++) {
        full[part][s].init(1);
        empty[part][s].init(4 * C::Groups); // a warp each
      }
    fenceBarrierInit();
  }
};

/// Which tiles of keys a block goes through: tile t has tokens of the state, 64 t on, and from
/// `cached` on new ones, 64 (t - cached) on.
template <typename C> struct AttentionWideTiles {
  int begin, seq, q0; // tokens of the state, new tokens, the block's first query among those
  int cached, first, end;

  __device__ __forceinline__ AttentionWideTiles(int begin, int seq, int q0)
      : begin(begin), seq(seq), q0(q0), cached((begin + 63) / 64) {
    end = cached + min((seq + 63) / 64, q0 / 64 + C::Groups);
    const int oldest = C::Window > 0 ? max(begin + q0 + 1 - C::Window, 0) : 0;
    first = oldest < begin ? oldest / 64 : cached + (oldest - begin) / 64;
  }
  __device__ __forceinline__ int count() const { return end - first; }
  /// The i-th, from the last one on.
  __device__ __forceinline__ int tile(int i) const { return end - 1 - i; }
  /// Those of the block's own tokens, which come first.
  __device__ __forceinline__ int own() const { return end - cached - q0 / 64; }
  __device__ __forceinline__ bool isOld(int t) const { return t < cached; }
  /// The position of its first key, and how many keys it has.
  __device__ __forceinline__ int position(int t) const {
    return isOld(t) ? t * 64 : begin + (t - cached) * 64;
  }
  __device__ __forceinline__ int keys(int t) const {
    return isOld(t) ? begin - t * 64 : seq - (t - cached) * 64;
  }
};

/// The warp that copies: its first lane has TMA do it. Place says where tiles lie:
///   oldMatrix(part, t), oldRow(t)  the box of tile t of the state
///   freshMatrix(), freshRow(r)     that of new tokens from r on, in the rows of the call
///   isBox(position)                whether 64 rows from there on are a box of the state, which is
///                                  newMatrix(part, position), newRow(position)
///   newRows(position, count)       rows of the state that there are from there on, at most `count`
///   newPlace(kv, part, position)   where one of them is
template <typename C, typename Place> struct AttentionWideCopies {
  using L = AttentionWide<C>;
  const TensorMap &qkvMap, &kvMap;
  typename C::X *kv;
  AttentionWideBarriers<C> &barriers;
  const AttentionWideTiles<C> &tiles;
  const Place &place;
  __half *queries, *ring;
  int h, lane;

  __device__ __forceinline__ __half *at(int part, int i) const {
    return ring + (i % C::Stages * 2 + part) * L::tileHalves;
  }
  __device__ __forceinline__ int column(int part) const {
    return (C::Heads + part * C::KvHeads + h / (C::Heads / C::KvHeads)) * C::HeadDim;
  }
  __device__ __forceinline__ void loadQueries() const {
    barriers.queries.expect(C::Groups * L::tileHalves * 2);
    for (int g = 0; g < C::Groups; g++)
      for (int j = 0; j < L::boxes; j++)
        copyBox(queries + (g * L::boxes + j) * L::boxHalves, qkvMap, place.freshMatrix(),
                place.freshRow(tiles.q0 + g * 64), h * C::HeadDim + j * 64, barriers.queries);
  }
  __device__ __forceinline__ void load(int part, int i) const {
    const int stage = i % C::Stages, t = tiles.tile(i);
    if (i >= C::Stages)
      barriers.empty[part][stage].wait((i / C::Stages - 1) % 2);
    Barrier &full = barriers.full[part][stage];
    full.expect(L::tileHalves * 2);
    for (int j = 0; j < L::boxes; j++)
      if (tiles.isOld(t))
        copyBox(at(part, i) + j * L::boxHalves, kvMap, place.oldMatrix(part, t), place.oldRow(t),
                j * 64, full);
      else
        copyBox(at(part, i) + j * L::boxHalves, qkvMap, place.freshMatrix(),
                place.freshRow((t - tiles.cached) * 64), column(part) + j * 64, full);
  }
  /// Stores the i-th tile, one of the block's own tokens, in the state when it has come.
  __device__ __forceinline__ void append(int part, int i) const {
    const int t = tiles.tile(i), position = tiles.position(t);
    barriers.full[part][i % C::Stages].wait(i / C::Stages % 2);
    if (tiles.keys(t) < 64 || !place.isBox(position)) {
      appendRows(part, i, min(tiles.keys(t), 64), position);
    } else if (lane == 0) {
      for (int j = 0; j < L::boxes; j++)
        storeBox(kvMap, place.newMatrix(part, position), place.newRow(position), j * 64,
                 at(part, i) + j * L::boxHalves);
      commitStores();
    }
  }
  /// The same row by row.
  __device__ __forceinline__ void appendRows(int part, int i, int rows, int position) const {
    constexpr int units = C::HeadDim / 8;
    for (int id = lane; id < place.newRows(position, rows) * units; id += 32) {
      const int r = id / units, u = id % units;
      const __half *from = at(part, i) + u / 8 * L::boxHalves + r * 64 + (u % 8 ^ r % 8) * 8;
      *reinterpret_cast<uint4 *>(place.newPlace(kv, part, position + r) + u * 8) =
          *reinterpret_cast<const uint4 *>(from);
    }
  }
  __device__ __forceinline__ void run() const {
    static_assert(C::Groups <= C::Stages, "the block's own tiles are stored before others come");
    const int count = tiles.count();
    if (lane == 0) {
      load(0, 0);
      loadQueries();
      load(1, 0);
      loadTiles(1, min(count, C::Stages));
    }
    if (h % (C::Heads / C::KvHeads) == 0)
      for (int i = 0; i < 2 * tiles.own(); i++)
        append(i % 2, i / 2);
    __syncwarp();
    if (lane == 0) {
      waitForStores();
      loadTiles(C::Stages, count);
    }
  }
  __device__ __forceinline__ void loadTiles(int begin, int end) const {
    for (int i = begin; i < end; i++) {
      load(0, i);
      load(1, i);
    }
  }
};

/// A warpgroup's 64 queries. EndInZeros: rows behind the last new token are zeros, as TMA has them
/// behind a tensor's last.
template <typename C, bool EndInZeros> struct AttentionWideGroup {
  using L = AttentionWide<C>;
  using X = typename C::X;
  static constexpr bool scoresChange = Score<C>::capped;

  AttentionWideBarriers<C> &barriers;
  const AttentionWideTiles<C> &tiles;
  __half *ring;
  u64 queriesOperand;
  unsigned ringOperand, full, empty; // kept addresses: of wgmma operands, of barriers
  int group, warp, lane, q0;         // its first query
  float factor;
  float o[L::boxes][8][4] = {};
  AttentionWgmmaSoftmax<X> softmax = {};

  __device__ __forceinline__ AttentionWideGroup(AttentionWideBarriers<C> &barriers,
                                                const AttentionWideTiles<C> &tiles, __half *queries,
                                                __half *ring, float scale)
      : barriers(barriers), tiles(tiles), ring(ring) {
    group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
    warp = __shfl_sync(fullWarp, threadIdx.x / 32 % 4, 0);
    lane = threadIdx.x % 32;
    q0 = tiles.q0 + group * 64;
    factor = scoreFactor(scale);
    softmax.factor = scoresChange ? 1.0f : factor;
    queriesOperand = swizzledOperand(keptAddress(queries + group * L::tileHalves));
    ringOperand = (unsigned)swizzledOperand(keptAddress(ring));
    full = keptAddress(barriers.full);
    empty = keptAddress(barriers.empty);
  }

  /// Addresses never carry into the upper half of an operand.
  __device__ __forceinline__ u64 operandAt(int part, int i, int unit) const {
    return swizzledOperand(0u) >> 32 << 32 |
           (ringOperand + (i % C::Stages * 2 + part) * (L::tileHalves * 2 / 16) + unit);
  }
  __device__ __forceinline__ void wait(int part, int i) const {
    Barrier::waitAt(full + (part * C::Stages + i % C::Stages) * (int)sizeof(Barrier),
                    i / C::Stages % 2);
  }
  __device__ __forceinline__ void handBack(int part, int i) const {
    __syncwarp();
    if (lane == 0)
      Barrier::arriveAt(empty + (part * C::Stages + i % C::Stages) * (int)sizeof(Barrier));
  }

  __device__ __forceinline__ void attend() {
    barriers.queries.wait(0);
    const int count = tiles.count();
    // Tiles of new tokens behind all of this group's queries. They are waited for all the same: a
    // barrier is good for a stage's next tile when its phase before has ended.
    int i = 0;
    for (; i < count - 1 && tiles.position(tiles.tile(i)) > tiles.begin + q0 + 63; i++)
      for (int part = 0; part < 2; part++) {
        wait(part, i);
        handBack(part, i);
      }
    wait(0, i);
    multiplyKeys(i);
    wgmmaWait<0>();
    handBack(0, i);
    hide(i);
    softmax.weighByLargest();
    softmax.pack();
#pragma unroll 1
    for (i++; i < count; i++) {
      wait(0, i);
      multiplyKeys(i);
      waitForValues(i - 1);
      multiplyValues(i - 1);
      wgmmaWait<1>();
      handBack(0, i);
      hide(i);
      softmax.weighByLargest();
      wgmmaWait<0>();
      handBack(1, i - 1);
      rescale();
      softmax.pack();
    }
    waitForValues(count - 1);
    multiplyValues(count - 1);
    wgmmaWait<0>();
  }

  __device__ __forceinline__ void multiplyKeys(int i) {
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < C::HeadDim / 16; kk++) {
      const int unit = kk / 4 * (L::boxHalves * 2 / 16) + kk % 4 * 2;
      wgmma<X>(softmax.s, queriesOperand + unit, operandAt(0, i, unit), kk > 0);
    }
    wgmmaCommit();
  }
  __device__ __forceinline__ void multiplyValues(int i) {
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) // 16 keys are 16 rows of 128 bytes
#pragma unroll
      for (int j = 0; j < L::boxes; j++)
        wgmmaAcross<X>(o[j], softmax.p[kk],
                       operandAt(1, i, j * (L::boxHalves * 2 / 16) + kk * (16 * 128 / 16)));
    wgmmaCommit();
  }
  /// The values of tile i, zeros behind the last token: by all groups.
  __device__ __forceinline__ void waitForValues(int i) {
    wait(1, i);
    const int t = tiles.tile(i), keys = tiles.keys(t);
    if ((EndInZeros && !tiles.isOld(t)) || keys >= 64)
      return;
    __half *values = ring + (i % C::Stages * 2 + 1) * L::tileHalves;
    for (int u = threadIdx.x; u < L::boxes * (64 - keys) * 8; u += L::consumers) {
      const int row = keys + u / 8 % (64 - keys), box = u / 8 / (64 - keys);
      reinterpret_cast<uint4 *>(values + box * L::boxHalves + row * 64)[u % 8] = uint4{};
    }
    fenceShared();
    asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory");
  }

  /// Scores of keys that are not seen become -infinity.
  __device__ __forceinline__ void hide(int i) {
    const int t = tiles.tile(i), keys = tiles.keys(t), position = tiles.position(t),
              query = tiles.begin + q0;
    if constexpr (scoresChange)
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          softmax.s[j][e] = Score<C>{}(softmax.s[j][e] * factor, 0, 0);
    if (keys >= 64 && position + 63 <= query &&
        (C::Window == 0 || position > query + 63 - C::Window))
      return;
    const int row = query + warp * 16 + lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int key = j * 8 + column + e % 2;
        if (key >= keys || !Score<C>::sees(row + e / 2 * 8, position + key))
          softmax.s[j][e] = negativeInfinity();
      }
  }

  __device__ __forceinline__ void rescale() {
    if (!__any_sync(fullWarp, softmax.keep[0] != 1.0f || softmax.keep[1] != 1.0f))
      return;
#pragma unroll
    for (int j = 0; j < L::boxes; j++)
#pragma unroll
      for (int d = 0; d < 8; d++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          o[j][d][e] *= softmax.keep[e / 2];
  }
};

} // namespace tile

#endif

} // namespace gpt2c
