// The functions that sampling rests on, of which host and device must have the same bits. Each is
// a fixed sequence of IEEE operations, rounded to nearest and not contracted to fused ones: what
// includes this is compiled with -ffp-contract=off. templates/sample/sample_math.cuh has the same
// sequences for devices, and its tests compare the bits.
#pragma once

#include <bit>
#include <cstdint>

namespace gpt2c::rt::sampling {

/// log(x) of a normal number above 0, within 2 units in the last place: with x = 2^e m, m between
/// sqrt(1/2) and sqrt(2), and s = (m - 1) / (m + 1), log(m) = 2 (s + s^3 / 3 + s^5 / 5 + ...).
inline double logOf(double x) {
  constexpr double terms[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                              1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  constexpr uint64_t mantissa = (uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<uint64_t>(x);
  int64_t e = int64_t(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & mantissa) | uint64_t{1023} << 52);
  if (m > 0x1.6a09e667f3bcdp0) {
    m = m * 0.5;
    e = e + 1;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = terms[0];
  for (int i = 1; i < 11; ++i)
    sum = sum * square + terms[i];
  // ln 2 in two parts, the first with 32 bits: its product with e is exact.
  const double high = 0x1.62e42feep-1, low = 0x1.a39ef35793c76p-33;
  const double twice = s + s;
  return double(e) * high + (twice + (twice * (square * sum) + double(e) * low));
}

/// -log(-log(u)) of u = (word + 1/2) / 2^32: from -3.14 to 22.88.
inline double gumbelOf(uint32_t word) { return -logOf(-logOf((double(word) + 0.5) * 0x1p-32)); }
inline constexpr double mostGumbel = 22.9;

/// About 2^35 exp(z) of z <= 0, an integer; monotone up to its relative error of 2^-21. Those of
/// 2^18 tokens sum to less than 2^53.
inline uint64_t weightOf(float z) {
  if (!(z > -25.0F))
    return 0;
  const float y = z * 1.44269504F;
  const auto floor = int32_t(y) - (float(int32_t(y)) > y ? 1 : 0);
  const float f = y - float(floor); // exact
  // 2^f, the series of exp(f ln 2) cut off so that what is missing is below 2^-22.
  constexpr float terms[] = {1.54035304e-4F,
                             1.33335581e-3F,
                             9.61812911e-3F,
                             5.55041087e-2F,
                             2.40226507e-1F,
                             6.93147181e-1F,
                             1.0F};
  float sum = 1.52527338e-5F;
  for (float term : terms)
    sum = sum * f + term;
  return uint64_t(sum * 0x1p35F) >> unsigned(-floor);
}

/// A number whose order is that of the floats; minus 0 comes right before 0.
inline uint32_t orderOf(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}

/// The order of a score as far as it decides: what a device's keys have no room for is cut off, of
/// 52 bits 34 are left.
inline uint64_t scoreOrder(double score) {
  const auto bits = std::bit_cast<uint64_t>(score);
  return (bits >> 63 ? ~bits : bits | uint64_t{1} << 63) >> 18;
}

} // namespace gpt2c::rt::sampling
