// Rounding of weights in which later columns make up for what earlier ones are off by.
#pragma once

#include "passes/quantize/WeightScales.h"

namespace gpt2c {

/// w[n, k] in int4 with a scale for each `group` elements of a row, so that
///   sum over rows of  (w - s q) H (w - s q)^T,   H = sum of x x^T over inputs of the product,
/// which is the squared error of the product over them, is small: scales are those of
/// quantiseWeight() with the diagonal of H as moments. Columns are rounded one after the other,
/// those with the largest diagonal first, each after it has taken over the error that the columns
/// before leave in its direction: with H + damping = L^T L, L lower triangular in that order,
///   q_i next to (w_i + sum_(j < i) L_ij (w_j - s q_j) / L_ii) / s.
/// `products` is H, [k, k]. Frantar et al., GPTQ, ICLR 2023, with the order of section 4 of its
/// code; this form of the same update needs no inverse. None where H is not positive.
std::optional<QuantisedWeight> quantiseWithFeedback(const Tensor &w, int64_t group,
                                                    llvm::ArrayRef<float> products);

} // namespace gpt2c
