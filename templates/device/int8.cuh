// Symmetric int8: s = max|x| / 127, or 1 where max|x| < 2^-100; q = round_half_even(x * (1 / s)),
// all in fp32. Conversions without the slow convert unit, and the matrix instruction. The same of
// Fp8: s = max|x| / 448, q the E4M3 next to x * (1 / s).
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

__device__ __forceinline__ float toFloat(i8 v) { return (float)v; }

namespace quantised {
/// The integer next to v, half to even, in the low bits: those of v + 1.5 * 2^23.
__device__ __forceinline__ unsigned nearest(float v) {
  return __float_as_uint(__fadd_rn(v, 12582912.0f));
}
/// The E4M3 next to v, half to even, at most 448; of a NaN one.
__device__ __forceinline__ unsigned nearestFp8(float v) {
  const unsigned bits = __float_as_uint(v), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return sign | 0x7f;
  if (magnitude < 0x3c800000) // steps of 2^-9, which 1.5 * 2^14 has
    return sign | (__float_as_uint(__fadd_rn(fabsf(v), 24576.0f)) & 0xf);
  const unsigned rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);
  return sign | min((rounded >> 20) - (120 << 3), 0x7eu);
}
} // namespace quantised

/// The integer next to v, which is within -128 .. 127.
template <> __device__ __forceinline__ i8 fromFloat<i8>(float v) {
  return (i8)quantised::nearest(v);
}
template <> __device__ __forceinline__ Fp8 fromFloat<Fp8>(float v) {
  return {(unsigned char)quantised::nearestFp8(v)};
}

namespace quantised {
/// Steps of a scale, of type Q, that the largest magnitude of a group becomes.
template <typename Q> constexpr float steps = 127.0f;
template <> constexpr float steps<Fp8> = 448.0f;

/// The scale of a group whose largest magnitude is `largest`.
template <typename Q = i8> __device__ __forceinline__ float scale(float largest) {
  return largest < 7.888609052210118e-31f ? 1.0f : __fdiv_rn(largest, steps<Q>);
}
/// What the elements of a group of that scale are multiplied by.
__device__ __forceinline__ float inverse(float scale) { return __fdiv_rn(1.0f, scale); }

/// The integer that an element of a group becomes.
__device__ __forceinline__ float round(float v, float inverse) {
  return __fadd_rn(__fadd_rn(__fmul_rn(v, inverse), 12582912.0f), -12582912.0f);
}
/// Two numbers as bytes, the first lowest.
template <typename Q> __device__ __forceinline__ unsigned pair(float a, float b) {
  return __byte_perm(nearest(a), nearest(b), 0x0040);
}
template <> __device__ __forceinline__ unsigned pair<Fp8>(float a, float b) {
#if __CUDA_ARCH__ >= 890
  unsigned short both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(b), "f"(a));
  return both;
#else
  return nearestFp8(a) | nearestFp8(b) << 8;
#endif
}
/// Four numbers as bytes, the first lowest.
template <typename Q> __device__ __forceinline__ unsigned pack(float a, float b, float c, float d) {
  return __byte_perm(pair<Q>(a, b), pair<Q>(c, d), 0x5410);
}
/// Four elements of a group.
template <typename Q>
__device__ __forceinline__ unsigned pack(float a, float b, float c, float d, float inverse) {
  return pack<Q>(__fmul_rn(a, inverse), __fmul_rn(b, inverse), __fmul_rn(c, inverse),
                 __fmul_rn(d, inverse));
}
/// Pairs of elements times `inverse`, in halves, as four bytes.
template <typename Q>
__device__ __forceinline__ unsigned pack(__half2 a, __half2 b, __half2 inverse) {
  // Adding 1.5 * 2^10 rounds to an integer, which is in the low byte then.
  auto rounded = [&](__half2 v) {
    const __half2 r = __hfma2(v, inverse, __float2half2_rn(1536.0f));
    return *reinterpret_cast<const unsigned *>(&r);
  };
  return __byte_perm(rounded(a), rounded(b), 0x6420);
}
#if __CUDA_ARCH__ >= 890
template <> __device__ __forceinline__ unsigned pack<Fp8>(__half2 a, __half2 b, __half2 inverse) {
  auto rounded = [&](__half2 v) {
    const __half2 r = __hmul2(v, inverse);
    unsigned short both;
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;"
        : "=h"(both)
        : "r"(*reinterpret_cast<const unsigned *>(&r)));
    return (unsigned)both;
  };
  return __byte_perm(rounded(a), rounded(b), 0x5410);
}
#endif

