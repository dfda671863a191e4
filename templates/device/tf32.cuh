// fp32 products on tensor cores: 3xTF32.
//
// The matrix unit reads the first 11 bits of a number's significand and ignores the rest. A number
// is x = high + low: high is x rounded to 11 bits, low what is left, at most 2^-11 |x| and at most
// 12 bits, of which the unit ignores one: 2^-23 |x|. Of the four products of two numbers all but
// low * low, at most 2^-22 |x w|, are added up, small ones first. So a product is wrong by at most
// 2^-21 of its size. (Error-corrected products on tensor cores: Markidis et al., 2018; Ootomo and
// Yokota, 2022.)
//
// The matrix unit truncates its sums where fp32 arithmetic rounds, which is a drift in one
// direction: it adds up short runs of K only, and their sums are added on the plain units. Over K
// 768 the error is then about half of that of fused multiply-adds, without that eleven times as
// large.
//
// NaN stays NaN; infinity, and a number of more than 2^128 (1 - 2^-12), becomes NaN.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c::tf32 {

/// N numbers, each as its high and its low part.
template <int N> struct Split {
  unsigned high[N], low[N];
  __device__ __forceinline__ void set(int i, unsigned bits) {
    high[i] = (bits + 0x1000u) & 0xffffe000u;
    low[i] = __float_as_uint(__uint_as_float(bits) - __uint_as_float(high[i]));
  }
};

/// c[16,8] (+)= a[16,8] * b[8,8]. Lane l holds a at rows l / 4 and l / 4 + 8 of column l % 4, then
/// of column l % 4 + 4; b at rows l % 4 and l % 4 + 4 of column l / 4; c at rows l / 4 and l / 4 +
/// 8, columns 2 * (l % 4) and the next. Without Add, c is overwritten.
template <bool Add = true>
__device__ __forceinline__ void mma1688(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                        unsigned b1) {
  if constexpr (Add)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

} // namespace gpt2c::tf32
