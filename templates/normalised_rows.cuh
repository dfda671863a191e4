// The rows of X in shared memory, normalised on the way when the config asks for it.
//
// layer_norm(x) = (x - mean) / sqrt(var + epsilon) * gain + shift, rms_norm without mean and shift;
// the statistics are fp32, the normalised row is rounded to X's type as a separate layer_norm would
// store it.
//
// Config: X, P (gain, shift), K (static), Warps, Norm.
#pragma once

#include "common.cuh"

namespace gpt2c {

enum class NormKind { None, Layer, Rms };

namespace tile {

/// Brings gain and shift, which are weights, into L2.
template <typename C>
__device__ __forceinline__ void prefetchNorm(const typename C::P *gain,
                                             const typename C::P *shift) {
  if constexpr (C::Norm != NormKind::None) {
    prefetchVector<32 * C::Warps>(gain, C::K);
    if (C::Norm == NormKind::Layer && shift != nullptr)
      prefetchVector<32 * C::Warps>(shift, C::K);
  }
}

/// Copies the m rows of x[m,K] to rows of `shared` that are Stride elements apart; one warp per
/// row. Ends without a barrier.
template <typename C, int Stride = C::K>
__device__ __forceinline__ void stageRows(typename C::X *shared, const typename C::X *x, int m,
                                          const typename C::P *gain, const typename C::P *shift,
                                          float epsilon) {
  using X = typename C::X;
  constexpr int v = vectorWidth(C::K, elementsPer16Bytes<X>()), perLane = ceilDiv(C::K, 32 * v);
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < m; row += C::Warps) {
    Pack<X, v> pack[perLane];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < perLane; i++) {
      int col = (i * 32 + lane) * v;
      if (C::K % (32 * v) == 0 || col < C::K) {
        pack[i] = loadPack<v>(x + row * C::K + col);
#pragma unroll
        for (int j = 0; j < v; j++)
          sum += pack[i].get(j);
      }
    }
    float mean = 0.0f, scale = 1.0f;
    if constexpr (C::Norm != NormKind::None) {
      mean = C::Norm == NormKind::Layer ? warpReduce<Sum>(sum) * (1.0f / C::K) : 0.0f;
      float square = 0.0f;
#pragma unroll
      for (int i = 0; i < perLane; i++)
        if (C::K % (32 * v) == 0 || (i * 32 + lane) * v < C::K)
#pragma unroll
          for (int j = 0; j < v; j++)
            square += (pack[i].get(j) - mean) * (pack[i].get(j) - mean);
      scale = rsqrtf(warpReduce<Sum>(square) * (1.0f / C::K) + epsilon);
    }
#pragma unroll
    for (int i = 0; i < perLane; i++) {
      int col = (i * 32 + lane) * v;
      if (C::K % (32 * v) == 0 || col < C::K) {
        if constexpr (C::Norm != NormKind::None) {
          float g[v], b[v] = {};
          loadFloats<v>(gain + col, g);
          if (C::Norm == NormKind::Layer && shift != nullptr)
            loadFloats<v>(shift + col, b);
#pragma unroll
          for (int j = 0; j < v; j++)
            pack[i].set(j, fromFloat<X>((pack[i].get(j) - mean) * scale * g[j] + b[j]));
        }
        storePack(shared + row * Stride + col, pack[i]);
      }
    }
  }
}

} // namespace tile
} // namespace gpt2c
