// linear as a stage of a persistent kernel: y[N] = activate(norm(x)[K] * W[N,K]^T + bias) + residual
//
// A unit is eight columns of y, one for each warp; its rows of W come through the ring in chunks of
// Chunk elements. A warp keeps the sums of a round of units in its lanes and adds them up by
// exchange, so that four sums cost little more than one; the first warp finishes them all, so that
// neighbours are stored together. What is added to a sum, and the weights of the first round, are
// waited for before x is.
//
// x is a channel, or the parts of attention over Splits ranges of keys, merged as they are read.
//
// A step passes through its stages once: every instruction is paid for and few are repeated. All
// linears of a kernel therefore run one instance, with sizes and options in the record.
//
// Config: T (x, W, y, bias, residual: float or __half); P (gain and shift); D (K of a linear with a
// norm); K (the largest); Chunk, whole vectors of 16 bytes, which divides every K; Norm
// (NormKind); Splits and HeadDim; static float activate(int kind, float v).
// Record: LinearWord. Units: ceil(N / 8). Bytes: N K sizeof(W); flops: 2 N K.
#pragma once

#include "normalised_rows.cuh"
#include "persistent.cuh"
#include "token_ops.cuh"

namespace gpt2c::persistent {

/// Gain: null without a norm. Maxima: those of an x in parts, else null; see AttentionWord. Bias,
/// Residual: null or what is added. Logits: f32[N] in plain memory instead of y, of which the block
/// chooses the largest.
enum LinearWord {
  LinearX = FirstOwn,
  LinearY,
  LinearMaxima,
  LinearGain,
  LinearShift,
  LinearEpsilon,
  LinearBias,
  LinearResidual,
  LinearLogits,
};

#if __CUDA_ARCH__ >= 900

/// x from its channel to shared memory.
template <typename C>
__device__ __forceinline__ void receiveInput(typename C::T *to, const typename C::T *x, int k) {
  using T = typename C::T;
  constexpr int v = elementsPer16Bytes<T>(), each = ceilDiv(C::K / v, consumers);
  Pack<T, v> pack[each];
  const int count = k / v;
  if (threadIdx.x >= count)
    return;
  auto at = [&](int i) { return min(i * consumers + (int)threadIdx.x, count - 1) * v; };
  receive<each>(pack, [&](int i) { return x + at(i); });
#pragma unroll
  for (int i = 0; i < each; i++)
    storePack(to + at(i), pack[i]);
}

/// The same, normalised. Mean and sum of squared differences come from those of the parts that the
/// warps have (Chan, Golub, LeVeque 1979).
template <typename C, typename B>
__device__ __forceinline__ void receiveNormalised(const B &block, const Record &stage,
                                                  typename C::T *to, const typename C::T *x) {
  using T = typename C::T;
  using P = typename C::P;
  constexpr int v = 4, vectors = C::D / v, each = ceilDiv(vectors, consumers);
  const P *gain = stage.pointer<const P>(LinearGain), *shift = stage.pointer<const P>(LinearShift);
  auto inside = [&](int i) { return i * consumers + (int)threadIdx.x < vectors; };
  auto at = [&](int i) { return min(i * consumers + (int)threadIdx.x, vectors - 1) * v; };
  auto share = [](int warp) { // elements of a warp
    int n = 0;
#pragma unroll
    for (int i = 0; i < each; i++)
      n += max(0, min(32, vectors - i * consumers - warp * 32)) * v;
    return (float)n;
  };
  // Used, and so waited for, after x.
  Pack<P, v> g[each], b[each] = {};
#pragma unroll
  for (int i = 0; i < each; i++) {
    g[i] = loadPack<v>(gain + at(i));
    if (shift != nullptr)
      b[i] = loadPack<v>(shift + at(i));
  }
  Pack<T, v> pack[each];
  receive<each>(pack, [&](int i) { return x + at(i); });
  __syncwarp();
  float value[each][v], sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < each; i++)
#pragma unroll
    for (int j = 0; j < v; j++) {
      value[i][j] = inside(i) ? pack[i].get(j) : 0.0f;
      sum += value[i][j];
      squares += value[i][j] * value[i][j];
    }
  const float own = share(threadIdx.x / 32);
  float mean = 0.0f;
  if constexpr (sizeof(T) == 2) {
    // In one pass, whose loss, about 2^-24 mean^2 / variance, is below that of the input itself.
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(fullWarp, sum, offset);
      squares += __shfl_xor_sync(fullWarp, squares, offset);
    }
    if (C::Norm == NormKind::Layer && own > 0.0f) {
      mean = __fdividef(sum, own);
      squares -= sum * mean;
    }
  } else {
    if constexpr (C::Norm == NormKind::Layer)
      mean = warpReduce<Sum>(sum) / fmaxf(own, 1.0f);
    squares = 0.0f;
#pragma unroll
    for (int i = 0; i < each; i++)
#pragma unroll
      for (int j = 0; j < v; j++)
        squares += inside(i) ? (value[i][j] - mean) * (value[i][j] - mean) : 0.0f;
    squares = warpReduce<Sum>(squares);
  }
  if (threadIdx.x % 32 == 0)
    block.stats[threadIdx.x / 32] = float2{mean, squares};
  block.sync();
  float2 part[warps];
  mean = squares = 0.0f;
