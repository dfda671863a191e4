// Layer norm, shared by layer_norm and quantized_layer_norm.
#pragma once

#include "ir/Eval.h"

namespace gpt2c {

/// Checks x, scale and bias (operands 0 to 2); gives result 0 the type of x.
llvm::Error inferLayerNorm(InferContext &c, int64_t firstAxis);
/// The normalised x in its type. Statistics are accumulated in double precision.
llvm::Expected<Tensor> evalLayerNorm(EvalContext &c, int64_t firstAxis);

} // namespace gpt2c