/// Clamps elements that need not be of the group which the scale is of.
template <typename Q, int V> __device__ __forceinline__ void clamp(float (&v)[V], float inverse) {
  const float most = steps<Q> / inverse;
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] = fminf(fmaxf(v[i], -most), most);
}

// What elements become before they are stored, where no maximum has to be found for it. Storing
// them rounds.

/// Themselves.
struct AsTheyAre {
  static constexpr bool quantises = false;
  template <int V> __device__ __forceinline__ void apply(float (&)[V]) const {}
};
/// x / scale within -127 .. 127, for one scale of all elements: inverse is 1 / scale.
struct ByScale {
  static constexpr bool quantises = true;
  static constexpr float least = -127.0f, zero = 0.0f;
  float inverse;
  template <int V> __device__ __forceinline__ void apply(float (&v)[V]) const {
#pragma unroll
    for (int i = 0; i < V; i++)
      v[i] = fminf(fmaxf(__fmul_rn(v[i], inverse), least), 127.0f);
  }
};

/// The same with a zero point: x / scale, rounded, plus zero, within -128 .. 127.
struct ByScaleAndZero {
  static constexpr bool quantises = true;
  static constexpr float least = -128.0f;
  float inverse, zero;
  template <int V> __device__ __forceinline__ void apply(float (&v)[V]) const {
    const float back = 12582912.0f - zero; // exact
#pragma unroll
    for (int i = 0; i < V; i++) {
      const float steps = __fadd_rn(__fmul_rn(v[i], inverse), 12582912.0f);
      v[i] = fminf(fmaxf(__fadd_rn(steps, -back), least), 127.0f);
    }
  }
};

/// x / scale for one scale of all elements, where storing it as fp8 keeps it within 448.
struct ByFp8Scale {
  static constexpr bool quantises = true;
  float inverse;
  template <int V> __device__ __forceinline__ void apply(float (&v)[V]) const {
#pragma unroll
    for (int i = 0; i < V; i++)
      v[i] = __fmul_rn(v[i], inverse);
  }
};

/// Stores V neighbouring elements of a group.
template <int V, typename Q>
__device__ __forceinline__ void store(Q *q, const float (&v)[V], float inverse) {
  if constexpr (V % 4 == 0) {
    Pack<unsigned, V / 4> words;
#pragma unroll
    for (int i = 0; i < V; i += 4)
      words.set(i / 4, pack<Q>(v[i], v[i + 1], v[i + 2], v[i + 3], inverse));
    storePack(reinterpret_cast<unsigned *>(q), words);
  } else {
#pragma unroll
    for (int i = 0; i < V; i++)
      q[i] = fromFloat<Q>(__fmul_rn(v[i], inverse));
  }
}
} // namespace quantised

/// acc += sums.
template <int Tiles>
__device__ __forceinline__ void addSums(float (&acc)[Tiles][4], const float (&sums)[Tiles][4]) {
#pragma unroll
  for (int j = 0; j < Tiles; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      acc[j][e] += sums[j][e];
}
/// acc += scale * sums; the lane's rows have the scales scale[0] and scale[1].
template <typename S, int Tiles>
__device__ __forceinline__ void addSums(float (&acc)[Tiles][4], const S (&sums)[Tiles][4],
                                        const float (&scale)[2]) {
#pragma unroll
  for (int j = 0; j < Tiles; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      acc[j][e] = fmaf(scale[e / 2], (float)sums[j][e], acc[j][e]);
}
/// acc = scale * sums; they may be the same.
template <typename S, int Tiles>
__device__ __forceinline__ void scaleSums(float (&acc)[Tiles][4], const S (&sums)[Tiles][4],
                                          const float (&scale)[2]) {
#pragma unroll
  for (int j = 0; j < Tiles; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      acc[j][e] = scale[e / 2] * (float)sums[j][e];
}
/// What follows reads the sums after the wait before it, not earlier.
template <int Tiles> __device__ __forceinline__ void pinSums(int (&c)[Tiles][4]) {
#pragma unroll
  for (int j = 0; j < Tiles; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      asm volatile("" : "+r"(c[j][e])::"memory");
}
template <int Tiles> __device__ __forceinline__ void pinSums(float (&c)[Tiles][4]) {
#pragma unroll
  for (int j = 0; j < Tiles; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      asm volatile("" : "+f"(c[j][e])::"memory");
}

/// c[16,8] += a[16,32] * b[32,8], int8 in, int32 out. In bytes, a and b lie in the lanes' registers
/// as for mma16816; c as there.
__device__ __forceinline__ void mma16832(int (&c)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, "
               "%7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

} // namespace gpt2c
