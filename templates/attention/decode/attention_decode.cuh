// cached_attention for few queries (decode): split keys, merged in a fixed order.
//   out[b,s,h,:] = sum_j softmax_j(scale * q . k_j) v_j over the visible keys j of query (b,s)
// Visible: j <= past[b] + s (causal) or j < past[b] + seq, and keyMask[b,j] != 0 when a mask is
// given. A query without a visible key yields zeros. The number of keys is read from device memory,
// so a captured launch stays right as past grows.
//
// Tile: one query of one head, one of Splits key ranges per block. HeadDim is spread over G lanes,
// so a warp takes 32 / G keys at once and each group of lanes keeps its own running maximum, sum
// and output; groups, warps and splits are merged by log-sum-exp at the end. q is pre-multiplied by
// scale * log2(e), exponentials are base 2.
//
// Append: keys and values at j >= past come from qkv, and each query's block stores its own in the
// KV state (then no kv_append runs before). The kernel right before computes qkv and nothing else of
// this, so the others are on their way into L2 before this one waits for it. Without Append all keys
// come from the KV state. An int8 state
// (kv_append.cuh) is dequantised in registers, and what comes from qkv is rounded as it is stored.
//
// Ring > 0 (from sm_90 on; without it, and elsewhere, keys and values are loaded into registers): each
// warp has Ring chunks of the state on their way to shared memory by the copy engine, the first ones
// before the kernel waits for its predecessor, which only computes qkv: see waitForPredecessor. Heads
// and rows begin at multiples of 16 bytes then, and context is a multiple of 4 when the state is int8.
//
// Last: only the last token of each sequence, number length[b] - 1 (length 0 counts as 1), has a query,
// and rows are sequences. With Append its blocks store the keys and values of all new tokens as they
// come by; those behind the last token are hidden.
//
// Y of signed char: what is stored is quantised with a scale that is given (int8.cuh).
//
// With Cluster the Splits blocks (at most 8) are a thread block cluster from sm_90 on and merge
// through distributed shared memory, elsewhere through `partial`.
//
// Config: X (qkv: float or __half), Y (out: X or signed char), Kv (X or signed char), Aligned (heads of an int8 state
// begin at multiples of 8 bytes, else of 4), HeadDim (<= 1024), Heads, Warps, Splits, Cluster, Ring
// (0 without Append), Append (not with Last and int8), Last (Ring is 0), Causal, Mask. Kernel:
//   qkv X[batch,seq,Heads+2*KvHeads,HeadDim], kv Kv[layers,2,batchMax,KvHeads,context,HeadDim],
//   out Y[batch,seq,Heads,HeadDim] (Last: Y[batch,Heads,HeadDim]), past i32[batch] or null, keyMask
//   i32[batch,maskStride] or null, length i32[batch] (null without Last), partial
//   f32[batch*seq,Heads,Splits,HeadDim+2], counters u32[batch*seq,Heads] (zero before the first
//   launch and after each; both null when Splits is 1), layer, batchMax, context, seq, maskStride,
//   scale.
// Grid: (Splits, Heads, batch * seq), Last: (Splits, Heads, batch); block: 32 * Warps; dynamic shared: DecodeKeys<C>::ringBytes.
// Bytes: 2 keys HeadDim Heads sizeof(Kv) per query; flops: 4 keys HeadDim Heads per query.
#pragma once

#include "templates/device/common.cuh"
#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/device/split_k.cuh"
#include "templates/device/tma.cuh"

