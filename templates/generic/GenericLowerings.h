// Lowerings of the ops that no fused kernel covers: each becomes a launch of its own, for any shape
// and element type.
#pragma once

#include "codegen/KernelCall.h"

namespace gpt2c {

/// Null: the op has no kernel.
Lowering genericLoweringOf(OpCode code);

llvm::Error lowerElementwise(StepBuilder &b, Op &op);
llvm::Error lowerGated(StepBuilder &b, Op &op);

// Shapes and data movement.
llvm::Error lowerView(StepBuilder &b, Op &op);
llvm::Error lowerContent(StepBuilder &b, Op &op);
llvm::Error lowerTranspose(StepBuilder &b, Op &op);
llvm::Error lowerExpand(StepBuilder &b, Op &op);
llvm::Error lowerTile(StepBuilder &b, Op &op);
llvm::Error lowerConcat(StepBuilder &b, Op &op);
llvm::Error lowerSlice(StepBuilder &b, Op &op);
llvm::Error lowerTrilu(StepBuilder &b, Op &op);
llvm::Error lowerRange(StepBuilder &b, Op &op);
llvm::Error lowerConstantOfShape(StepBuilder &b, Op &op);
llvm::Error lowerOneHot(StepBuilder &b, Op &op);
llvm::Error lowerPositions(StepBuilder &b, Op &op);
llvm::Error lowerRope(StepBuilder &b, Op &op);

// Gathers and scatters.
llvm::Error lowerGather(StepBuilder &b, Op &op);
llvm::Error lowerGatherElements(StepBuilder &b, Op &op);
llvm::Error lowerGatherND(StepBuilder &b, Op &op);
llvm::Error lowerScatterND(StepBuilder &b, Op &op);
llvm::Error lowerGenericGatherLast(StepBuilder &b, Op &op);
llvm::Error lowerGenericEmbed(StepBuilder &b, Op &op);

// Reductions, scans, norms, products.
llvm::Error lowerReduction(StepBuilder &b, Op &op);
llvm::Error lowerGenericArgMax(StepBuilder &b, Op &op);
llvm::Error lowerSoftmax(StepBuilder &b, Op &op);
llvm::Error lowerCumSum(StepBuilder &b, Op &op);
llvm::Error lowerGenericNorm(StepBuilder &b, Op &op);
llvm::Error lowerMatMul(StepBuilder &b, Op &op);

/// Softmax along the last axis, of scale x + bias under a mask; null: none.
struct RowSoftmax {
  Value *x, *mask, *bias;
  double scale;
  bool causal;
  /// A row of -infinity gives NaN, not zeros.
  bool plain;
};
llvm::Error lowerRowSoftmax(StepBuilder &b, Op &op, const RowSoftmax &s);
llvm::Error lowerMaskedSoftmax(StepBuilder &b, Op &op);

// Attention with separate queries, keys and values.
llvm::Error lowerAttention(StepBuilder &b, Op &op);
llvm::Error lowerKvAppend(StepBuilder &b, Op &op);
llvm::Error lowerCachedAttention(StepBuilder &b, Op &op);

/// The state that the op returns takes over the storage of Kv; an argument other than the KV state,
/// or a constant, is copied instead.
llvm::Error takeOver(StepBuilder &b, Op &op);

/// Unsupported, with the op and the reason.
llvm::Error noKernel(const Op &op, const llvm::Twine &why);

/// `axis` counted from the front.
inline unsigned axisOf(int64_t axis, size_t rank) { return axis < 0 ? axis + rank : axis; }
/// Elements of a list that is an attribute, or an operand whose elements inference knows; none when
/// the graph computes them from data.
std::optional<Dims> knownList(const Op &op, llvm::StringRef attr, unsigned operand);

} // namespace gpt2c
