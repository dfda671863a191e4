// The matrix instruction over 32 bytes of K for two-byte floats, by their type.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

/// multiply: c[16,8] += a[16,16] * b[16,8] as mma16816 (common.cuh) has them. A register of a or b
/// has two numbers, the first lowest: pack makes one, unpack takes it apart, scaled multiplies it
/// by two numbers that are rounded before, as the products are; `ones` has 1 twice.
template <typename T> struct Mma;
template <> struct Mma<__half> {
  static constexpr bool bfloat = false;
  static constexpr unsigned ones = 0x3c003c00;
  static __device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
    mma16816(c, a, b0, b1);
  }
  static __device__ __forceinline__ unsigned pack(float lo, float hi) { return packHalves(lo, hi); }
  static __device__ __forceinline__ float2 unpack(unsigned pair) {
    return __half22float2(*reinterpret_cast<const __half2 *>(&pair));
  }
  static __device__ __forceinline__ unsigned scaled(unsigned pair, float lo, float hi) {
    const __half2 v = __hmul2(*reinterpret_cast<const __half2 *>(&pair), __floats2half2_rn(lo, hi));
    return *reinterpret_cast<const unsigned *>(&v);
  }
};

} // namespace gpt2c
