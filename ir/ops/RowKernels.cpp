#include "ir/ops/RowKernels.h"

#include <cmath>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define UNROLLED _Pragma("GCC unroll 32")

namespace gpt2c {
namespace {

namespace portable {
#define KERNEL
#define KERNEL_INLINE static inline
template <typename T> struct Vec {
  static constexpr int tile = 4, rows = 2, together = 1;
  T lanes[lanesOf<T>];

  static Vec zero() { return {}; }
  template <typename W> static Vec load(const W *p) {
    Vec v;
    for (int l = 0; l < lanesOf<T>; ++l)
      if constexpr (elementsIn<W> > 1)
        v.lanes[l] = T(stepAt(p, l));
      else
        v.lanes[l] = T(p[l]);
    return v;
  }
  static Vec all(T x) {
    Vec v;
    for (T &lane : v.lanes)
      lane = x;
    return v;
  }
  void store(T *p) const { std::memcpy(p, lanes, sizeof(lanes)); }
  void keep() {}
  static Vec sub(Vec a, const Vec &b) {
    for (int l = 0; l < lanesOf<T>; ++l)
      a.lanes[l] -= b.lanes[l];
    return a;
  }
  static Vec fma(const Vec &a, const Vec &b, Vec c) {
    for (int l = 0; l < lanesOf<T>; ++l)
      c.lanes[l] = std::fma(a.lanes[l], b.lanes[l], c.lanes[l]);
    return c;
  }
  static void addLanes(Vec *sums, int, T *to) {
    T *lanes = sums->lanes;
    for (int half = lanesOf<T> / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l)
        lanes[l] += lanes[l + half];
    *to = lanes[0];
  }
};
template <typename T> T fusedAdd(T a, T b, T c) { return std::fma(a, b, c); }
#include "ir/ops/RowKernels.inc"
#undef KERNEL
#undef KERNEL_INLINE
} // namespace portable

#ifdef __x86_64__
/// Loads once what several multiply-adds read, which they would each load otherwise.
#define keepInRegister(x) asm("" : "+v"(x))

namespace avx2 {
#define KERNEL __attribute__((target("avx2,fma,f16c")))
#define KERNEL_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) static inline
#define MEMBER __attribute__((target("avx2,fma,f16c"), always_inline)) inline
template <typename T> struct Vec;

/// The sums of the lanes of four vectors of 8 / 2.
MEMBER __m128 addQuads(__m128 a, __m128 b, __m128 c, __m128 d) {
  const __m128 ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
  const __m128 cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
  return _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd));
}
MEMBER __m256 widened(__m128i bfloats) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bfloats), 16));
}
MEMBER __m128 halves(__m256 v) {
  return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
MEMBER double addLanes(__m256d v) {
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/// As fp8ToFloat() does it.
MEMBER __m256 ofFp8(__m256i bytes) {
  const __m256i magnitude = _mm256_and_si256(bytes, _mm256_set1_epi32(0x7f)),
                sign = _mm256_slli_epi32(_mm256_xor_si256(bytes, magnitude), 24),
                nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
  const __m256i bits = _mm256_or_si256(sign, _mm256_slli_epi32(magnitude, 20));
  const __m256 v = _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120F));
  return _mm256_or_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(nan, 23), 22)));
}

/// Two words of eight as bytes, in the order of their elements (Int4x8).
MEMBER __m128i ofInt4(__m128i words) {
  const __m128i mask = _mm_set1_epi8(15),
                both = _mm_unpacklo_epi64(_mm_and_si128(words, mask),
                                          _mm_and_si128(_mm_srli_epi16(words, 4), mask)),
                order = _mm_setr_epi8(0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15),
                values = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  return _mm_shuffle_epi8(values, _mm_shuffle_epi8(both, order));
}

