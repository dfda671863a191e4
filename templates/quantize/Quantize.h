// Rows in int8, or in floating-point steps: what they are told of scales, and the kernels that make
// and widen them.
#pragma once

#include "codegen/Lowering.h"

namespace gpt2c {

/// Groups of d neighbouring elements; with `given` the scale is read, one for all.
struct QuantizeConfig {
  Scalar x = Scalar::F16, q = Scalar::I8;
  int d = 0, warps = 4;
  bool given = false;
};

KernelSource quantize(llvm::StringRef name, const QuantizeConfig &config);

/// Groups of d neighbouring elements; with `one` a single scale stands for all.
struct DequantizeConfig {
  Scalar y = Scalar::F16;
  int d = 0, threads = 256;
  bool one = false;
  Scalar q = Scalar::I8;
  bool zeros = false; ///< a zero point stands beside each scale
};

/// Elements that a thread computes.
constexpr int dequantizedElements(const DequantizeConfig &c) {
  int v = 16;
  while (c.d % v != 0)
    v /= 2;
  return v;
}

KernelSource dequantize(llvm::StringRef name, const DequantizeConfig &config);

/// A scale that is known when a plan is made, as kernels are told it.
struct GivenScale {
  Given kind = Given::None;
  float inverse = 1, zero = 0;

  explicit operator bool() const { return kind != Given::None; }
  /// Sets the kernel's parameters.
  void tell(StepBuilder::Args &args) const {
    if (kind != Given::None)
      args["yInverse"] = StepBuilder::f32(inverse);
    if (kind == Given::ScaleAndZero)
      args["yZero"] = StepBuilder::f32(zero);
  }
  void tell(ArgList &args) const {
    if (kind != Given::None)
      args.set("yInverse", StepBuilder::f32(inverse));
    if (kind == Given::ScaleAndZero)
      args.set("yZero", StepBuilder::f32(zero));
  }
};

/// Quantised rows and their scales.
struct QuantisedRows {
  plan::ArgT q, scale;
  int64_t group = 0;                   ///< elements that share a scale; 0: a row, -1: all
  Scalar type = Scalar::I8;            ///< of q
  GivenScale given = {};               ///< of a result, group -1, when it is a constant
  std::optional<plan::ArgT> zero = {}; ///< of rows that are read: zero points i8 beside the scales
};

/// Memory for one step to hand `count` elements to the next.
plan::ArgT workspace(StepBuilder &b, llvm::StringRef what, int64_t count, Scalar type);
/// x[m,k] into rows.q and rows.scale, which is read when rows.group is -1.
void launchQuantize(StepBuilder &b, Op &op, plan::ArgT x, Scalar type, const Dim &m, int64_t k,
                    const QuantisedRows &rows);
/// q[m,k] as elements of `type`.
void launchDequantize(StepBuilder &b, Op &op, const QuantisedRows &rows, plan::ArgT y, Scalar type,
                      const Dim &m, int64_t k);
/// The places of a quantised result (q, s), with s the scale `given`, if any, and its zero point.
llvm::Expected<QuantisedRows> quantisedResult(StepBuilder &b, Op &op, unsigned first, Value *given,
                                              int64_t group, Value *zero = nullptr);

llvm::Error lowerQuantize(StepBuilder &b, Op &op);
llvm::Error lowerDequantize(StepBuilder &b, Op &op);

} // namespace gpt2c
