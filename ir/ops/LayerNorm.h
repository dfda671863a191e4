// Layer norm, shared by layer_norm, add_layer_norm and quantized_layer_norm. The latter two have an
// attribute `rms`: they are of rms_norm.
#pragma once

#include "ir/Eval.h"

namespace gpt2c {

/// Of an op that has the norm of another one in it: rms_norm instead of layer_norm.
AttrSpec rmsAttr();

/// Checks x, and scale and bias (operand `scaleAt` and the next); gives result 0 the type of x.
llvm::Error inferLayerNorm(InferContext &c, int64_t firstAxis,
                           unsigned scaleAt = ops::LayerNorm::Scale);
/// The normalised x in its type. Statistics are accumulated in double precision. Where the op has
/// `rms` set the mean counts as 0.
llvm::Expected<Tensor> evalLayerNorm(EvalContext &c, const Tensor &x, int64_t firstAxis,
                                     unsigned scaleAt = ops::LayerNorm::Scale);

} // namespace gpt2c
