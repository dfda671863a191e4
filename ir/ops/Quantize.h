// Symmetric quantisation, shared by the ops that quantise, multiply and dequantise.
//
// A row is divided into groups of `group` elements (0: the whole row is one). A group's scale is
//   s = max|x| / steps, or 1 where max|x| < 2^-100, with 127 steps of int8 and 448 of fp8 (E4M3),
// and an element becomes
//   q = clamp(round_half_even(x * (1 / s)), -127, 127)    of int8
//   q = E4M3 next to x * (1 / s), ties to even, at most 448    of fp8
// in single precision, whatever the type of x. With a NaN or infinity in a group s is one, too.
//
// With a scale and a zero point z that are given, an element becomes, in integers alone,
//   q = saturate(round_half_even(x / s) + z),
// in single precision too; NaN becomes the lowest.
#pragma once

#include "ir/Eval.h"
#include "ir/Format.h"

#include <cmath>
#include <limits>

namespace gpt2c {

/// Steps of a scale that the largest magnitude becomes.
constexpr float int8Steps = infoOf(OperandFormat::I8Row).largest;
constexpr float fp8Steps = infoOf(OperandFormat::F8Row).largest;
constexpr float stepsOf(DType quantised) {
  return quantised == DType::F8E4M3 ? fp8Steps : int8Steps;
}

float quantScale(float largest, float steps = int8Steps);
int8_t quantised(float x, float inverseScale);

template <typename Q> Q affineQuantised(float x, float scale, Q zero) {
  const float q = std::nearbyint(x / scale) + static_cast<float>(zero);
  constexpr float least = std::numeric_limits<Q>::min(), most = std::numeric_limits<Q>::max();
  return static_cast<Q>(std::fmin(std::fmax(q, least), most));
}

/// Quantises `rows` rows of k elements, each group with its own scale, to int8_t or Fp8.
template <typename T, typename Q>
void quantiseRows(const T *x, int64_t rows, int64_t k, int64_t group, Q *q, float *scales);
/// The same with one scale given for all.
template <typename T, typename Q> void quantiseAll(const T *x, int64_t count, float scale, Q *q);

#define QUANTISED_ROWS(PREFIX, T, Q)                                                               \
  PREFIX void quantiseRows(const T *, int64_t, int64_t, int64_t, Q *, float *);                    \
  PREFIX void quantiseAll(const T *, int64_t, float, Q *);
#define ALL_QUANTISED_ROWS(PREFIX)                                                                 \
  QUANTISED_ROWS(PREFIX, float, int8_t)                                                            \
  QUANTISED_ROWS(PREFIX, double, int8_t)                                                           \
  QUANTISED_ROWS(PREFIX, float, Fp8)                                                               \
  QUANTISED_ROWS(PREFIX, double, Fp8)
ALL_QUANTISED_ROWS(extern template)

/// Elements as floats, whichever float type they are stored in.
std::vector<float> floatElements(const Tensor &t);

// Results (q, scale) of an op that quantises what it computes to the type of its attribute "to".
// `given` is the operand of a scale known beforehand, f32[]; where it is absent every group of
// `group` elements has its own. Beside it `zero` may be the operand of a zero point, i8[].
constexpr unsigned NoZero = ~0U;
AttrSpec quantisedToAttr();

/// Types of results first and first + 1 for a float value of this shape.
llvm::Error inferQuantised(InferContext &c, llvm::ArrayRef<Dim> shape, unsigned given,
                           llvm::StringRef groupAttr, unsigned first = 0, unsigned zero = NoZero);
/// The quantised `x` (F32 or F64) as results first and first + 1.
llvm::Error setQuantised(EvalContext &c, const Tensor &x, unsigned given, llvm::StringRef groupAttr,
                         unsigned first = 0, unsigned zero = NoZero);

/// Elements of a row that share a scale, for scales of operand `scale` to rows like operand `q`:
/// scale[..., k / group]. 0 for one scale f32[] of all elements.
llvm::Expected<int64_t> scaleGroup(const InferContext &c, unsigned q, unsigned scale);
/// Checks weights q[n, k] of i4, whose rows and groups are whole words, and zero points i8 of the
/// shape of their scales, where the op has the operand `zero`.
llvm::Error checkSteps(const InferContext &c, unsigned q, unsigned scale, unsigned zero);

} // namespace gpt2c
