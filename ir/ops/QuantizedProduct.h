// The product with quantised weights, shared by quantized_linear and requantized_linear.
#pragma once

#include "ir/ops/Quantize.h"

namespace gpt2c {

/// A sum of that many products of int8 may exceed int32.
constexpr int64_t maxIntegerTerms = 1 << 17;

/// Checks x, w, scales, bias, activation and x_group, the operand that is added to integer sums and
/// that of zero points of w; the shape of the product.
llvm::Expected<Shape> inferQuantizedProduct(InferContext &c, unsigned offset,
                                            unsigned zero = NoZero);

/// activation(x w^T + bias) in F32, or F64 where the executor runs in double precision. `offset` is
/// the operand that is added to integer sums, `zero` that of zero points of w.
llvm::Expected<Tensor> evalQuantizedProduct(EvalContext &c, unsigned offset,
                                            unsigned zero = NoZero);

Cost quantizedProductCost(const Op &op);

} // namespace gpt2c