namespace gpt2c {

/// The state of an online softmax: maximum (base 2 exponent), sum and the unnormalised output.
template <int N> struct SoftmaxState {
  float max = negativeInfinity();
  float sum = 0.0f;
  float out[N] = {};

  /// What to multiply a state of maximum `from` by when its maximum becomes `to`.
  static __device__ __forceinline__ float rescale(float from, float to) {
    return from == negativeInfinity() ? 0.0f : exp2f(from - to);
  }
  /// Makes the maximum `top`, which is at least as large.
  __device__ __forceinline__ void raise(float top) {
    const float keep = rescale(max, top);
    max = top;
    sum *= keep;
#pragma unroll
    for (int d = 0; d < N; d++)
      out[d] *= keep;
  }
  /// Takes in a key of a score of at most the maximum.
  __device__ __forceinline__ void add(float score, const float (&value)[N]) {
    const float p = rescale(score, max);
    sum += p;
#pragma unroll
    for (int d = 0; d < N; d++)
      out[d] = fmaf(p, value[d], out[d]);
  }
};

/// Merges the states of the groups of Lanes neighbouring lanes of a warp; every group gets it.
template <int Lanes, int N> __device__ __forceinline__ void mergeLanes(SoftmaxState<N> &state) {
#pragma unroll
  for (int step = Lanes; step < 32; step *= 2) {
    const float otherMax = __shfl_xor_sync(fullWarp, state.max, step);
    const float top = fmaxf(state.max, otherMax);
    const float mine = state.rescale(state.max, top), other = state.rescale(otherMax, top);
    state.max = top;
    state.sum = state.sum * mine + __shfl_xor_sync(fullWarp, state.sum, step) * other;
#pragma unroll
    for (int d = 0; d < N; d++)
      state.out[d] = state.out[d] * mine + __shfl_xor_sync(fullWarp, state.out[d], step) * other;
  }
}

/// Where the key and the value of one position are.
template <typename T> struct KeyValue {
  using Element = T;
  const T *key, *value;
  const float *keyScale, *valueScale; // int8
};

/// Rounds the elements of a row, of which Lanes neighbouring lanes have a part each, to what its int8
/// form stands for.
template <int Lanes, int Count, typename T, int V>
__device__ __forceinline__ void roundToInt8(Pack<T, V> (&row)[Count]) {
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < Count * V; i++)
    largest = fmaxf(largest, fabsf(row[i / V].get(i % V)));
  const float scale = quantised::scale(warpReduce<Max, Lanes>(largest));
  const float inverse = quantised::inverse(scale);
#pragma unroll
  for (int i = 0; i < Count * V; i++)
    row[i / V].set(i % V, fromFloat<T>(scale * quantised::round(row[i / V].get(i % V), inverse)));
}

template <typename To, typename T, int V>
__device__ __forceinline__ Pack<To, V> convertPack(Pack<T, V> from) {
  if constexpr (sizeof(To) == sizeof(T))
    return {from.raw};
  Pack<To, V> to;
#pragma unroll
  for (int i = 0; i < V; i++)
    to.set(i, fromFloat<To>(from.get(i)));
  return to;
}

/// How a warp walks over keys: a round is `unroll` times `keysPerWarp` keys, `lanes` lanes a key.
template <typename C> struct DecodeKeys {
  using Kv = typename C::Kv;
  static constexpr int v =
      vectorWidth(C::HeadDim, minInt(elementsPer16Bytes<typename C::X>(),
                                     C::Aligned ? elementsPer16Bytes<Kv>() : 4));
  static constexpr int vectors = C::HeadDim / v;
  static constexpr int lanes = vectors > 16  ? 32
                               : vectors > 8 ? 16
                               : vectors > 4 ? 8
                               : vectors > 2 ? 4
                                             : vectors;
  static constexpr int perLane = ceilDiv(vectors, lanes); // vectors of a lane
  static constexpr int keysPerWarp = 32 / lanes;
  static constexpr int unroll = perLane > 1 ? 2 : 4;
  // A chunk of the ring is what a round takes: keys, values, then the scales of either.
  static constexpr int chunk = keysPerWarp * unroll;
  static constexpr int partBytes = chunk * C::HeadDim * (int)sizeof(Kv);
  static constexpr int scaleBytes = sizeof(Kv) == 1 ? chunk * 4 : 0;
  static constexpr int chunkBytes = 2 * (partBytes + scaleBytes);
  static constexpr int ringBytes = C::Warps * C::Ring * chunkBytes;
  static_assert(C::HeadDim <= 1024);
  static_assert(C::Ring == 0 || (C::Append && C::HeadDim * sizeof(Kv) % 16 == 0 &&
                                 (scaleBytes == 0 || chunk % 4 == 0)));
};

