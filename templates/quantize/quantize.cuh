// quantize: q = x * (1 / s) as int8.cuh has it for Q, with s of each group of D neighbouring
// elements, or one scale for all.
//
// Config: X (float or __half), Q (i8 or Fp8), D (static; at most 8192 unless Static), Warps,
// Static.
// Kernel: x X[groups,D], q Q[groups,D], scale f32[groups] (written; with Static f32[1], read),
// groups. Grid: ceil(groups / Warps); block: 32 * Warps. Bytes: groups (D (sizeof(X) + 1) + 4).
#pragma once

#include "templates/device/int8.cuh"

namespace gpt2c::tile {

template <typename C>
__device__ __forceinline__ void quantize(const typename C::X *x, typename C::Q *q, float *scale,
                                         i64 groups, int block) {
  constexpr int v = vectorWidth(C::D, elementsPer16Bytes<typename C::X>());
  constexpr int perLane = ceilDiv(C::D, 32 * v);
  const int lane = threadIdx.x % 32;
  const i64 group = (i64)block * C::Warps + threadIdx.x / 32;
  waitForPredecessor();
  releaseSuccessor();
  if (group >= groups)
    return;
  auto column = [&](int i) { return (i * 32 + lane) * v; };
  auto inside = [&](int i) { return C::D % (32 * v) == 0 || column(i) < C::D; };
  const typename C::X *from = x + group * C::D;
  using Q = typename C::Q;
  Q *to = q + group * C::D;
  if constexpr (C::Static) {
    const float inverse = quantised::inverse(scale[0]);
    for (int i = 0; i < perLane; i++)
      if (inside(i)) {
        float a[v];
        loadFloats<v>(from + column(i), a);
        quantised::clamp<Q>(a, inverse);
        quantised::store(to + column(i), a, inverse);
      }
    return;
  }
  float a[perLane][v], largest = 0.0f;
#pragma unroll
  for (int i = 0; i < perLane; i++)
    if (inside(i)) {
      loadFloats<v>(from + column(i), a[i]);
#pragma unroll
      for (int j = 0; j < v; j++)
        largest = fmaxf(largest, fabsf(a[i][j]));
    }
  const float s = quantised::scale<Q>(warpReduce<Max>(largest)), inverse = quantised::inverse(s);
#pragma unroll
  for (int i = 0; i < perLane; i++)
    if (inside(i))
      quantised::store(to + column(i), a[i], inverse);
  if (lane == 0)
    scale[group] = s;
}

// dequantize: y = (q - zero) s, with a scale for each D neighbouring elements, or one for all.
//
// Config: Q (i8, or another storage type that is scaled), Y (float or __half), D (static; of Int4x8
// a multiple of 8), Threads, One, Zeros. Kernel: q Q[groups,D], scale f32[groups], with Zeros zero
// i8[groups], y Y[groups,D], count (groups D). Grid: ceil(count / (Threads V)), V the largest power
// of two up to 16 that divides D; block: Threads.
// Bytes: those of q + count sizeof(Y).
template <typename C>
__device__ __forceinline__ void dequantize(const typename C::Q *q, const float *scale,
                                           const i8 *zero, typename C::Y *y, i64 count, int block) {
  using Stored = Operand<typename C::Q>;
  constexpr int v = vectorWidth(C::D, 16), each = Stored::each;
  static_assert(v % each == 0);
  const i64 at = ((i64)block * C::Threads + threadIdx.x) * v;
  waitForPredecessor();
  releaseSuccessor();
  if (at >= count)
    return;
  const Pack<typename C::Q, v / each> pack = loadPack<v / each>(q + at / each);
  const float s = scale[C::One ? 0 : at / C::D], z = C::Zeros ? (float)zero[at / C::D] : 0.0f;
  float a[v];
#pragma unroll
  for (int j = 0; j < v; j++)
    if constexpr (each > 1)
      a[j] = (Stored::at(pack.at(j / each).word, j % each) - z) * s;
    else
      a[j] = (pack.get(j) - z) * s;
  storeFloats<v>(y + at, a);
}

} // namespace gpt2c::tile
