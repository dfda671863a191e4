#include "ir/ops/IntegerProduct.h"

#include <algorithm>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace gpt2c {
namespace {

using Left = Matrix<const int8_t>;
using Sums = Matrix<int32_t>;

int32_t dotProduct(const int8_t *a, const int8_t *b, int64_t k) {
  constexpr int lanes = 16; // that a vector unit can keep apart
  int32_t acc[lanes] = {}, sum = 0;
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes)
    for (int l = 0; l < lanes; ++l)
      acc[l] += int32_t(a[i + l]) * int32_t(b[i + l]);
  for (; i < k; ++i)
    sum += int32_t(a[i]) * int32_t(b[i]);
  for (int32_t v : acc)
    sum += v;
  return sum;
}

#ifdef __x86_64__
#define UNROLL _Pragma("GCC unroll 32")

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline

/// The sums of the lanes of four vectors.
AVX2_INLINE __m128i addQuads(__m128i a, __m128i b, __m128i c, __m128i d) {
  return _mm_hadd_epi32(_mm_hadd_epi32(a, b), _mm_hadd_epi32(c, d));
}
AVX2_INLINE __m128i halves(__m256i v) {
  return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

AVX2_INLINE __m256i widened(const int8_t *p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
}

/// R rows and four columns: products of neighbours fit int16 pairs, sums of two int32.
template <int R> AVX2_INLINE void tileAvx2(Left a, Left b, Sums c, int64_t k) {
  __m256i sums[R][4];
  UNROLL
  for (int i = 0; i < R * 4; ++i)
    sums[i / 4][i % 4] = _mm256_setzero_si256();
  int64_t at = 0;
  for (; at + 16 <= k; at += 16) {
    __m256i x[R];
    UNROLL
    for (int r = 0; r < R; ++r)
      x[r] = widened(a.data + r * a.stride + at);
    UNROLL
    for (int j = 0; j < 4; ++j) {
      const __m256i w = widened(b.data + j * b.stride + at);
      UNROLL
      for (int r = 0; r < R; ++r)
        sums[r][j] = _mm256_add_epi32(sums[r][j], _mm256_madd_epi16(x[r], w));
    }
  }
  UNROLL
  for (int r = 0; r < R; ++r) {
    int32_t *to = c.data + r * c.stride;
    _mm_storeu_si128(
        reinterpret_cast<__m128i *>(to),
        addQuads(halves(sums[r][0]), halves(sums[r][1]), halves(sums[r][2]), halves(sums[r][3])));
    for (int j = 0; at < k && j < 4; ++j)
      to[j] += dotProduct(a.data + r * a.stride + at, b.data + j * b.stride + at, k - at);
  }
}

#define VNNI_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2"
#define VNNI __attribute__((target(VNNI_TARGET)))
#define VNNI_INLINE __attribute__((target(VNNI_TARGET), always_inline)) static inline

/// R rows and four columns. The instruction takes unsigned bytes on the left, so that a + 128 is
/// multiplied and 128 times the sum of b taken off again; wrapping around is exact in the end.
template <int R> VNNI_INLINE void tileVnni(Left a, Left b, Sums c, int64_t k) {
  __m512i sums[R + 1][4];
  UNROLL
  for (int i = 0; i < (R + 1) * 4; ++i)
    sums[i / 4][i % 4] = _mm512_setzero_si512();
  const __m512i flip = _mm512_set1_epi8(-128), ones = _mm512_set1_epi8(1);
  for (int64_t at = 0; at < k; at += 64) {
    const __mmask64 in = k - at < 64 ? (__mmask64(1) << (k - at)) - 1 : ~__mmask64(0);
    __m512i w[4];
    UNROLL
    for (int j = 0; j < 4; ++j) {
      w[j] = _mm512_maskz_loadu_epi8(in, b.data + j * b.stride + at);
      __builtin_prefetch(b.data + (4 + j) * b.stride + at);
      sums[R][j] = _mm512_dpbusd_epi32(sums[R][j], ones, w[j]);
    }
    UNROLL
    for (int r = 0; r < R; ++r) {
      const __m512i x =
          _mm512_xor_si512(_mm512_maskz_loadu_epi8(in, a.data + r * a.stride + at), flip);
      UNROLL
      for (int j = 0; j < 4; ++j)
        sums[r][j] = _mm512_dpbusd_epi32(sums[r][j], x, w[j]);
    }
  }
  __m128i four[R + 1];
  UNROLL
  for (int r = 0; r <= R; ++r) {
    __m128i q[4];
    UNROLL
    for (int j = 0; j < 4; ++j)
      q[j] = halves(_mm256_add_epi32(_mm512_castsi512_si256(sums[r][j]),
                                     _mm512_extracti64x4_epi64(sums[r][j], 1)));
    four[r] = addQuads(q[0], q[1], q[2], q[3]);
  }
  UNROLL
  for (int r = 0; r < R; ++r)
    _mm_storeu_si128(reinterpret_cast<__m128i *>(c.data + r * c.stride),
                     _mm_sub_epi32(four[r], _mm_slli_epi32(four[R], 7)));
}

/// m <= R rows.
template <int R> AVX2 void rowsAvx2(Left a, Left b, Sums c, int64_t m, int64_t n, int64_t k) {
  if constexpr (R > 1)
    if (m < R)
      return rowsAvx2<R - 1>(a, b, c, m, n, k);
  for (int64_t j = 0; j < n; j += 4)
    tileAvx2<R>(a, {b.data + j * b.stride, b.stride}, {c.data + j, c.stride}, k);
}
template <int R> VNNI void rowsVnni(Left a, Left b, Sums c, int64_t m, int64_t n, int64_t k) {
  if constexpr (R > 1)
    if (m < R)
      return rowsVnni<R - 1>(a, b, c, m, n, k);
  for (int64_t j = 0; j < n; j += 4)
    tileVnni<R>(a, {b.data + j * b.stride, b.stride}, {c.data + j, c.stride}, k);
}
#endif

} // namespace

void integerProduct(Matrix<const int8_t> a, Matrix<const int8_t> b, Matrix<int32_t> c, int64_t m,
                    int64_t n, int64_t k, CpuLevel level) {
  int64_t vectors = 0; // columns that come in fours
#ifdef __x86_64__
  constexpr int64_t rowsOfVnni = 4, rowsOfAvx2 = 2;
  const bool vnni = level >= CpuLevel::Vnni;
  const int64_t rows = vnni ? rowsOfVnni : rowsOfAvx2;
  if (level >= CpuLevel::Avx2) {
    vectors = n / 4 * 4;
    for (int64_t i = 0; i < m; i += rows) {
      const Left left{a.data + i * a.stride, a.stride};
      const Sums to{c.data + i * c.stride, c.stride};
      const int64_t some = std::min(rows, m - i);
      vnni ? rowsVnni<rowsOfVnni>(left, b, to, some, vectors, k)
           : rowsAvx2<rowsOfAvx2>(left, b, to, some, vectors, k);
    }
  }
#endif
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = vectors; j < n; ++j)
      c.data[i * c.stride + j] = dotProduct(a.data + i * a.stride, b.data + j * b.stride, k);
}

} // namespace gpt2c
