#include "ir/ops/Exponentials.h"

#include <cmath>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace gpt2c {
namespace {

// exp(x) = 2^n e^r with n = round(x / ln 2) and r = x - n ln 2, ln 2 in two parts. e^r is its
// Taylor polynomial of degree 7, whose rest is less than 2^-27 for |r| <= ln 2 / 2.
constexpr float perLog2 = 0x1.715476p+0F, log2High = 0x1.62e400p-1F, log2Low = 0x1.7f7d1cp-20F;
constexpr float coefficients[] = {1.F / 5040, 1.F / 720, 1.F / 120, 1.F / 24, 1.F / 6, 0.5F, 1, 1};
/// Beyond these all is infinity or 0.
constexpr float most = 89, least = -104;

#ifdef __x86_64__
__attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma"))) void sixteen(float *x) {
  constexpr __mmask16 all = 0xffff; // GCC warns of its own headers where there is no mask
  const __m512 given = _mm512_loadu_ps(x);
  // The second operand is the result where one is NaN.
  const __m512 under = _mm512_maskz_min_ps(all, _mm512_set1_ps(most), given);
  const __m512 v = _mm512_maskz_max_ps(all, _mm512_set1_ps(least), under);
  const __m512 n = _mm512_maskz_roundscale_ps(all, _mm512_mul_ps(v, _mm512_set1_ps(perLog2)),
                                              _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(log2High), v);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(log2Low), r);
  __m512 p = _mm512_set1_ps(coefficients[0]);
  for (int i = 1; i < 8; ++i)
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(coefficients[i]));
  _mm512_storeu_ps(x, _mm512_maskz_scalef_ps(all, p, n));
}

__attribute__((target("avx2,fma"))) void eight(float *x) {
  const __m256 given = _mm256_loadu_ps(x);
  const __m256 v = _mm256_max_ps(_mm256_set1_ps(least), _mm256_min_ps(_mm256_set1_ps(most), given));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(v, _mm256_set1_ps(perLog2)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(log2High), v);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(log2Low), r);
  __m256 p = _mm256_set1_ps(coefficients[0]);
  for (int i = 1; i < 8; ++i)
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(coefficients[i]));
  // 2^n in two steps, since it may be less than the least normal number.
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  p = _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
  _mm256_storeu_ps(x, _mm256_blendv_ps(p, given, _mm256_cmp_ps(given, given, _CMP_UNORD_Q)));
}

/// Calls f with each N elements, the last ones among zeros.
template <int N, typename F> void forEach(float *x, int64_t n, F f) {
  int64_t i = 0;
  for (; i + N <= n; i += N)
    f(x + i);
  if (i == n)
    return;
  float room[N] = {};
  std::memcpy(room, x + i, (n - i) * sizeof(float));
  f(room);
  std::memcpy(x + i, room, (n - i) * sizeof(float));
}
#endif

} // namespace

void exponentials(float *x, int64_t n, CpuLevel level) {
#ifdef __x86_64__
  if (level >= CpuLevel::Avx512)
    return forEach<16>(x, n, sixteen);
  if (level == CpuLevel::Avx2)
    return forEach<8>(x, n, eight);
#endif
  for (int64_t i = 0; i < n; ++i)
    x[i] = std::exp(x[i]);
}

} // namespace gpt2c
