// Rounding of weights in which later columns make up for what earlier ones are off by.
#pragma once

#include "passes/quantize/InputProducts.h"
#include "passes/quantize/WeightScales.h"

namespace gpt2c {

/// w[n, k] in int4 with a scale for each `group` elements of a row, so that
///   sum over rows of  (w - v) H (w - v)^T,   v = s (q - z), H = sum of x x^T over inputs,
/// which is the squared error of the product over them, is small: s and z are those of
/// quantiseWeight() with the diagonal of H as moments. Columns are rounded one after the other,
/// those with the largest diagonal first, each after it has taken over the error that the columns
/// before leave in its direction: with H + damping = L^T L, L lower triangular in that order,
///   q_i - z next to (w_i + sum_(j < i) L_ij (w_j - v_j) / L_ii) / s.
/// `products` are H, with 0 between columns of different blocks, of inputs whose columns have been
/// divided by `divisors` since (empty: by 1). Frantar et al., GPTQ, ICLR 2023, with the order of
/// section 4 of its code; this form of the same update needs no inverse. None where H is not
/// positive.
std::optional<QuantisedWeight> quantiseWithFeedback(const Tensor &w, int64_t group,
                                                    const InputProducts &products,
                                                    llvm::ArrayRef<float> divisors = {});

/// The sum that it leaves; infinite where H is not positive.
double errorWithFeedback(const Tensor &w, int64_t group, const InputProducts &products,
                         llvm::ArrayRef<float> divisors = {});

} // namespace gpt2c
