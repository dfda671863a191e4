// The product with int8 weights, shared by quantized_linear and requantized_linear.
#pragma once

#include "ir/Eval.h"

namespace gpt2c {

/// Operands of both ops, in this order: x, w, w_scale, x_scale?, bias?, and more.
enum QuantizedOperand : unsigned { X = 0, W, WScale, XScale, Bias };
/// Operands of quantized_linear alone.
enum QuantizedLinearOperand : unsigned { Residual = Bias + 1, SumOffset };
/// Operands of requantized_linear alone.
enum RequantizedLinearOperand : unsigned { YScale = Bias + 1, YZero, RequantizedSumOffset };

/// A sum of that many products of int8 may exceed int32.
constexpr int64_t maxIntegerTerms = 1 << 17;

/// Checks x, w, scales, bias, activation and x_group, and the operand that is added to integer
/// sums; the shape of the product.
llvm::Expected<Shape> inferQuantizedProduct(InferContext &c, unsigned offset);

/// activation(x w^T + bias) in F32, or F64 where the executor runs in double precision. `offset` is
/// the operand that is added to integer sums.
llvm::Expected<Tensor> evalQuantizedProduct(EvalContext &c, unsigned offset);

Cost quantizedProductCost(const Op &op);

} // namespace gpt2c