template <> struct Vec<float> {
  static constexpr int tile = 6, rows = 3, together = 4;
  __m256 low, high;

  MEMBER static Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  MEMBER static Vec load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  MEMBER static Vec load(const Half *p) {
    const auto *from = reinterpret_cast<const __m128i *>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from + 1))};
  }
  MEMBER static Vec load(const BFloat *p) {
    const auto *from = reinterpret_cast<const __m128i *>(p);
    return {widened(_mm_loadu_si128(from)), widened(_mm_loadu_si128(from + 1))};
  }
  MEMBER static Vec load(const int8_t *p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)))};
  }
  MEMBER static Vec load(const Fp8 *p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    return {ofFp8(_mm256_cvtepu8_epi32(v)), ofFp8(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(v, v)))};
  }
  MEMBER static Vec load(const Int4x8 *p) {
    const __m128i v = ofInt4(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p)));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)))};
  }
  MEMBER static Vec all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  MEMBER void store(float *p) const { _mm256_storeu_ps(p, low), _mm256_storeu_ps(p + 8, high); }
  MEMBER void keep() {
    keepInRegister(low);
    keepInRegister(high);
  }
  MEMBER static Vec sub(const Vec &a, const Vec &b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  MEMBER static Vec fma(const Vec &a, const Vec &b, const Vec &c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  MEMBER static void addLanes(const Vec *sums, int count, float *to) {
    __m128 q[together];
    for (int i = 0; i < together; ++i) {
      const Vec &v = sums[i < count ? i : 0];
      q[i] = halves(_mm256_add_ps(v.low, v.high));
    }
    _mm_storeu_ps(to, addQuads(q[0], q[1], q[2], q[3]));
  }
};
template <> struct Vec<double> {
  static constexpr int tile = 6, rows = 3, together = 1;
  __m256d low, high;

  MEMBER static Vec zero() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
  MEMBER static Vec load(const double *p) { return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
  MEMBER static Vec load(const int8_t *p) {
    const __m256i v = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p)));
    return {_mm256_cvtepi32_pd(_mm256_castsi256_si128(v)),
            _mm256_cvtepi32_pd(_mm256_extracti128_si256(v, 1))};
  }
  MEMBER static Vec load(const Fp8 *p) {
    const __m256 v =
        ofFp8(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
    return {_mm256_cvtps_pd(_mm256_castps256_ps128(v)),
            _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))};
  }
  MEMBER static Vec load(const Int4x8 *p) {
    const __m256i v =
        _mm256_cvtepi8_epi32(ofInt4(_mm_loadu_si32(reinterpret_cast<const __m128i *>(p))));
    return {_mm256_cvtepi32_pd(_mm256_castsi256_si128(v)),
            _mm256_cvtepi32_pd(_mm256_extracti128_si256(v, 1))};
  }
  MEMBER static Vec all(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
  MEMBER void store(double *p) const { _mm256_storeu_pd(p, low), _mm256_storeu_pd(p + 4, high); }
  MEMBER void keep() {
    keepInRegister(low);
    keepInRegister(high);
  }
  MEMBER static Vec sub(const Vec &a, const Vec &b) {
    return {_mm256_sub_pd(a.low, b.low), _mm256_sub_pd(a.high, b.high)};
  }
  MEMBER static Vec fma(const Vec &a, const Vec &b, const Vec &c) {
    return {_mm256_fmadd_pd(a.low, b.low, c.low), _mm256_fmadd_pd(a.high, b.high, c.high)};
  }
  MEMBER static void addLanes(const Vec *sums, int, double *to) {
    *to = avx2::addLanes(_mm256_add_pd(sums->low, sums->high));
  }
};
template <typename T> KERNEL_INLINE T fusedAdd(T a, T b, T c) { return std::fma(a, b, c); }
#include "ir/ops/RowKernels.inc"
#undef KERNEL
#undef KERNEL_INLINE
#undef MEMBER
} // namespace avx2

namespace avx512 {
#define TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
#define KERNEL __attribute__((target(TARGET)))
#define KERNEL_INLINE __attribute__((target(TARGET), always_inline)) static inline
#define MEMBER __attribute__((target(TARGET), always_inline)) inline
template <typename T> struct Vec;
/// As fp8ToFloat() does it.
MEMBER __m512 ofFp8(__m512i bytes) {
  const __m512i magnitude = _mm512_and_si512(bytes, _mm512_set1_epi32(0x7f)),
                sign = _mm512_slli_epi32(_mm512_xor_si512(bytes, magnitude), 24);
  const __m512i bits = _mm512_or_si512(sign, _mm512_slli_epi32(magnitude, 20));
  const __m512 v = _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120F));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f));
  return _mm512_castsi512_ps(_mm512_mask_or_epi32(
      _mm512_castps_si512(v), nan, _mm512_castps_si512(v), _mm512_set1_epi32(0x7fc00000)));
}

