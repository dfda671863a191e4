// cached_attention for few queries (decode): split keys, merged in a fixed order.
//   out[b,s,h,:] = sum_j softmax_j(scale * q . k_j) v_j over the visible keys j of query (b,s)
// Visible: j <= past[b] + s (causal) or j < past[b] + seq, and keyMask[b,j] != 0 when a mask is
// given. A query without a visible key yields zeros. The number of keys is read from device memory,
// so a captured launch stays right as past grows.
// One kernel: its phases share a tile's registers, and a reader wants them in their order.
//
// Tile: one query of one head, one of Splits key ranges per block. HeadDim is spread over G lanes,
// so a warp takes 32 / G keys at once and each group of lanes keeps its own running maximum, sum
// and output; groups, warps and splits are merged by log-sum-exp at the end. q is pre-multiplied by
// scale * log2(e), exponentials are base 2.
//
// Append: keys and values at j >= past come from qkv, and each query's block stores its own in the
// KV state (then no kv_append runs before). The kernel right before computes qkv and nothing else
// of this, so the others are on their way into L2 before this one waits for it. Without Append all
// keys come from the KV state. A state of bytes (kv_append.cuh) is dequantised in registers, and
// what comes from qkv is rounded as it is stored.
//
// Ring > 0 (from sm_90 on; without it, and elsewhere, keys and values are loaded into registers):
// each warp has Ring chunks of the state on their way to shared memory by TMA, the first ones
// before the kernel waits for its predecessor, which only computes qkv: see waitForPredecessor.
// Heads and rows begin at multiples of 16 bytes then, and context is a multiple of 4 with a state
// of bytes.
//
// Window > 0: a query sees the last so many of its keys alone; Causal, and Ring is 0.
//
// Last: only the last token of each sequence, number length[b] - 1 (length 0 counts as 1), has a
// query, and rows are sequences. With Append its blocks store the keys and values of all new tokens
// as they come by; those behind the last token are hidden.
//
// Heads of queries may share those of the state: the first of them stores the new key. RopePairs >
// 0, with Append and without Last: queries and new keys are turned by their position first
// (rotated_rows.cuh).
//
// With pages (state_rows.cuh) a chunk of the ring lies in one of them; without Mask and Last. With
// Parts > 0 keys of a prefix that other sequences have, too, are not read: what they come to joins
// the warps' parts at the end (prefix_parts.cuh); of one query of each sequence, without Window.
//
// Y of signed char: what is stored is quantised with a scale that is given (int8.cuh).
//
// With Cluster the Splits blocks (at most 8) are a thread block cluster from sm_90 on and merge
// through distributed shared memory, elsewhere through `partial`.
//
// Config: X (qkv: float or __half), Y (out: X or signed char), Kv (X, or signed char or Fp8, the
// bytes), Aligned (heads of a state of bytes begin at multiples of 8 of them, else of 4), HeadDim
// (<= 1024), Heads, Warps, Splits, Cluster, Ring (0 without Append), Append (not with Last and
// bytes), Last (Ring is 0), Causal, Mask, PageTokens, Window, SoftCap and Alibi (score.cuh),
// RopePairs, RopeInterleaved, Table, HeadNorm (rotated_rows.cuh), Queries (with RopePairs: most of
// a sequence), Parts. Kernel:
//   qkv X[batch,seq,Heads+2*KvHeads,HeadDim], kv Kv[layers,2,batchMax,KvHeads,context,HeadDim],
//   out Y[batch,seq,Heads,HeadDim] (Last: Y[batch,Heads,HeadDim]), past i32[batch] or null, keyMask
//   i32[batch,maskStride] or null, length i32[batch] (null without Last), cosines and sines
//   Table[places,RopePairs] (null without), gains f32[Heads+KvHeads,HeadDim] (null
//   without HeadNorm), gainEpsilon, partial
//   f32[batch*seq,Heads,Splits,HeadDim+2], counters u32[batch*seq,Heads] (zero before the first
//   launch and after each; both null when Splits is 1), prefixes and prefixParts (null without
//   Parts), layer, batchMax, context, seq, maskStride,
//   scale, places.
// Grid: (Splits, Heads, batch * seq), Last: (Splits, Heads, batch); block: 32 * Warps; dynamic
// shared: DecodeKeys<C>::ringBytes.
// Bytes: 2 keys HeadDim Heads sizeof(Kv) per query; flops: 4 keys HeadDim Heads per query.
#pragma once