#pragma unroll
  for (int w = 0; w < warps; w++) {
    part[w] = block.stats[w];
    mean += part[w].x * (share(w) * (1.0f / C::D));
  }
#pragma unroll
  for (int w = 0; w < warps; w++)
    squares += part[w].y + share(w) * (part[w].x - mean) * (part[w].x - mean);
  const float scale = rsqrtf(squares * (1.0f / C::D) + stage.real(LinearEpsilon));
#pragma unroll
  for (int i = 0; i < each; i++) {
#pragma unroll
    for (int j = 0; j < v; j++)
      pack[i].set(j, fromFloat<T>((value[i][j] - mean) * scale * g[i].get(j) + b[i].get(j)));
    if (inside(i))
      storePack(to + at(i), pack[i]);
  }
}

/// The same for the parts of attention: x = sum_s w_s x_s / sum_s w_s, w_s = sum_s 2^(max_s - max).
template <typename C>
__device__ __forceinline__ void receiveParts(typename C::T *to, const typename C::T *x,
                                             const float *maxima, int k) {
  using T = typename C::T;
  constexpr int v = vectorWidth(C::HeadDim, 4), splits = C::Splits;
#pragma unroll 1
  for (int i = threadIdx.x; i < k / v; i += consumers) {
    const int head = i * v / C::HeadDim * splits;
    Pack<T, v> part[splits];
    Pack<float, 2> of[splits];
    Patience patience;
    bool all;
    do {
#pragma unroll
      for (int s = 0; s < splits; s++) {
        part[s] = loadChannel<v>(x + (head + s) * C::HeadDim + i * v % C::HeadDim);
        of[s] = loadChannel<2>(maxima + (head + s) * 2);
      }
      all = true;
#pragma unroll
      for (int s = 0; s < splits; s++)
        all = all && written(part[s]) && written(of[s]);
      patience.spend();
    } while (!all);
    float top = of[0].get(0), sum = 0.0f, merged[v] = {};
#pragma unroll
    for (int s = 1; s < splits; s++)
      top = fmaxf(top, of[s].get(0));
#pragma unroll
    for (int s = 0; s < splits; s++) {
      const float weight = of[s].get(1) * exp2f(of[s].get(0) - top);
      sum += weight;
#pragma unroll
      for (int j = 0; j < v; j++)
        merged[j] += weight * part[s].get(j);
    }
#pragma unroll
    for (int j = 0; j < v; j++)
      part[0].set(j, fromFloat<T>(__fdividef(merged[j], sum)));
    storePack(to + i * v, part[0]);
  }
}

#endif
} // namespace gpt2c::persistent

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