template <> struct Vec<float> {
  static constexpr int tile = 24, rows = 6, together = 4;
  __m512 v;

  MEMBER static Vec zero() { return {_mm512_setzero_ps()}; }
  MEMBER static Vec load(const float *p) { return {_mm512_loadu_ps(p)}; }
  MEMBER static Vec load(const Half *p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)))};
  }
  MEMBER static Vec load(const BFloat *p) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16))};
  }
  MEMBER static Vec load(const int8_t *p) {
    return {_mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))))};
  }
  MEMBER static Vec load(const Fp8 *p) {
    return {ofFp8(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))))};
  }
  MEMBER static Vec load(const Int4x8 *p) {
    return {_mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(avx2::ofInt4(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p)))))};
  }
  MEMBER static Vec all(float x) { return {_mm512_set1_ps(x)}; }
  MEMBER void store(float *p) const { _mm512_storeu_ps(p, v); }
  MEMBER void keep() { keepInRegister(v); }
  MEMBER static Vec sub(const Vec &a, const Vec &b) { return {_mm512_sub_ps(a.v, b.v)}; }
  MEMBER static Vec fma(const Vec &a, const Vec &b, const Vec &c) {
    return {_mm512_fmadd_ps(a.v, b.v, c.v)};
  }
  MEMBER static void addLanes(const Vec *sums, int count, float *to) {
    __m128 q[together];
    for (int i = 0; i < together; ++i) {
      const __m512 v = sums[i < count ? i : 0].v;
      q[i] = avx2::halves(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
    }
    _mm_storeu_ps(to, avx2::addQuads(q[0], q[1], q[2], q[3]));
  }
};
template <> struct Vec<double> {
  static constexpr int tile = 24, rows = 6, together = 1;
  __m512d v;

  MEMBER static Vec zero() { return {_mm512_setzero_pd()}; }
  MEMBER static Vec load(const double *p) { return {_mm512_loadu_pd(p)}; }
  MEMBER static Vec load(const int8_t *p) {
    return {_mm512_cvtepi32_pd(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))))};
  }
  MEMBER static Vec load(const Fp8 *p) {
    return {_mm512_cvtps_pd(
        avx2::ofFp8(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p)))))};
  }
  MEMBER static Vec load(const Int4x8 *p) {
    return {_mm512_cvtepi32_pd(
        _mm256_cvtepi8_epi32(avx2::ofInt4(_mm_loadu_si32(reinterpret_cast<const __m128i *>(p)))))};
  }
  MEMBER static Vec all(double x) { return {_mm512_set1_pd(x)}; }
  MEMBER void store(double *p) const { _mm512_storeu_pd(p, v); }
  MEMBER void keep() { keepInRegister(v); }
  MEMBER static Vec sub(const Vec &a, const Vec &b) { return {_mm512_sub_pd(a.v, b.v)}; }
  MEMBER static Vec fma(const Vec &a, const Vec &b, const Vec &c) {
    return {_mm512_fmadd_pd(a.v, b.v, c.v)};
  }
  MEMBER static void addLanes(const Vec *sums, int, double *to) {
    *to = avx2::addLanes(
        _mm256_add_pd(_mm512_castpd512_pd256(sums->v), _mm512_extractf64x4_pd(sums->v, 1)));
  }
};
template <typename T> KERNEL_INLINE T fusedAdd(T a, T b, T c) { return std::fma(a, b, c); }
#include "ir/ops/RowKernels.inc"
#undef KERNEL
#undef KERNEL_INLINE
#undef MEMBER
#undef TARGET
} // namespace avx512
#endif

} // namespace

template <typename T, typename W> void dotPart(const RowPart<T, W> &p, CpuLevel level) {
#ifdef __x86_64__
  if (level >= CpuLevel::Avx512)
    return avx512::dot(p);
  if (level == CpuLevel::Avx2)
    return avx2::dot(p);
#endif
  portable::dot(p);
}

template <typename W>
void widenRows(Matrix<const W> from, int64_t rows, int64_t k, RowScales scales, float *to,
               CpuLevel level) {
#ifdef __x86_64__
  if (level >= CpuLevel::Avx512)
    return avx512::widen(from, rows, k, scales, to);
  if (level == CpuLevel::Avx2)
    return avx2::widen(from, rows, k, scales, to);
#endif
  portable::widen(from, rows, k, scales, to);
}

template <typename T> void addPart(const RowPart<T, T> &p, CpuLevel level) {
#ifdef __x86_64__
  if (level >= CpuLevel::Avx512)
    return avx512::add(p);
  if (level == CpuLevel::Avx2)
    return avx2::add(p);
#endif
  portable::add(p);
}

template void dotPart(const RowPart<float, float> &, CpuLevel);
template void dotPart(const RowPart<float, Half> &, CpuLevel);
template void dotPart(const RowPart<float, BFloat> &, CpuLevel);
template void dotPart(const RowPart<double, double> &, CpuLevel);
template void widenRows(Matrix<const Half>, int64_t, int64_t, RowScales, float *, CpuLevel);
template void widenRows(Matrix<const BFloat>, int64_t, int64_t, RowScales, float *, CpuLevel);
#define ROW_STEPS(W)                                                                               \
  template void dotPart(const RowPart<float, W> &, CpuLevel);                                      \
  template void dotPart(const RowPart<double, W> &, CpuLevel);                                     \
  template void widenRows(Matrix<const W>, int64_t, int64_t, RowScales, float *, CpuLevel);
ALL_ROW_STEPS
#undef ROW_STEPS
template void addPart(const RowPart<float, float> &, CpuLevel);
template void addPart(const RowPart<double, double> &, CpuLevel);

} // namespace gpt2c
