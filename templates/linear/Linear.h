// How products with weights become launches, as their groups say: linear, quantized_linear,
// requantized_linear, and both products of an MLP.
#pragma once

#include "schedule/Schedule.h"
#include "templates/linear/Launch.h"

namespace gpt2c {

/// Launches a product, with what stands beside it where its rows or weights are int8.
llvm::Error emitLinear(StepBuilder &b, const LinearGroup &group);
llvm::Error emitMlp(StepBuilder &b, const MlpGroup &group);

/// The operands and epilogue of a product. `first` comes in front of the epilogue, its operands are
/// e0, e1, ... of `args`.
llvm::Expected<LinearCall> linearCall(const LinearGroup &group, ArgList &args, Epilogue first = {});
/// By the kernel that was taken.
llvm::Error launch(StepBuilder &b, const LinearGroup &group, LinearCall &call);
/// Of a group with int8.
llvm::Error emitInt8(StepBuilder &b, const LinearGroup &group);

} // namespace gpt2c
