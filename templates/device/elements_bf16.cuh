// bfloat16 as an element type: conversions, and the matrix instruction. Apart from the others
// because its header is large: a kernel with such a parameter includes it behind its template.
#pragma once

#include "templates/device/elements.cuh"
#include "templates/device/mma.cuh"

#include <cuda_bf16.h>

/// In the namespace of the type, where templates that were read before find it by their argument.
__device__ __forceinline__ float toFloat(__nv_bfloat16 v) { return __bfloat162float(v); }

namespace gpt2c {

template <> __device__ __forceinline__ __nv_bfloat16 fromFloat<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}

template <> struct ComputeOf<__nv_bfloat16> {
  using Type = float;
};
template <> __device__ __forceinline__ float load<__nv_bfloat16>(const __nv_bfloat16 *p) {
  return __bfloat162float(*p);
}
template <> __device__ __forceinline__ void store<__nv_bfloat16>(__nv_bfloat16 *p, float v) {
  *p = __float2bfloat16_rn(v);
}

template <> struct Mma<__nv_bfloat16> {
  static constexpr bool bfloat = true;
  static constexpr unsigned ones = 0x3f803f80;
  static __device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, "
                 "%6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ unsigned pack(float lo, float hi) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<const unsigned *>(&v);
  }
  static __device__ __forceinline__ float2 unpack(unsigned pair) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&pair));
  }
  static __device__ __forceinline__ unsigned scaled(unsigned pair, float lo, float hi) {
    const __nv_bfloat162 v =
        __hmul2(*reinterpret_cast<const __nv_bfloat162 *>(&pair), __floats2bfloat162_rn(lo, hi));
    return *reinterpret_cast<const unsigned *>(&v);
  }
};

/// The four bits with their sign flipped are low bits of 128 + (value + 8).
template <>
__device__ __forceinline__ uint4 Operand<Int4x8>::pairs<__nv_bfloat16>(unsigned word,
                                                                       unsigned bias) {
  auto pair = [&](unsigned w) {
    const unsigned magic = masked<0x000f000f, 0x43084308>(w);
    const __nv_bfloat162 v = __hsub2(*reinterpret_cast<const __nv_bfloat162 *>(&magic),
                                     *reinterpret_cast<const __nv_bfloat162 *>(&bias));
    return *reinterpret_cast<const unsigned *>(&v);
  };
  return {pair(word), pair(word >> 4), pair(word >> 8), pair(word >> 12)};
}
template <> __device__ __forceinline__ unsigned Operand<Int4x8>::biasOf<__nv_bfloat16>(int zero) {
  return 0x43084308u + (unsigned)zero * 0x00010001u; // of 136 + zero, twice
}

} // namespace gpt2c
