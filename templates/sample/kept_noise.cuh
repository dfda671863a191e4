// Gumbel noise that is kept until the logits are there, in 16 bits each.
//
// The noise, -3.2 to 22.9, is raised by 36: a float in [32, 64) all of whose digits but 15 are cut
// off, steps of 2^-10.
#pragma once

#include "templates/sample/sample_row.cuh"

namespace gpt2c::sampling {

constexpr float keptRise = 36.0f;
/// Of keptNoise() to gumbelOf(word) + keptRise: half a step, 4.89e-4, and below 5e-5 of the
/// approximation.
constexpr float keptError = 6e-4f;

__device__ __forceinline__ float log2Near(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// -log(-log(u)) + keptRise and half a step, of which the highest 24 bits are to be kept. The half
/// of (0, 1) that u is in is taken from its nearer end, f away: at 1 f says more than 1 - f, and
/// below 2^-7 f + f^2 / 2 is -log(1 - f) but for f^2 / 3 of it, 2.1e-5. Above, 1 - f and its
/// logarithm are wrong by 2.1e-7, 2.6e-5 of it.
__device__ __forceinline__ float raisedNoise(unsigned word) {
  constexpr float unit = 1.0f / 4294967296.0f, perLn2 = 1.44269504f, ln2 = 0.693147181f;
  constexpr float raise = keptRise + 1.0f / 2048 + 0.366512921f; // -log(log(2))
  const bool upper = (int)word < 0;
  const float f = __fmaf_rn((float)(int)(upper ? ~word : word), unit, 0.5f * unit);
  const float logarithm = -log2Near(upper ? 1.0f - f : f);
  const float series = f * __fmaf_rn(f, 0.5f * perLn2, perLn2);
  return __fmaf_rn(log2Near(word >= 0xfe000000u ? series : logarithm), -ln2, raise);
}
/// The noise of two words.
__device__ __forceinline__ unsigned keptNoise(unsigned first, unsigned second) {
  return __byte_perm(__float_as_uint(raisedNoise(first)), __float_as_uint(raisedNoise(second)),
                     0x6521);
}
/// That of the first or second word, e.
__device__ __forceinline__ float keptNoiseOf(unsigned pair, int e) {
  return __uint_as_float(__byte_perm(pair, 0x42000000u, e == 0 ? 0x7104 : 0x7324));
}
/// The larger one, and no number where one is none.
__device__ __forceinline__ float largestNumber(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float v;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(a), "f"(b));
  return v;
#else
  return a != a || b != b ? a + b : fmaxf(a, b);
#endif
}

} // namespace gpt2c::sampling
