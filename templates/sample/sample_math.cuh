// The functions that sampling rests on, with the bits of the host's: runtime/sampling/SampleMath.h and
// runtime/sampling/Random.h have formulas and bounds. Every operation is named, so that none is contracted
// to a fused one.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c::sampling {

__device__ __forceinline__ double logOf(double x) {
  constexpr double terms[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                              1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  const u64 bits = (u64)__double_as_longlong(x), mantissa = (1ull << 52) - 1;
  int e = (int)(bits >> 52) - 1023;
  double m = __longlong_as_double((i64)((bits & mantissa) | 1023ull << 52));
  if (m > 1.4142135623730951) {
    m = __dmul_rn(m, 0.5);
    e++;
  }
  const double s = __ddiv_rn(__dsub_rn(m, 1.0), __dadd_rn(m, 1.0)), square = __dmul_rn(s, s);
  double sum = terms[0];
#pragma unroll
  for (int i = 1; i < 11; i++)
    sum = __dadd_rn(__dmul_rn(sum, square), terms[i]);
  // ln 2 in two parts, the first with 32 bits: its product with e is exact.
  const double high = __longlong_as_double(0x3fe62e42fee00000ll),
               low = __longlong_as_double(0x3dea39ef35793c76ll);
  const double twice = __dadd_rn(s, s);
  const double rest =
      __dadd_rn(__dmul_rn(twice, __dmul_rn(square, sum)), __dmul_rn((double)e, low));
  return __dadd_rn(__dmul_rn((double)e, high), __dadd_rn(twice, rest));
}

__device__ __forceinline__ double gumbelOf(unsigned word) {
  const double u = __dmul_rn(__dadd_rn((double)word, 0.5), 1.0 / 4294967296.0);
  return -logOf(-logOf(u));
}

/// gumbelOf(word) within gumbelError. Near 1, u says too little of 1 - u in single precision, so
/// that is taken from the bits of the word: -log(1 - v) = v + v^2 / 2 + v^3 / 3 + ..., and what is
/// missing is below v^8.
constexpr float gumbelError = 3e-5f;
__device__ __forceinline__ float gumbelNear(unsigned word) {
  constexpr float unit = 1.0f / 4294967296.0f;
  const float v = ((float)(~word) + 0.5f) * unit, u = ((float)word + 0.5f) * unit;
  float series = 1.0f / 7;
#pragma unroll
  for (int i = 6; i > 0; i--)
    series = series * v + 1.0f / (float)i;
  return -__logf(v < 0.125f ? series * v : -__logf(u));
}

__device__ __forceinline__ u64 weightOf(float z) {
  if (!(z > -25.0f))
    return 0;
  constexpr float terms[] = {1.54035304e-4f,
                             1.33335581e-3f,
                             9.61812911e-3f,
                             5.55041087e-2f,
                             2.40226507e-1f,
                             6.93147181e-1f,
                             1.0f};
  const float y = __fmul_rn(z, 1.44269504f);
  const int cut = __float2int_rz(y), floor = cut - ((float)cut > y ? 1 : 0);
  const float f = __fsub_rn(y, (float)floor);
  float sum = 1.52527338e-5f;
#pragma unroll
  for (int i = 0; i < 7; i++)
    sum = __fadd_rn(__fmul_rn(sum, f), terms[i]);
  return __float2ull_rz(__fmul_rn(sum, 34359738368.0f)) >> (unsigned)-floor;
}

__device__ __forceinline__ unsigned orderOf(float v) {
  const unsigned bits = __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
/// The float of that order.
__device__ __forceinline__ float floatOf(unsigned order) {
  return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}
__device__ __forceinline__ u64 orderOf(double v) {
  const u64 bits = (u64)__double_as_longlong(v);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// The choice among scores is one of keys, of which the largest wins: the highest bits of a score's
// order, and below them an id, the lowest of which is the largest. 0 is the key of nothing.
constexpr int idBits = 18;
constexpr u64 noNumberKey = ~u64{0};
__device__ __forceinline__ u64 scoreKey(double score, int id) {
  constexpr unsigned ids = (1u << idBits) - 1;
  return (orderOf(score) >> idBits << idBits) | (ids - (unsigned)id);
}
/// The token of the largest key, -1 where there is a NaN and -2 where there is nothing.
__device__ __forceinline__ int tokenOf(u64 key) {
  constexpr unsigned ids = (1u << idBits) - 1;
  return key == noNumberKey ? -1 : key >> 32 == 0 ? -2 : (int)(ids - ((unsigned)key & ids));
}

/// Philox4x32-10 of the blocks of four ids that c[i].x counts, of the same key and position, side
/// by side.
template <int Blocks>
__device__ __forceinline__ void randomWords(u64 seed, i64 position, uint4 (&c)[Blocks]) {
  unsigned key0 = (unsigned)seed, key1 = (unsigned)(seed >> 32);
#pragma unroll
  for (int i = 0; i < Blocks; i++)
    c[i] = make_uint4(c[i].x, (unsigned)position, (unsigned)((u64)position >> 32), 0);
#pragma unroll 5
  for (int round = 0; round < 10; round++) {
#pragma unroll
    for (int i = 0; i < Blocks; i++) {
      const u64 a = (u64)0xD2511F53u * c[i].x, b = (u64)0xCD9E8D57u * c[i].z;
      c[i] = make_uint4((unsigned)(b >> 32) ^ c[i].y ^ key0, (unsigned)b,
                        (unsigned)(a >> 32) ^ c[i].w ^ key1, (unsigned)a);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}
__device__ __forceinline__ uint4 randomWords(u64 seed, i64 position, unsigned block) {
  uint4 c[1] = {make_uint4(block, 0, 0, 0)};
  randomWords(seed, position, c);
  return c[0];
}

} // namespace gpt2c::sampling