/// Merges the states of the Splits blocks of a query and head, of which this is number `split`. From
/// sm_90 on those of a cluster send each other their parts; each block merges a share of the elements.
template <typename C> struct MergeSplits {
  static constexpr int D = C::HeadDim, threads = 32 * C::Warps, share = ceilDiv(D, C::Splits);
#if __CUDA_ARCH__ >= 900
  static constexpr bool cluster = C::Cluster && C::Splits > 1;
  struct Received {
    Barrier arrived;
    float part[C::Splits][2 + share]; // maximum, sum, output
  };
  static __device__ __forceinline__ Received &received() {
    __shared__ Received r;
    return r;
  }
#else
  static constexpr bool cluster = false;
#endif

  /// Called by all threads before the block's work.
  static __device__ __forceinline__ void begin(int split) {
#if __CUDA_ARCH__ >= 900
    if constexpr (cluster) {
      if (threadIdx.x == 0) {
        Barrier &arrived = received().arrived;
        arrived.init(1);
        fenceBarrierInit();
        arrived.expect(C::Splits * (2 + maxInt(0, minInt(share, D - split * share))) * 4);
      }
      asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    }
#endif
  }
  /// Stores the result in `to`. The block has the maximum `top` (base 2), the sum and, by blockOut(d),
  /// the unnormalised output; `parts` f32[Splits,HeadDim+2] and `counter` are as in the kernel.
  template <typename Given, typename BlockOut>
  static __device__ __forceinline__ void end(typename C::Y *to, float *parts, unsigned *counter,
                                             int split, float top, float sum, const Given &given,
                                             BlockOut &&blockOut) {
    auto result = [&](float o, float sum) {
      float v[1] = {sum > 0.0f ? o / sum : 0.0f};
      given.apply(v);
      return fromFloat<typename C::Y>(v[0]);
    };
    // Element d over all splits; part(i, at) is number `at` of {maximum, sum, out...} of split i.
    auto merged = [&](auto &&part, int d) {
      float maxima[C::Splits], top = negativeInfinity(), sum = 0.0f, o = 0.0f;
#pragma unroll
      for (int i = 0; i < C::Splits; i++) {
        maxima[i] = part(i, 0);
        top = fmaxf(top, maxima[i]);
      }
#pragma unroll
      for (int i = 0; i < C::Splits; i++) {
        const float keep = SoftmaxState<1>::rescale(maxima[i], top);
        sum += part(i, 1) * keep;
        o += part(i, 2 + d) * keep;
      }
      return result(o, sum);
    };
    if constexpr (C::Splits == 1) {
      for (int d = threadIdx.x; d < D; d += threads)
        to[d] = result(blockOut(d), sum);
    } else if constexpr (cluster) {
#if __CUDA_ARCH__ >= 900
      asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); // all have begun
      Received &r = received();
      if (threadIdx.x < C::Splits)
        sendToCluster<2>(r.part[split], {top, sum}, threadIdx.x, r.arrived);
      for (int d = threadIdx.x; d < D; d += threads)
        sendToCluster<1>(r.part[split] + 2 + d % share, {blockOut(d)}, d / share, r.arrived);
      r.arrived.wait(0);
      for (int d = threadIdx.x; d < share && split * share + d < D; d += threads)
        to[split * share + d] = merged([&](int i, int at) { return r.part[i][at]; }, d);
#endif
    } else {
      for (int d = threadIdx.x; d < D; d += threads)
        __stcg(parts + split * (D + 2) + 2 + d, blockOut(d));
      if (threadIdx.x == 0) {
        __stcg(parts + split * (D + 2), top);
        __stcg(parts + split * (D + 2) + 1, sum);
      }
      if (!arriveLast(counter, C::Splits))
        return;
      for (int d = threadIdx.x; d < D; d += threads)
        to[d] = merged([&](int i, int at) { return __ldcg(parts + i * (D + 2) + at); }, d);
    }
  }
};