template <typename C, typename B>
__device__ __forceinline__ void linearStage(B &block, const persistent::Record &stage) {
  using namespace persistent;
  using T = typename C::T;
  constexpr int v = elementsPer16Bytes<T>(), perLane = ceilDiv(C::Chunk, 32 * v);
  static_assert(C::Chunk % v == 0 && C::K % C::Chunk == 0 && C::D % C::Chunk == 0);
  static_assert(C::K * (int)sizeof(T) <= B::Config::InputBytes);
  static_assert(unitRows * C::Chunk * (int)sizeof(T) <= B::Config::SlotBytes);
  static_assert(roundUnits <= B::Config::Slots && roundUnits * unitRows == 32);
  const int units = stage.integer(Units), n = stage.integer(WeightRows),
            k = stage.integer(RowBytes) / (int)sizeof(T), kind = stage.integer(Kind);
  int unit = stage.firstUnit();
  if (unit >= units)
    return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const T *bias = stage.pointer<const T>(LinearBias), *residual = nullptr;
  if (stage.word[LinearResidual] != 0)
    residual = block.template channel<const T>(stage, LinearResidual);
  float *logits = stage.pointer<float>(LinearLogits);
  T *y = block.template channel<T>(stage, LinearY);

  // Lane 8 i + c of the first warp finishes column c of unit i of the round.
  T addBias = {};
  Pack<T, 1> addResidual = {};
  auto column = [&] { return (unit + lane / 8 * block.blocks) * unitRows + lane % 8; };
  auto fetch = [&] {
    const int col = min(column(), n - 1);
    if (warp == 0 && bias != nullptr)
      addBias = bias[col];
    if (warp == 0 && residual != nullptr)
      addResidual = loadChannel<1>(residual + col);
  };
  fetch();
  const int chunks = k / C::Chunk;
  auto unitsOfRound = [&] {
    int count = 1;
#pragma unroll
    for (int i = 1; i < roundUnits; i++)
      count += unit + i * block.blocks < units;
    return count;
  };
  // One warp waits for all: the barrier before the products orders it with the others.
  int count = unitsOfRound(), ready = min(count * chunks, min(32, B::Config::Slots));
  if (warp == warps - 1)
    block.waitSlots(0, ready);
  T *x = block.template input<T>();
  const T *from = block.template channel<const T>(stage, LinearX);
  if (stage.word[LinearGain] != 0)
    receiveNormalised<C>(block, stage, x, from);
  else if (C::Splits > 1 && stage.word[LinearMaxima] != 0)
    receiveParts<C>(x, from, block.template channel<const float>(stage, LinearMaxima), k);
  else
    receiveInput<C>(x, from, k);
  block.sync();

  u64 best = 0;
#pragma unroll 1
  while (true) {
    float sums[roundUnits] = {};
#pragma unroll 1
    for (int k0 = 0; k0 < k; k0 += C::Chunk) {
      if (ready < count) {
        block.waitSlots(ready, count);
        ready = count;
      }
      // Lanes beyond the chunk multiply its last vector by zeros.
      auto inside = [&](int i) {
        return C::Chunk % (32 * v) == 0 || (i * 32 + lane) * v < C::Chunk;
      };
      auto at = [&](int i) { return inside(i) ? (i * 32 + lane) * v : C::Chunk - v; };
      float a[perLane][v];
#pragma unroll
      for (int i = 0; i < perLane; i++) {
        loadFloats<v>(x + k0 + at(i), a[i]);
#pragma unroll
        for (int j = 0; j < v; j++)
          a[i][j] = inside(i) ? a[i][j] : 0.0f;
      }
#pragma unroll
      for (int u = 0; u < roundUnits; u++) {
        if (u >= count)
          break;
        const T *w = reinterpret_cast<const T *>(block.ring(block.slotAt(u))) + warp * C::Chunk;
        float part[2] = {};
#pragma unroll
        for (int i = 0; i < perLane; i++) {
          const Pack<T, v> pack = loadPack<v>(w + at(i));
#pragma unroll
          for (int j = 0; j < v; j++)
            part[j % 2] = fmaf(pack.get(j), a[i][j], part[j % 2]);
        }
        sums[u] += part[0] + part[1];
      }
      block.releaseSlots(count);
      ready -= count;
    }
    // Each exchange halves the sums that a lane goes on with: lanes 8 i to 8 i + 7 end with sum i.
    const bool upper = lane & 16, odd = lane & 8;
    const float low = (upper ? sums[2] : sums[0]) +
                      __shfl_xor_sync(fullWarp, upper ? sums[0] : sums[2], 16);
    const float high = (upper ? sums[3] : sums[1]) +
                       __shfl_xor_sync(fullWarp, upper ? sums[1] : sums[3], 16);
    float sum = (odd ? high : low) + __shfl_xor_sync(fullWarp, odd ? low : high, 8);
    sum = warpReduce<Sum, 8>(sum);
    float *all = block.nextSums();
    if (lane % 8 == 0)
      all[lane + warp] = sum;
    block.sync();
    if (warp == 0) {
      const int col = column();
      sum = C::activate(kind, all[lane] + toFloat(addBias));
      if (residual != nullptr) {
        Patience patience;
        while (!written(addResidual)) {
          addResidual = loadChannel<1>(residual + min(col, n - 1));
          patience.spend();
        }
        sum += addResidual.get(0);
      }
      __syncwarp();
      const float next = __shfl_down_sync(fullWarp, sum, 1);
      const bool mine = lane / 8 < count && col < n;
      if (logits != nullptr) {
        if (mine) {
          logits[col] = sum;
          best = max(best, argmaxKey(sum, col));
        }
      } else if (mine && col + 1 < n) {
        if (lane % 2 == 0)
          publish(y + col, sum, next);
      } else if (mine && lane % 2 == 0) {
        publish(y + col, sum);
      }
    }
    unit += roundUnits * block.blocks;
    if (unit >= units)
      break;
    fetch();
    count = unitsOfRound();
    ready = 0;
  }
  if (logits != nullptr && warp == 0) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      best = max(best, __shfl_xor_sync(fullWarp, best, offset));
    if (lane == 0)
      *block.best = best;
  }
}

#endif
} // namespace gpt2c::tile
