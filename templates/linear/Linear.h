// How products with weights become launches: linear, quantized_linear, requantized_linear.
#pragma once

#include "templates/linear/Fusion.h"

namespace gpt2c {

/// The operands, sizes and epilogue of a product (a linear or one of its quantised forms). `first`
/// comes in front of the epilogue, its operands are e0, e1, ... of `args`.
/// Of a product that `gate` follows in its epilogue, y is the gate's result.
llvm::Expected<LinearCall> linearCall(StepBuilder &b, Op &op, ArgList &args, Value *x, Value *bias,
                                      Value *residual, Epilogue first = {}, Op *gate = nullptr);
/// Launches a product with the kernel that suits it, or that the tuner has chosen for `key`.
/// Refuses with the op, the sizes and the reason.
llvm::Error chooseAndLaunch(StepBuilder &b, Op &op, LinearCall &call, const LinearProblem &p,
                            std::string key, Op *norm = nullptr);
/// Launches a product of floating-point rows; with the `norm` that fusedNorm gave x is that norm's.
llvm::Error launchLinear(StepBuilder &b, Op &op, LinearCall call, Op *norm = nullptr,
                         Op *gate = nullptr);
/// What tuning files call a product: all that the choice of its kernel depends on.
std::string choiceKey(const LinearCall &call, const Op &op);

llvm::Error lowerLinear(StepBuilder &b, Op &op);
/// quantized_linear and requantized_linear.
llvm::Error lowerQuantizedLinear(StepBuilder &b, Op &op);
/// The same, with the gate behind it or null: one of floating-point rows that a kernel reads as they
/// are.
llvm::Error lowerInt8Product(StepBuilder &b, Op &op, Op *gate);
/// gated: with the product before it where fusedGate says so, else by itself.
llvm::Error lowerGatedProduct(StepBuilder &b, Op &op);

} // namespace gpt2c
