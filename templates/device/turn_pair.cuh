// The rotation of a pair of elements, as all kernels do it: equal inputs give equal bits, whether a
// launch of its own, attention or the epilogue of a product turns them.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

/// (x, y) becomes (x c - y s, x s + y c).
__device__ __forceinline__ void turnPair(float &x, float &y, float c, float s) {
  const float v = x;
  x = fmaf(v, c, -__fmul_rn(y, s));
  y = fmaf(y, c, __fmul_rn(v, s));
}

} // namespace gpt2c
