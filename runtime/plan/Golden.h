// Golden rows: what the logits of a plan were where it was made, in a few numbers that another
// device comes near to, and a fault does not.
//
// Of logits x[0..V) the finite ones count; m is their mean, s their standard deviation, n their
// number. A row keeps
//
//   the four largest, with log softmax;  m;  s;  n;
//   p_j = sum_i r_ij (x_i - m) / sqrt(n),  j < 16,
//
// with signs r_ij that are fixed: bit j of splitmix64(i). For another row x' with projections p'
//
//   error = sqrt(mean_j (p'_j - p_j)^2) / s
//
// estimates |(x' - m') - (x - m)| / |x - m|, which is the error of a row of logits that a plan is
// verified by (docs/verification.md), since the square of each difference has that expectation; by
// 16 of them the estimate is within a sixth two times out of three, and rarely off by a half. A
// row passes when
//
//   error <= t,  |m' - m| <= t sqrt(m^2 + s^2),  n' = n,
//   each kept log softmax is within 6 t s, and
//   the next token is the best one, or has a log softmax at most 6 t s below it,
//
// where t is the tolerance of the plan: 6 t s is what one logit may be off in a row that is off by
// t in the norm. t is 1e-3 in single precision, 0.05 in half precision and 0.1 with int8, or four
// times the error that the compiler found against the exported graph in front of int8, at most 0.5,
// where rounding is worse.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <span>
#include <string>

namespace gpt2c::rt {

inline constexpr double kGoldenSingle = 1e-3, kGoldenHalf = 0.05, kGoldenInt8 = 0.1;

plan::GoldenRowT goldenRow(std::span<const float> logits);

struct GoldenDifference {
  double error = 0;    ///< as above; infinity where the rows cannot be compared
  std::string problem; ///< what is out of tolerance; empty: nothing
};
GoldenDifference compareGolden(const plan::GoldenRowT &golden, std::span<const float> logits,
                               double tolerance);

/// Whether a device may choose `token` behind the row.
bool mayFollow(const plan::GoldenRowT &golden, int32_t token, double tolerance);

} // namespace gpt2c::rt
