// The middle of an MLP, and the vocabulary, for persistent_clusters.cuh.
#pragma once

#include "persistent_cluster_step.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// The block's part of an MLP behind `receive` and `store`.
template <typename C> __device__ __forceinline__ void Step<C>::mlp(const Record &half) {
  auto &sums = shared.mlp;
  u64 *const arrived = &shared.arrived[AtMlp];
  // Each half of the columns of a tile is a warp's.
  constexpr int outTiles = L::slice / 16, columns = L::hidden / 2;
  static_assert(2 * outTiles == warps);
  constexpr int middle = ceilDiv(L::hidden / 2, 32); // warps that finish the hidden columns
  static_assert(middle <= warps);
  const int pair = threadIdx.x, tile = warp % outTiles, part = warp / outTiles;
  Constants c;
  if (warp < middle)
    c = constants(half, cluster * L::hidden + 2 * pair);
  const float2 outScales = secondScales(half, tile);
  Tile<columns, L::hidden> weights;
  if constexpr (halves)
    load(weights, 0, tile, part * columns);
  waitArrival(arrived, turn & 1);
  if (threadIdx.x == 0)
    persistent::barrierExpect(arrived, ranks * (L::hidden * 4 + 8));
  if (warp < middle) {
    const float2 v = gather(sums.sum, 2 * pair, c, moments(sums.statistics, half));
    float out[2] = {v.x, v.y};
    C::activate(out);
    storeFloats<2>(shared.hidden + 2 * pair, out);
  }
  sync<3, warps>();
  if constexpr (!halves)
    load(weights, 0, tile, part * columns);
  float2 sum = weights.multiply(vectorIn(shared.hidden + part * columns));
  if (part == 1 && t == 0)
    shared.half[tile][g] = sum;
  advance(L::outputSlots);
  sync<3, warps>();
  if (part == 0) {
    const float2 other = shared.half[tile][g];
    publish(half, tile, {sum.x + other.x, sum.y + other.y}, outScales);
  }
}

/// The logits of the groups of 8 rows that come through the ring, and the best of them.
template <typename C> __device__ __forceinline__ void Step<C>::vocabulary(const Record &record) {
  constexpr int vector = elementsPer16Bytes<T>(), pieces = C::D / (4 * vector);
  u64 *const arrived = &shared.arrived[AtWhole];
  // The slice in pieces of 16 bytes, to all blocks.
  constexpr int vectors = L::slice / vector;
  for (int i = threadIdx.x; i < vectors * ranks; i += warps * 32)
    send(remote(sharedAddress(&shared.whole.x[rank * L::slice + i / ranks * vector]), i % ranks),
         reinterpret_cast<const uint4 *>(shared.x)[i / ranks],
         remote(sharedAddress(arrived), i % ranks));
  waitArrival(arrived, (turn / ((C::Records - 3) / 2) & 1) ^ 1);
  if (threadIdx.x == 0)
    persistent::barrierExpect(arrived, C::D * (int)sizeof(T) + ranks * 8);
  const Moments m = moments(shared.whole.statistics, record);
  u64 best = 1; // less than that of any logit
  auto x = vectorIn(shared.whole.x);
  float *const logits = record.pointer<float>(Second);
  // A slot of the ring is always the same warp's: none waits for a slot that another has yet to
  // read.
  const int begin = slot;
  const unsigned beginLap = lap;
  if (warp < readers) {
    advance((warp - slot % readers + readers) % readers);
#pragma unroll 1
    while (true) {
      waitSlot(0);
      const int unit = shared.unit[slot], row = unit * 8;
      if (unit < 0)
        break;
      const W *rows = reinterpret_cast<const W *>(shared.ring[slot]);
      float v[2];
      if constexpr (halves) {
        auto ofRows = [&](int word) {
          return persistent::loadEarly(record.pointer<const float>(word) +
                                       min(row + 2 * t, (C::Vocab - 1) / 2 * 2));
        };
        const float2 sums = C::FinalNorm == NormKind::Layer ? ofRows(FirstSums) : float2{},
                     bias = ofRows(FirstBias),
                     scales = sizeof(W) == 1 ? ofRows(FirstScales) : float2{1.0f, 1.0f};
        float sum[4][4] = {};
#pragma unroll 8
        for (int p = 0; p < pieces; p++) {
          const uint4 a = x(p);
          const unsigned low[4] = {a.x, a.x, a.y, a.y}, high[4] = {a.z, a.z, a.w, a.w};
          const W *at = rows + g * C::D + (p * 4 + t) * vector;
          uint4 w;
          if constexpr (sizeof(W) == 1) {
            const uint2 word = *reinterpret_cast<const uint2 *>(at);
            const quantised::HalfPairs u = quantised::halves(word.x), o = quantised::halves(word.y);
            w = {u.low, u.high, o.low, o.high};
          } else {
            w = *reinterpret_cast<const uint4 *>(at);
          }
          mma16816(sum[2 * p % 4], low, w.x, w.y);
          mma16816(sum[(2 * p + 1) % 4], high, w.z, w.w);
        }
        v[0] = (sum[0][0] + sum[1][0]) + (sum[2][0] + sum[3][0]);
        v[1] = (sum[0][1] + sum[1][1]) + (sum[2][1] + sum[3][1]);
        v[0] = fmaf((v[0] - m.mean * sums.x) * m.scale, scales.x, bias.x);
        v[1] = fmaf((v[1] - m.mean * sums.y) * m.scale, scales.y, bias.y);
      } else {
        float sum = 0.0f;
#pragma unroll 4
        for (int p = 0; p < pieces; p++) {
          const uint4 a = x(p);
          const W *at = rows + g * C::D + (p * 4 + t) * vector;
          float w[vector];
          loadFloats<vector>(at, w);
          sum = fmaf(w[0], __uint_as_float(a.x), sum);
          sum = fmaf(w[1], __uint_as_float(a.y), sum);
          sum = fmaf(w[2], __uint_as_float(a.z), sum);
          sum = fmaf(w[3], __uint_as_float(a.w), sum);
        }
        sum = warpReduce<Sum, 4>(sum);
        const int at = min(row + g, C::Vocab - 1);
        const float scale =
            sizeof(W) == 1 ? __ldg(record.pointer<const float>(FirstScales) + at) : 1.0f;
        sum = fmaf((sum - m.mean * __ldg(record.pointer<const float>(FirstSums) + at)) * m.scale,
                   scale, __ldg(record.pointer<const float>(FirstBias) + at));
        v[0] = __shfl_sync(fullWarp, sum, 8 * t);
        v[1] = __shfl_sync(fullWarp, sum, 8 * t + 4);
      }
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int at = row + 2 * t + j;
        if (at < C::Vocab) {
          if (g == 0)
            logits[at] = v[j];
          best = max(best, tile::argmaxKey(v[j], at));
        }
      }
      __syncwarp();
      if (lane == 0)
        persistent::barrierArrive(&shared.empty[slot]);
      advance(readers);
    }
    if (lane == 0)
      persistent::barrierArrive(&shared.empty[slot]);
    slot = begin;
    lap = beginLap;
  }
#pragma unroll
  for (int offset = 2; offset > 0; offset /= 2)
    best = max(best, __shfl_xor_sync(fullWarp, best, offset));
  if (lane == 0)
    shared.best[warp] = best;
}
#endif
} // namespace gpt2c::clusters
