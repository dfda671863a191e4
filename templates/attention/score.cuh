// How a score is made, in every kernel of attention. Scores are exponents of 2:
//
//   score(i, j) = log2(e) * (cap(scale * q_i . k_j) + slope_h * (j - i))
//   cap(x) = SoftCap * tanh(x / SoftCap) with a soft cap, else x
//   slope_h = 2^(-8 (h + 1) / n) of n heads, a power of 2 (ALiBi, Press et al. 2022); for other
//   numbers of heads those of the power below, and between them every second one of twice as many
//
// for a key j that a query at position i sees: j <= i where Causal, j > i - Window where Window > 0.
//
// Members of a config that may be missing: Causal (else true), SoftCap (a float), Alibi (a bool). What a kernel does not
// do its record does not list, and its config is not written.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

constexpr float log2e = 1.4426950408889634f;

/// Turns products of queries and keys into scores.
__device__ __forceinline__ float scoreFactor(float scale) { return scale * log2e; }
/// The score of one product, or a query that makes scores of products.
__device__ __forceinline__ float scaledScore(float product, float scale) {
  return product * scale * log2e;
}

template <typename C, typename = void> inline constexpr float softCapOf = 0.0f;
template <typename C> inline constexpr float softCapOf<C, decltype((void)C::SoftCap)> = C::SoftCap;
template <typename C, typename = void> inline constexpr bool hasAlibi = false;
template <typename C> inline constexpr bool hasAlibi<C, decltype((void)C::Alibi)> = C::Alibi;

template <typename C, typename = void> inline constexpr bool isCausal = true;
template <typename C> inline constexpr bool isCausal<C, decltype((void)C::Causal)> = C::Causal;

/// The scores of a head.
template <typename C> struct Score {
  static constexpr bool capped = softCapOf<C> > 0.0f, sloped = hasAlibi<C>;
  float slope = 0.0f;

  static __device__ __forceinline__ Score ofHead(int h) {
    Score s;
    if constexpr (sloped)
      s.slope = log2e * slopeOf(h);
    return s;
  }
  /// What becomes of a scaled score of key j for a query at position i.
  __device__ __forceinline__ float operator()(float scaled, int i, int j) const {
    if constexpr (capped) {
      constexpr float cap = softCapOf<C> * log2e;
      scaled = cap * tanhf(scaled / cap);
    }
    if constexpr (sloped)
      scaled = fmaf(slope, (float)(j - i), scaled);
    return scaled;
  }
  /// Whether a query at position i sees key j.
  static __device__ __forceinline__ bool sees(int i, int j) {
    return (!isCausal<C> || j <= i) && (C::Window == 0 || j > i - C::Window);
  }

private:
  static __device__ __forceinline__ float slopeOf(int h) {
    constexpr int below = powerBelow(C::Heads);
    const float step = 8.0f / below;
    return exp2f(h < below ? -step * (h + 1) : -step * (0.5f + (h - below)));
  }
  static constexpr int powerBelow(int n) {
    int power = 1;
    while (2 * power <= n)
      power *= 2;
    return power;
  }
};

} // namespace gpt2c