#include "templates/attention/decode/decode_keys.cuh"
#include "templates/attention/parts/merge_splits.cuh"
#include "templates/attention/parts/prefix_parts.cuh"
#include "templates/attention/parts/rotated_rows.cuh"
#include "templates/attention/parts/state_rows.cuh"

namespace gpt2c::tile {

/// The parameters of the kernel and of the tile: query `row` of head h, one of Splits ranges of
/// keys.
template <typename C, typename Given> struct AttentionDecodeParams {
  const typename C::X *qkv;
  typename C::Kv *kv;
  typename C::Y *out;
  const int *past, *keyMask, *length; // with pages the mask is `tables`
  const typename C::Table *cosines, *sines;
  float *partial;
  unsigned *counters;
  const int *prefixes;
  const float *prefixParts;
  AttentionSizes sizes;
  const float *gains;
  float gainEpsilon;
  int places, split, h;
  i64 row;
  char *shared;
  const Given &given;
};

/// One query of one head and the keys of one split, in phases; `run` has their order.
template <typename C, typename Given> struct AttentionDecodeTile {
  using X = typename C::X;
  using Kv = typename C::Kv;
  using Y = typename C::Y;
  using K = DecodeKeys<C>;
  static_assert(!C::Last || (C::Ring == 0 && (!C::Append || !Operand<Kv>::scaled)));
  static constexpr int sharing = C::Heads / C::KvHeads; // heads that share keys
  static constexpr bool rope = C::RopePairs > 0;
  static_assert(sharing == 1 || !(C::Append && C::Last));
  static_assert(!rope || (C::Append && !C::Last));
  static_assert(C::Window == 0 || (C::Causal && C::Ring == 0));
  static_assert(C::Parts == 0 || (C::Window == 0 && C::PageTokens > 0));
  static_assert(C::Ring == 0 || C::PageTokens % K::chunk == 0);
  static constexpr int outs = C::Warps + (C::Parts > 0); // of warps, then of the prefix
  static constexpr int width = C::Heads * C::HeadDim;
  static constexpr int kvWidth = C::KvHeads * C::HeadDim, qkvRow = width + 2 * kvWidth;
  static constexpr int v = K::v, perLane = K::perLane, elements = perLane * v;
  static constexpr int unroll = K::unroll;
  static constexpr bool bytes = Operand<Kv>::scaled;
#if __CUDA_ARCH__ >= 900
  static constexpr bool ring = C::Ring > 0;
#else
  static constexpr bool ring = false;
#endif

  const AttentionDecodeParams<C, Given> p;
  const Score<C> scores;
  int warp, lane, group, member; // group: of the lanes of a key
  i64 b;
  int s, begin, seen, keys; // the query's number, tokens of the state, keys it sees, keys to visit
  const X *token, *fresh;   // the query, the new keys
  StateRows<C> rows;
  int newPage;      // of the query's own token
  int from, oldest; // the first key to visit, the first one that is seen
  int first, last;  // this split's keys
  float q[elements];
  SoftmaxState<elements> state;
  const X *rotated = nullptr; // of shared memory: the query, then the new keys

  __device__ __forceinline__ explicit AttentionDecodeTile(const AttentionDecodeParams<C, Given> &p)
      : p(p), scores(Score<C>::ofHead(p.h)) {}

  __device__ __forceinline__ void run() {
    locateQuery();
    MergeSplits<C>::begin(p.split);
    if constexpr (!C::Append)
      waitAndRelease();
    locateKeys();
    if constexpr (ring)
      startRing();
    locateSplit();
    if constexpr (C::Append && !ring)
      prefetchState();
    if constexpr (rope)
      rotate();
    loadQuery();
    storeOwnKey();
    takePrefix();
    attend();
    finish();
  }

  static __device__ __forceinline__ void waitAndRelease() {
    waitForPredecessor();
    releaseSuccessor();
  }

  // What there is to do
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void locateQuery() {
    warp = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    group = lane / K::lanes;
    member = lane % K::lanes;
    b = C::Last ? p.row : p.row / p.sizes.seq;
    s = C::Last ? max(1, min(p.length[b], p.sizes.seq)) - 1 : (int)(p.row % p.sizes.seq);
  }
  __device__ __forceinline__ void locateKeys() {
    begin = p.past != nullptr ? p.past[b] : 0;
    seen = C::Causal ? begin + s + 1 : begin + p.sizes.seq;
    keys = C::Last && C::Append ? begin + p.sizes.seq : seen;
    if (!C::Append)
      keys = min(keys, p.sizes.context);
    oldest = C::Window > 0 ? max(seen - C::Window, 0) : 0;
    from = C::Last && C::Append ? min(oldest, begin)
                                : max(oldest, PrefixParts<C>::beginOf(p.prefixes, b));
    const int keyHead = p.h / sharing;
    token = p.qkv + (b * p.sizes.seq + s) * qkvRow + p.h * C::HeadDim;
    fresh = p.qkv + b * p.sizes.seq * qkvRow + width + (sharing == 1 ? p.h : keyHead) * C::HeadDim;
    rows.locate(p.kv, p.keyMask, p.sizes, b, keyHead);
    newPage = rows.pageOf(min(begin + s, p.sizes.context - 1));
  }
  __device__ __forceinline__ void locateSplit() {
    const int each = (keys - from + C::Splits - 1) / C::Splits;
    first = from + p.split * each;
    last = min(first + each, keys);
  }
  __device__ __forceinline__ void prefetchState() const {
    const int end = min(last, min(begin, p.sizes.context));
    auto prefetchRows = [&](int from, int to) {
      prefetchBytes(rows.row(warp, rows.pageOf(from), from),
                    (i64)(to - from) * C::HeadDim * (int)sizeof(Kv));
    };
    if constexpr (C::PageTokens > 0) { // a lane a page
      for (int from = max(first, (first / C::PageTokens + lane) * C::PageTokens);
           warp < 2 && from < end; from = (from / C::PageTokens + 32) * C::PageTokens)
        prefetchRows(from, min(end, (from / C::PageTokens + 1) * C::PageTokens));
    } else if (lane == 0 && warp < 2) {
      prefetchRows(first, end);
    }
    waitAndRelease();
  }

  // A lane's elements of a head are K::perLane vectors of v.
  __device__ __forceinline__ bool inside(int i) const {
    return K::vectors % K::lanes == 0 || i * K::lanes + member < K::vectors;
  }
  __device__ __forceinline__ int offset(int i) const { return (i * K::lanes + member) * v; }

  __device__ __forceinline__ void loadQuery() {
#pragma unroll
    for (int i = 0; i < perLane; i++) {
      float part[v] = {};
      if (inside(i))
        loadFloats<v>((rope ? rotated : token) + offset(i), part);
#pragma unroll
      for (int d = 0; d < v; d++)
        q[i * v + d] = scaledScore(part[d], p.sizes.scale);
    }
  }

  /// The query and all new keys.
  __device__ __forceinline__ void rotate() {
    constexpr int rows = 1 + C::Queries;
    alignas(16) __shared__ X shared[rows][C::HeadDim];
    RotatedRows<C, rows, 32 * C::Warps> turned;
    turned.loadAngles(p.cosines, p.sines, p.places,
                      [&](int row) { return begin + (row == 0 ? s : row - 1); });
    const int count = 1 + min(p.sizes.seq, C::Queries);
    auto from = [&](int row) { return row == 0 ? token : fresh + (i64)(row - 1) * qkvRow; };
    __shared__ float factor[rows];
    if constexpr (C::HeadNorm) {
      turned.factors(factor, count, p.gainEpsilon, from);
      __syncthreads();
    }
    turned.rotate(shared, count, from, [&](int row, int d) {
      const int head = row == 0 ? p.h : C::Heads + p.h / sharing;
      return factor[row] * p.gains[head * C::HeadDim + d];
    });
    __syncthreads();
    rotated = shared[0];
  }
  /// The key, or the value, of the query's own token.
  __device__ __forceinline__ const X *own(int part) const {
    if constexpr (rope)
      if (part == 0)
        return rotated + (1 + s) * C::HeadDim;
    if constexpr (sharing == 1)
      return token + (part + 1) * width;
    else
      return fresh + (i64)s * qkvRow + part * kvWidth;
  }
  /// Of the heads that share keys the first stores them.
  __device__ __forceinline__ bool storesKeys() const {
    return p.split == C::Splits - 1 && begin + s < p.sizes.context && newPage >= 0 &&
           (sharing == 1 || p.h % sharing == 0);
  }
  /// With Append, by the last split; with Last, keys are stored as they come by (storeFresh).
  __device__ __forceinline__ void storeOwnKey() const {
    if constexpr (C::Append && bytes) {
      static_assert(C::Warps >= 2);
      if (storesKeys() && warp < 2)
        storeQuantisedRow<C::HeadDim>(rows.row(warp, newPage, begin + s),
                                      rows.scale(warp, newPage, begin + s), own(warp));
    } else if constexpr (C::Append && !C::Last) {
      const bool stores = storesKeys();
      for (int i = threadIdx.x * v; stores && i < 2 * C::HeadDim; i += 32 * C::Warps * v) {
        int part = i / C::HeadDim, d = i % C::HeadDim;
        float a[v];
        loadFloats<v>(own(part) + d, a);
        storeFloats<v>(rows.row(part, newPage, begin + s) + d, a);
      }
    }
  }

  // Keys
  // -----------------------------------------------------------------------------------------------

  /// Position j of the state, or of the new tokens.
  __device__ __forceinline__ KeyValue<Kv> cached(int j) const {
    const int page = rows.pageOf(j);
    return {rows.row(0, page, j), rows.row(1, page, j), rows.scale(0, page, j),
            rows.scale(1, page, j)};
  }
  __device__ __forceinline__ KeyValue<X> appended(int j) const {
    const X *at = fresh + (i64)(j - begin) * qkvRow;
    return {rope ? rotated + (1 + j - begin) * C::HeadDim : at, at + kvWidth, nullptr, nullptr};
  }

  __device__ __forceinline__ void attend() {
    auto ofState = [&](int j) { return cached(j); };
    auto ofTokens = [&](int j) { return appended(j); };
    if constexpr (ring) {
      if (p.split == C::Splits - 1)
        attendRange(begin, keys, ofTokens);
      attendRing();
    } else if constexpr (!C::Append) {
      attendRange(first, last, ofState);
    } else if constexpr (sizeof(X) == sizeof(Kv)) {
      attendRange(first, last, [&](int j) { return j < begin ? cached(j) : appended(j); });
    } else {
      attendRange(first, min(last, begin), ofState);
      attendRange(max(first, begin), last, ofTokens);
    }
  }
  /// The keys [from, to), shared by the warps.
  template <typename Rows>
  __device__ __forceinline__ void attendRange(int from, int to, Rows &&rows) {
    for (int base = from + warp * K::keysPerWarp; base < to; base += K::chunk * C::Warps)
      round(base, K::keysPerWarp * C::Warps, to, rows);
  }

  /// Takes a round of keys, of which this lane has base + i * step + group, into the softmax;
  /// rows(j) is {key, value} of position j. All loads of a round are issued before the first is
  /// used, so none is conditional: keys from `to` on are the last one again, hidden.
  template <typename Rows>
  __device__ __forceinline__ void round(int base, int step, int to, Rows &&rows) {
    using T = typename decltype(rows(0))::Element;
    Pack<T, v> key[unroll][perLane], value[unroll][perLane];
    float keyScale[unroll], valueScale[unroll];
    bool visible[unroll];
#pragma unroll
    for (int u = 0; u < unroll; u++) {
      const int j = base + u * step + group, k = min(j, to - 1);
      visible[u] = j < min(to, seen) && (C::Window == 0 || j >= oldest) &&
                   (!C::Mask || p.keyMask == nullptr || p.keyMask[b * p.sizes.maskStride + k] != 0);
      const KeyValue<T> at = rows(k);
#pragma unroll
      for (int i = 0; i < perLane; i++) {
        key[u][i] = loadPack<v>(at.key + (inside(i) ? offset(i) : 0));
        value[u][i] = loadPack<v>(at.value + (inside(i) ? offset(i) : 0));
      }
      keyScale[u] = Operand<T>::scaled ? *at.keyScale : 1.0f;
      valueScale[u] = Operand<T>::scaled ? *at.valueScale : 1.0f;
    }
    if constexpr (C::Last && C::Append)
      storeFresh(base, step, to, key, value);
    if constexpr (bytes && !Operand<T>::scaled) {
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        keyScale[u] = roundToSteps<Kv, K::lanes>(key[u]);
        valueScale[u] = roundToSteps<Kv, K::lanes>(value[u]);
      }
    }
    softmax(key, value, keyScale, valueScale, visible, base + group, step);
  }
  template <typename T>
  __device__ __forceinline__ void storeFresh(int base, int step, int to,
                                             const Pack<T, v> (&key)[unroll][perLane],
                                             const Pack<T, v> (&value)[unroll][perLane]) const {
#pragma unroll
    for (int u = 0; u < unroll; u++)
      if (const int j = base + u * step + group; j >= begin && j < min(to, p.sizes.context))
#pragma unroll
        for (int i = 0; i < perLane; i++)
          if (inside(i)) {
            const i64 at = (i64)j * C::HeadDim + offset(i);
            storeWhole(rows.heads[0] + at, convertPack<Kv>(key[u][i]));
            storeWhole(rows.heads[1] + at, convertPack<Kv>(value[u][i]));
          }
  }
  template <typename T>
  __device__ __forceinline__ void
  softmax(const Pack<T, v> (&key)[unroll][perLane], const Pack<T, v> (&value)[unroll][perLane],
          const float (&keyScale)[unroll], const float (&valueScale)[unroll],
          const bool (&visible)[unroll], int first, int step) {
    float score[unroll], top = state.max;
#pragma unroll
    for (int u = 0; u < unroll; u++) {
      float dot = 0.0f;
#pragma unroll
      for (int d = 0; d < elements; d++)
        dot = fmaf(q[d], key[u][d / v].get(d % v), dot);
      dot = warpReduce<Sum, K::lanes>(dot);
      dot *= keyScale[u];
      score[u] = visible[u] ? scores(dot, begin + s, first + u * step) : negativeInfinity();
      top = fmaxf(top, score[u]);
    }
    state.raise(top);
#pragma unroll
    for (int u = 0; u < unroll; u++) {
      float row[elements];
#pragma unroll
      for (int d = 0; d < elements; d++)
        row[d] = value[u][d / v].get(d % v) * valueScale[u];
      state.add(score[u], row);
    }
  }

