// Weights in int8, fp8 or int4, with the scales that harm products least.
#pragma once

#include "ir/Tensor.h"

#include "llvm/ADT/ArrayRef.h"

namespace gpt2c {

struct QuantisedWeight {
  Tensor q, scale; ///< i8, f8e4m3 or i4[n, k], and f32[n, groups]
  Tensor zero;     ///< of i4: i8[n, groups]
};

/// What it stands for, rounded to `type`.
Tensor floatsOf(const QuantisedWeight &w, DType type);

/// w[n, k] with a scale for each `group` elements of a row (0, or no divisor of k: the whole row).
/// With m_k the mean square of the input that meets column k, rounding adds to the mean square of
/// an output
///   sum_k m_k (w_k - q_k s)^2
/// as far as errors of columns are independent. Of the scales r max|w| / 127 with r = 1, 0.995, ..
/// 0.85 the one with the least such sum is taken; r < 1 clips the largest weights. `moments` are
/// the m_k; empty: all the same.
///
/// Steps of fp8 are finer where weights are small, so that none is clipped; what a scale changes is
/// where the largest lies among powers of two. Of the scales max|w| / 112 16 / i with i = 16 .. 9
/// the one with the least sum is taken.
///
/// int4 has 16 numbers, q = -8 to 7, and stands for (q - z) s: of the ranges a min(w, 0) to
/// b max(w, 0) with a, b = 0.7, 0.75, .. 1, which s = (b max - a min) / 15 and z = round(-a min /
/// s)
/// - 8 cover, the one with the least sum is taken. K is a multiple of 8 groups.
QuantisedWeight quantiseWeight(const Tensor &w, int64_t group, llvm::ArrayRef<float> moments,
                               DType type = DType::I8);

/// The same in fp8, with a scale for each block of `rows` rows and `columns` columns; those at the
/// ends are smaller. Scales are given for each row, and for as many of its columns as divide both
/// blocks and k.
QuantisedWeight quantiseWeightByBlock(const Tensor &w, int64_t rows, int64_t columns,
                                      llvm::ArrayRef<float> moments);

/// The sum over all rows of what rounding to int8 or int4 adds, with s = max|w| / 127 for each
/// group, or the scale and zero point of int4 that cover all of it.
double weightError(const Tensor &w, int64_t group, llvm::ArrayRef<float> moments,
                   DType type = DType::I8);

/// Groups of a row of k that int4 has when `wanted` elements are asked to share a scale: the
/// largest number of those, halved until it divides k, that is no less than 16; 0: there is none.
int64_t int4Group(int64_t k, int64_t wanted);

/// The textbook form: one scale max|w| / 127 for all rows of a matrix, given for each row.
/// `matrices` says of each row which matrix it belongs to, as 0, 1, ..; empty: all are one.
QuantisedWeight quantiseWeightByTensor(const Tensor &w, llvm::ArrayRef<int32_t> matrices = {});

} // namespace gpt2c