namespace tile {

template <typename C, typename Given>
__device__ __forceinline__ void
attentionDecode(const typename C::X *qkv, typename C::Kv *kv, typename C::Y *out, const int *past,
                const int *keyMask, const int *length, float *partial, unsigned *counters,
                int layer, int batchMax, int context, int seq, int maskStride, float scale,
                int split, int h, i64 row, char *shared, const Given &given) {
  using X = typename C::X;
  using Kv = typename C::Kv;
  using K = DecodeKeys<C>;
  static_assert(!C::Last || (C::Ring == 0 && (!C::Append || sizeof(Kv) > 1)));
  constexpr int width = C::Heads * C::HeadDim;
  constexpr int v = K::v, vectors = K::vectors, lanes = K::lanes, perLane = K::perLane;
  constexpr int keysPerWarp = K::keysPerWarp, unroll = K::unroll;
  constexpr int elements = perLane * v;
#if __CUDA_ARCH__ >= 900
  constexpr bool ring = C::Ring > 0;
#else
  constexpr bool ring = false;
#endif

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / lanes, member = lane % lanes;
  const i64 b = C::Last ? row : row / seq;
  const int s = C::Last ? max(1, min(length[b], seq)) - 1 : (int)(row % seq);
  MergeSplits<C>::begin(split);
  if constexpr (!C::Append) {
    waitForPredecessor();
    releaseSuccessor();
  }
  const int begin = past != nullptr ? past[b] : 0;
  const int seen = C::Causal ? begin + s + 1 : begin + seq;
  int keys = C::Last && C::Append ? begin + seq : seen;
  if (!C::Append)
    keys = min(keys, context);

  constexpr int qkvRow = width + 2 * C::KvHeads * C::HeadDim;
  static_assert(!C::Append || C::KvHeads == C::Heads);
  const int keyHead = h / (C::Heads / C::KvHeads);
  const X *token = qkv + (b * seq + s) * qkvRow + h * C::HeadDim;
  const X *fresh = qkv + b * seq * qkvRow + width + h * C::HeadDim;
  constexpr bool int8 = sizeof(Kv) == 1;
  constexpr int kept = kvRow<Kv>(C::HeadDim);
  Kv *keyCache = kv + kvOffset(layer, 0, b, keyHead, batchMax, C::KvHeads, context, kept);
  Kv *valueCache = kv + kvOffset(layer, 1, b, keyHead, batchMax, C::KvHeads, context, kept);

#if __CUDA_ARCH__ >= 900
  // Chunks [firstChunk, endChunk) of the state are this split's, every Warps-th of them this warp's.
  constexpr int slotCount = maxInt(C::Ring, 1);
  __shared__ Barrier filled[C::Warps][slotCount];
  char *slots = shared + warp * C::Ring * K::chunkBytes;
  const int stored = min(begin, context), chunks = (stored + K::chunk - 1) / K::chunk;
  const int firstChunk = split * chunks / C::Splits, endChunk = (split + 1) * chunks / C::Splits;
  // Fetches the warp's chunk of that number into its slot.
  auto fetch = [&](int number) {
    const int at = (firstChunk + warp + number * C::Warps) * K::chunk;
    if (lane != 0 || at >= endChunk * K::chunk)
      return;
    const int count = min(K::chunk, stored - at), slot = number % slotCount;
    const int rowBytes = count * C::HeadDim * (int)sizeof(Kv);
    const int scaleBytes = int8 ? (count + 3) / 4 * 16 : 0;
    char *to = slots + slot * K::chunkBytes;
    Barrier &barrier = filled[warp][slot];
    barrier.expect(2 * (rowBytes + scaleBytes));
    copyBytes(to, keyCache + (i64)at * C::HeadDim, rowBytes, barrier);
    copyBytes(to + K::partBytes, valueCache + (i64)at * C::HeadDim, rowBytes, barrier);
    if constexpr (int8) {
      copyBytes(to + 2 * K::partBytes, kvScales(keyCache, context, C::HeadDim) + at, scaleBytes,
                barrier);
      copyBytes(to + 2 * K::partBytes + K::scaleBytes,
                kvScales(valueCache, context, C::HeadDim) + at, scaleBytes, barrier);
    }
  };
  if constexpr (ring) {
    if (lane == 0) {
      for (int i = 0; i < C::Ring; i++)
        filled[warp][i].init(1);
      fenceBarrierInit();
    }
    __syncwarp();
    for (int i = 0; i < C::Ring; i++)
      fetch(i);
    waitForPredecessor();
    releaseSuccessor();
  }
#endif

  const int each = (keys + C::Splits - 1) / C::Splits;
  const int first = split * each, last = min(first + each, keys);
  if constexpr (C::Append && !ring) {
    const int end = min(last, min(begin, context));
    const i64 bytes = (i64)(end - first) * C::HeadDim * (int)sizeof(Kv);
    if (threadIdx.x % 32 == 0 && warp < 2)
      prefetchBytes((warp == 0 ? keyCache : valueCache) + (i64)first * C::HeadDim, bytes);
    waitForPredecessor();
    releaseSuccessor();
  }

  auto inside = [&](int i) { return vectors % lanes == 0 || i * lanes + member < vectors; };
  auto offset = [&](int i) { return (i * lanes + member) * v; };

  float q[elements];
#pragma unroll
  for (int i = 0; i < perLane; i++) {
    float part[v] = {};
    if (inside(i))
      loadFloats<v>(token + offset(i), part);
#pragma unroll
    for (int d = 0; d < v; d++)
      q[i * v + d] = part[d] * scale * 1.4426950408889634f;
  }

  if constexpr (C::Append && int8) {
    static_assert(C::Warps >= 2);
    if (split == C::Splits - 1 && begin + s < context && warp < 2)
      storeQuantisedRow<C::HeadDim>(warp == 0 ? keyCache : valueCache, context, begin + s,
                                    token + (warp + 1) * width);
  } else if constexpr (C::Append && !C::Last) {
    const bool stores = split == C::Splits - 1 && begin + s < context;
    for (int i = threadIdx.x * v; stores && i < 2 * C::HeadDim; i += 32 * C::Warps * v) {
      int part = i / C::HeadDim, d = i % C::HeadDim;
      float a[v];
      loadFloats<v>(token + (part + 1) * width + d, a);
      storeFloats<v>((part == 0 ? keyCache : valueCache) + (i64)(begin + s) * C::HeadDim + d, a);
    }
  }

  // Takes a round of keys, of which this lane has base + i * step + group, into the state; rows(j) is
  // {key, value} of position j. All loads of a round are issued before the first is used, so none is
  // conditional: keys from `to` on are the last one again, hidden.
  SoftmaxState<elements> state;
  auto round = [&](int base, int step, int to, auto &&rows) {
    using T = typename decltype(rows(0))::Element;
    Pack<T, v> key[unroll][perLane], value[unroll][perLane];
    float keyScale[unroll], valueScale[unroll];
    bool visible[unroll];
#pragma unroll
    for (int u = 0; u < unroll; u++) {
      const int j = base + u * step + group, k = min(j, to - 1);
      visible[u] = j < min(to, seen) &&
                   (!C::Mask || keyMask == nullptr || keyMask[b * maskStride + k] != 0);
      const KeyValue<T> at = rows(k);
#pragma unroll
      for (int i = 0; i < perLane; i++) {
        key[u][i] = loadPack<v>(at.key + (inside(i) ? offset(i) : 0));
        value[u][i] = loadPack<v>(at.value + (inside(i) ? offset(i) : 0));
      }
      keyScale[u] = sizeof(T) == 1 ? *at.keyScale : 1.0f;
      valueScale[u] = sizeof(T) == 1 ? *at.valueScale : 1.0f;
    }
    if constexpr (C::Last && C::Append) {
#pragma unroll
      for (int u = 0; u < unroll; u++)
        if (const int j = base + u * step + group; j >= begin && j < min(to, context))
#pragma unroll
          for (int i = 0; i < perLane; i++)
            if (inside(i)) {
              const i64 at = (i64)j * C::HeadDim + offset(i);
              storeWhole(keyCache + at, convertPack<Kv>(key[u][i]));
              storeWhole(valueCache + at, convertPack<Kv>(value[u][i]));
            }
    }
    if constexpr (int8 && sizeof(T) > 1) {
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        roundToInt8<lanes>(key[u]);
        roundToInt8<lanes>(value[u]);
      }
    }
    float score[unroll], top = state.max;
#pragma unroll
    for (int u = 0; u < unroll; u++) {
      float dot = 0.0f;
#pragma unroll
      for (int d = 0; d < elements; d++)
        dot = fmaf(q[d], key[u][d / v].get(d % v), dot);
      dot = warpReduce<Sum, lanes>(dot);
      dot *= keyScale[u];
      score[u] = visible[u] ? dot : negativeInfinity();
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
  };
  // The keys [from, to), shared by the warps.
  auto attend = [&](int from, int to, auto &&rows) {
    for (int base = from + warp * keysPerWarp; base < to; base += K::chunk * C::Warps)
      round(base, keysPerWarp * C::Warps, to, rows);
  };
  auto cached = [&](int j) {
    return KeyValue<Kv>{keyCache + (i64)j * C::HeadDim, valueCache + (i64)j * C::HeadDim,
                        kvScales(keyCache, context, C::HeadDim) + j,
                        kvScales(valueCache, context, C::HeadDim) + j};
  };
  auto appended = [&](int j) {
    const X *at = fresh + (i64)(j - begin) * qkvRow;
    return KeyValue<X>{at, at + width, nullptr, nullptr};
  };
  if constexpr (ring) {
#if __CUDA_ARCH__ >= 900
    if (split == C::Splits - 1)
      attend(begin, keys, appended);
    for (int i = 0;; i++) {
      const int chunk = firstChunk + warp + i * C::Warps;
      if (chunk >= endChunk)
        break;
      filled[warp][i % slotCount].wait(i / slotCount % 2);
      const char *slot = slots + i % slotCount * K::chunkBytes;
      const int at = chunk * K::chunk;
      round(at, keysPerWarp, min(at + K::chunk, stored), [&](int j) {
        const Kv *key = reinterpret_cast<const Kv *>(slot) + (j - at) * C::HeadDim;
        const float *scales = reinterpret_cast<const float *>(slot + 2 * K::partBytes) + j - at;
        return KeyValue<Kv>{key, key + K::chunk * C::HeadDim, scales, scales + K::chunk};
      });
      __syncwarp();
      fetch(i + C::Ring);
    }
#endif
  } else if constexpr (!C::Append) {
    attend(first, last, cached);
  } else if constexpr (sizeof(X) == sizeof(Kv)) {
    attend(first, last, [&](int j) { return j < begin ? cached(j) : appended(j); });
  } else {
    attend(first, min(last, begin), cached);
    attend(max(first, begin), last, appended);
  }

  mergeLanes<lanes>(state);

  // Warps of the block.
  __shared__ float warpMax[C::Warps], warpSum[C::Warps], warpOut[C::Warps][C::HeadDim];
  if (lane == 0) {
    warpMax[warp] = state.max;
    warpSum[warp] = state.sum;
  }
  if (group == 0)
#pragma unroll
    for (int i = 0; i < perLane; i++)
      if (inside(i))
#pragma unroll
        for (int d = 0; d < v; d++)
          warpOut[warp][offset(i) + d] = state.out[i * v + d];
  __syncthreads();
  float top = negativeInfinity(), sum = 0.0f;
#pragma unroll
  for (int w = 0; w < C::Warps; w++)
    top = fmaxf(top, warpMax[w]);
#pragma unroll
  for (int w = 0; w < C::Warps; w++)
    sum += warpSum[w] * state.rescale(warpMax[w], top);
  auto blockOut = [&](int d) {
    float o = 0.0f;
#pragma unroll
    for (int w = 0; w < C::Warps; w++)
      o += warpOut[w][d] * state.rescale(warpMax[w], top);
    return o;
  };
  MergeSplits<C>::end(out + row * width + h * C::HeadDim,
                 partial + ((row * C::Heads + h) * C::Splits) * (C::HeadDim + 2),
                 counters + row * C::Heads + h, split, top, sum, given, blockOut);
}

} // namespace tile
} // namespace gpt2c