  // The ring
  // -----------------------------------------------------------------------------------------------

#if __CUDA_ARCH__ >= 900
  // Chunks [firstChunk, endChunk) of the state are this split's, every Warps-th of them this
  // warp's.
  static constexpr int slotCount = maxInt(C::Ring, 1);
  using Filled = Barrier[C::Warps][slotCount];
  char *slots;
  int stored, firstChunk, endChunk;
  PagesAhead<C, K::chunk * C::Warps> pages; // of this warp's chunks

  static __device__ __forceinline__ Filled &filled() {
    __shared__ Filled barriers;
    return barriers;
  }
#endif
  __device__ __forceinline__ void startRing() {
#if __CUDA_ARCH__ >= 900
    slots = p.shared + warp * C::Ring * K::chunkBytes;
    stored = min(begin, p.sizes.context);
    const int none = from / K::chunk; // of the prefix
    const int chunks = (stored + K::chunk - 1) / K::chunk - none;
    firstChunk = none + p.split * chunks / C::Splits;
    endChunk = none + (p.split + 1) * chunks / C::Splits;
    if (lane == 0) {
      for (int i = 0; i < C::Ring; i++)
        filled()[warp][i].init(1);
      fenceBarrierInit();
    }
    __syncwarp();
    pages.start(rows, p.sizes, (firstChunk + warp) * K::chunk);
    for (int i = 0; i < C::Ring; i++)
      fetch(i);
    waitAndRelease();
#endif
  }
  /// Copies the warp's chunk of that number into its slot.
  __device__ __forceinline__ void fetch(int number) {
#if __CUDA_ARCH__ >= 900
    const int at = (firstChunk + warp + number * C::Warps) * K::chunk;
    const int page = pages.of(at);
    if (lane != 0 || at >= endChunk * K::chunk)
      return;
    const int count = min(K::chunk, stored - at), slot = number % slotCount;
    const int rowBytes = count * C::HeadDim * (int)sizeof(Kv);
    const int scaleBytes = bytes ? (count + 3) / 4 * 16 : 0;
    char *to = slots + slot * K::chunkBytes;
    Barrier &barrier = filled()[warp][slot];
    barrier.expect(2 * (rowBytes + scaleBytes));
    copyBytes(to, rows.row(0, page, at), rowBytes, barrier);
    copyBytes(to + K::partBytes, rows.row(1, page, at), rowBytes, barrier);
    if constexpr (bytes) {
      copyBytes(to + 2 * K::partBytes, rows.scale(0, page, at), scaleBytes, barrier);
      copyBytes(to + 2 * K::partBytes + K::scaleBytes, rows.scale(1, page, at), scaleBytes,
                barrier);
    }
#endif
  }
  __device__ __forceinline__ void attendRing() {
#if __CUDA_ARCH__ >= 900
    for (int i = 0;; i++) {
      const int chunk = firstChunk + warp + i * C::Warps;
      if (chunk >= endChunk)
        break;
      filled()[warp][i % slotCount].wait(i / slotCount % 2);
      const char *slot = slots + i % slotCount * K::chunkBytes;
      const int at = chunk * K::chunk;
      round(at, K::keysPerWarp, min(at + K::chunk, stored), [&](int j) {
        const Kv *key = reinterpret_cast<const Kv *>(slot) + (j - at) * C::HeadDim;
        const float *scales = reinterpret_cast<const float *>(slot + 2 * K::partBytes) + j - at;
        return KeyValue<Kv>{key, key + K::chunk * C::HeadDim, scales, scales + K::chunk};
      });
      __syncwarp();
      fetch(i + C::Ring);
    }
#endif
  }

