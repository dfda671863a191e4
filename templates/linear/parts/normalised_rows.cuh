// The rows of X in shared memory, normalised on the way when the config asks for it.
//
// layer_norm(x) = (x - mean) / sqrt(var + epsilon) * gain + shift, rms_norm without mean and shift;
// the statistics are fp32, the normalised row is rounded to X's type as a separate layer_norm would
// store it.
//
// Config: X, P (gain, shift), K (static), Warps, Norm; of quantised rows also XGroup.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/device/norm_kind.cuh"

namespace gpt2c {

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

/// The packs of a row that a lane holds: neighbouring ones belong to neighbouring lanes.
template <typename C> struct RowPacks {
  static constexpr int v = vectorWidth(C::K, elementsPer16Bytes<typename C::X>());
  static constexpr int count = ceilDiv(C::K, 32 * v);
  Pack<typename C::X, v> pack[count];

  static __device__ __forceinline__ int column(int i) {
    return (i * 32 + (int)(threadIdx.x % 32)) * v;
  }
  static __device__ __forceinline__ bool inside(int i) {
    return C::K % (32 * v) == 0 || column(i) < C::K;
  }

  /// Loads a row with one warp and normalises it.
  __device__ __forceinline__ void load(const typename C::X *row, const typename C::P *gain,
                                       const typename C::P *shift, float epsilon) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < count; i++)
      if (inside(i)) {
        pack[i] = loadPack<v>(row + column(i));
#pragma unroll
        for (int j = 0; j < v; j++)
          sum += pack[i].get(j);
      }
    if constexpr (C::Norm == NormKind::None)
      return;
    const float mean = C::Norm == NormKind::Layer ? warpReduce<Sum>(sum) * (1.0f / C::K) : 0.0f;
    float square = 0.0f;
#pragma unroll
    for (int i = 0; i < count; i++)
      if (inside(i))
#pragma unroll
        for (int j = 0; j < v; j++)
          square += (pack[i].get(j) - mean) * (pack[i].get(j) - mean);
    const float scale = rsqrtf(warpReduce<Sum>(square) * (1.0f / C::K) + epsilon);
#pragma unroll
    for (int i = 0; i < count; i++)
      if (inside(i)) {
        float g[v], b[v] = {};
        loadFloats<v>(gain + column(i), g);
        if (C::Norm == NormKind::Layer && shift != nullptr)
          loadFloats<v>(shift + column(i), b);
#pragma unroll
        for (int j = 0; j < v; j++)
          pack[i].set(j, fromFloat<typename C::X>((pack[i].get(j) - mean) * scale * g[j] + b[j]));
      }
  }
};

/// Copies the m rows of x[m,K] to rows of `shared` that are Stride elements apart; one warp per
/// row. Ends without a barrier.
template <typename C, int Stride = C::K>
__device__ __forceinline__ void stageRows(typename C::X *shared, const typename C::X *x, int m,
                                          const typename C::P *gain, const typename C::P *shift,
                                          float epsilon) {
  using Packs = RowPacks<C>;
  for (int row = threadIdx.x / 32; row < m; row += C::Warps) {
    Packs packs;
    packs.load(x + row * C::K, gain, shift, epsilon);
#pragma unroll
    for (int i = 0; i < Packs::count; i++)
      if (Packs::inside(i))
        storePack(shared + row * Stride + Packs::column(i), packs.pack[i]);
  }
}

/// The same, quantised (int8.cuh): rows of int8 in `shared`, their scales f32[m,K/XGroup] (XGroup
/// 0: f32[m]) in `scales`. XGroup is 64, 128 or 256 and divides K, a pack has 8 elements, or XGroup
/// is 0.
template <typename C, int Stride>
__device__ __forceinline__ void
stageQuantisedRows(i8 *shared, float *scales, const typename C::X *x, int m,
                   const typename C::P *gain, const typename C::P *shift, float epsilon) {
  using Packs = RowPacks<C>;
  constexpr int v = Packs::v, lanes = C::XGroup > 0 ? C::XGroup / v : 32;
  static_assert(C::XGroup == 0 || (lanes >= 2 && lanes <= 32 && C::XGroup % v == 0));
  for (int row = threadIdx.x / 32; row < m; row += C::Warps) {
    Packs packs;
    packs.load(x + row * C::K, gain, shift, epsilon);
    float largest[Packs::count], all = 0.0f;
#pragma unroll
    for (int i = 0; i < Packs::count; i++) {
      largest[i] = 0.0f;
      if (Packs::inside(i))
#pragma unroll
        for (int j = 0; j < v; j++)
          largest[i] = fmaxf(largest[i], fabsf(packs.pack[i].get(j)));
      all = fmaxf(all, largest[i]);
    }
    if constexpr (C::XGroup == 0)
      all = warpReduce<Max>(all);
#pragma unroll
    for (int i = 0; i < Packs::count; i++) {
      const float scale =
          quantised::scale(C::XGroup > 0 ? warpReduce<Max, lanes>(largest[i]) : all);
      if (Packs::inside(i)) {
        float a[v];
#pragma unroll
        for (int j = 0; j < v; j++)
          a[j] = packs.pack[i].get(j);
        const int column = Packs::column(i);
        quantised::store(shared + row * Stride + column, a, quantised::inverse(scale));
        if (C::XGroup > 0 && column % maxInt(C::XGroup, 1) == 0)
          scales[row * (C::K / maxInt(C::XGroup, 1)) + column / maxInt(C::XGroup, 1)] = scale;
        else if (column == 0)
          scales[row] = scale;
      }
    }
  }
}

} // namespace tile
} // namespace gpt2c
