// layer_norm and rms_norm over the last axis. A row belongs to Threads threads: a block of its own,
// or with Rows > 1 a warp of a block that has that many rows.
//   sum = x + residual                       (with a residual; stored to `sum` when that is not
//   null) layer: y = (sum - mean) / sqrt(mean((sum - mean)^2) + epsilon) * gain + shift rms:   y =
//   sum / sqrt(mean(sum^2) + epsilon) * gain + shift
// fp32 statistics in two passes over registers: the row is read once.
//
// Y of signed char or Fp8: y is quantised (int8.cuh), with a scale for each row, or with one that
// is given.
//
// Config: X (x, residual, sum), P (gain, shift): float or __half; Y: either, or of a byte; D
// (static); Threads (32 with Rows > 1); Rows; Rms; Residual. Kernel: x X[rows,D], residual
// X[rows,D], gain P[D], shift P[D] or null, y Y[rows,D], yScale f32[rows] (of a byte, no scale
// given), sum X[rows,D] or null, epsilon, rows. Grid: ceil(rows / Rows); block: Threads Rows.
// Bytes: rows D (sizeof(X) + sizeof(Y), + 2 sizeof(X) with residual and sum); flops: about 8 rows
// D.
#pragma once

#include "templates/device/int8.cuh"

namespace gpt2c::tile {

/// The block's rows among all of them.
struct NormRows {
  i64 rows, block;
};

template <typename C, typename Given = quantised::AsTheyAre>
__device__ __forceinline__ void layerNorm(const typename C::X *x, const typename C::X *residual,
                                          const typename C::P *__restrict__ gain,
                                          const typename C::P *__restrict__ shift, typename C::Y *y,
                                          float *yScale, typename C::X *sum, float epsilon,
                                          NormRows place, const Given &given = {}) {
  const i64 rows = place.rows, block = place.block;
  static_assert(C::Rows == 1 || C::Threads == 32);
  using X = typename C::X;
  constexpr bool quantise = Operand<typename C::Y>::scaled && !Given::quantises;
  // Every thread gets work before vectors widen.
  constexpr int widest = minInt(elementsPer16Bytes<X>(), floorPowerOfTwo(C::D / C::Threads));
  constexpr int v = vectorWidth(C::D, widest);
  constexpr int chunks = ceilDiv(C::D, C::Threads * v);
  // A lane's gain and shift wait in registers for the row where there are registers to spare.
  using P = typename C::P;
  constexpr bool early = C::Threads == 32 && C::D % (32 * v) == 0 && v * sizeof(P) <= 16 &&
                         2 * C::D / 32 * sizeof(P) <= 128;
  __shared__ float scratch[32];
  const int thread = threadIdx.x % C::Threads;
  const i64 row = block * C::Rows + threadIdx.x / C::Threads;
  Pack<P, v> gains[early ? chunks : 1], shifts[early ? chunks : 1] = {};
  if constexpr (early) {
#pragma unroll
    for (int i = 0; i < chunks; i++) {
      gains[i] = loadPack<v>(gain + (i * 32 + thread) * v);
      if (shift != nullptr)
        shifts[i] = loadPack<v>(shift + (i * 32 + thread) * v);
    }
  } else {
    prefetchVector<C::Threads * C::Rows>(gain, C::D);
    if (shift != nullptr)
      prefetchVector<C::Threads * C::Rows>(shift, C::D);
  }
  waitForPredecessor();
  releaseSuccessor();
  if (C::Rows > 1 && row >= rows)
    return;

  float value[chunks][v];
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < chunks; i++) {
    int col = (i * C::Threads + thread) * v;
    if (col >= C::D)
      continue;
    loadFloats<v>(x + row * C::D + col, value[i]);
    if constexpr (C::Residual) {
      float r[v];
      loadFloats<v>(residual + row * C::D + col, r);
#pragma unroll
      for (int j = 0; j < v; j++)
        value[i][j] += r[j];
      if (sum != nullptr)
        storeFloats<v>(sum + row * C::D + col, value[i]);
    }
#pragma unroll
    for (int j = 0; j < v; j++)
      total += value[i][j];
  }
  float mean = 0.0f;
  if constexpr (!C::Rms)
    mean = blockReduce<Sum, C::Threads>(total, scratch) * (1.0f / C::D);
  float square = 0.0f;
#pragma unroll
  for (int i = 0; i < chunks; i++) {
    if ((i * C::Threads + thread) * v >= C::D)
      continue;
#pragma unroll
    for (int j = 0; j < v; j++)
      square += (value[i][j] - mean) * (value[i][j] - mean);
  }
  const float scale =
      rsqrtf(blockReduce<Sum, C::Threads>(square, scratch) * (1.0f / C::D) + epsilon);
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < chunks; i++) {
    int col = (i * C::Threads + thread) * v;
    if (col >= C::D)
      continue;
    float g[v], b[v] = {};
    if constexpr (early) {
#pragma unroll
      for (int j = 0; j < v; j++) {
        g[j] = gains[i].get(j);
        b[j] = shifts[i].get(j);
      }
    } else {
      loadFloats<v>(gain + col, g);
      if (shift != nullptr)
        loadFloats<v>(shift + col, b);
    }
#pragma unroll
    for (int j = 0; j < v; j++)
      value[i][j] = (value[i][j] - mean) * scale * g[j] + b[j];
    if constexpr (quantise) {
#pragma unroll
      for (int j = 0; j < v; j++)
        largest = fmaxf(largest, fabsf(value[i][j]));
    } else {
      given.apply(value[i]);
      storeFloats<v>(y + row * C::D + col, value[i]);
    }
  }
  if constexpr (quantise) {
    const float s = quantised::scale<typename C::Y>(blockReduce<Max, C::Threads>(largest, scratch)),
                inverse = quantised::inverse(s);
#pragma unroll
    for (int i = 0; i < chunks; i++) {
      int col = (i * C::Threads + thread) * v;
      if (col < C::D)
        quantised::store(y + row * C::D + col, value[i], inverse);
    }
    if (thread == 0)
      yScale[row] = s;
  }
}

} // namespace gpt2c::tile