  // The end
  // -----------------------------------------------------------------------------------------------

  struct Outs {
    float max[outs], sum[outs], out[outs][C::HeadDim];
  };
  static __device__ __forceinline__ Outs &ofWarps() {
    __shared__ Outs shared;
    return shared;
  }
  __device__ __forceinline__ void takePrefix() const {
    if constexpr (C::Parts > 0)
      if (Outs &to = ofWarps(); warp == C::Warps - 1)
        PrefixParts<C>::take(p.split, p.prefixParts, p.prefixes, b, b * C::Heads + p.h,
                             to.max[C::Warps], to.sum[C::Warps], to.out[C::Warps]);
  }
  /// Merges lanes, warps and splits, and stores.
  __device__ __forceinline__ void finish() {
    mergeLanes<K::lanes>(state);
    Outs &of = ofWarps();
    if (lane == 0) {
      of.max[warp] = state.max;
      of.sum[warp] = state.sum;
    }
    if (group == 0)
#pragma unroll
      for (int i = 0; i < perLane; i++)
        if (inside(i))
#pragma unroll
          for (int d = 0; d < v; d++)
            of.out[warp][offset(i) + d] = state.out[i * v + d];
    __syncthreads();
    float top = negativeInfinity(), sum = 0.0f;
#pragma unroll
    for (int w = 0; w < outs; w++)
      top = fmaxf(top, of.max[w]);
#pragma unroll
    for (int w = 0; w < outs; w++)
      sum += of.sum[w] * state.rescale(of.max[w], top);
    auto blockOut = [&](int d) {
      float o = 0.0f;
#pragma unroll
      for (int w = 0; w < outs; w++)
        o += of.out[w][d] * state.rescale(of.max[w], top);
      return o;
    };
    MergeSplits<C>::end(p.out + p.row * width + p.h * C::HeadDim,
                        p.partial + ((p.row * C::Heads + p.h) * C::Splits) * (C::HeadDim + 2),
                        p.counters + p.row * C::Heads + p.h, p.split, top, sum, p.given, blockOut);
  }
};

template <typename C, typename Given>
__device__ __forceinline__ void
attentionDecode(const typename C::X *qkv, typename C::Kv *kv, typename C::Y *out, const int *past,
                const int *keyMask, const int *length, const typename C::Table *cosines,
                const typename C::Table *sines, int places, const float *gains, float gainEpsilon,
                float *partial, unsigned *counters, const int *prefixes, const float *prefixParts,
                int layer, int batchMax, int context, int seq, int maskStride, float scale,
                int split, int h, i64 row, char *shared, const Given &given) {
  const AttentionSizes sizes = {layer, batchMax, context, seq, maskStride, scale};
  AttentionDecodeTile<C, Given> tile({qkv,     kv,     out,         past,     keyMask,  length,
                                      cosines, sines,  partial,     counters, prefixes, prefixParts,
                                      sizes,   gains,  gainEpsilon, places,   split,    h,
                                      row,     shared, given});
  tile.run();
}

} // namespace gpt2c::tile
