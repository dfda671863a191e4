// The matrix instruction over 32 bytes of K for two-byte floats, by their type.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

/// multiply: c[16,8] += a[16,16] * b[16,8] as mma16816 (common.cuh) has them. pack: two numbers as
/// a register of a or b, the first lowest.
template <typename T> struct Mma;
template <> struct Mma<__half> {
  static __device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
    mma16816(c, a, b0, b1);
  }
  static __device__ __forceinline__ unsigned pack(float lo, float hi) { return packHalves(lo, hi); }
};

} // namespace gpt2c
