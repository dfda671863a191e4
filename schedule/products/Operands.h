// What decisions and lowerings ask of an op's operands: sizes, types, constants.
#pragma once

#include "ir/Function.h"
#include "schedule/Scalar.h"

namespace gpt2c {

/// All axes but the last, as one.
inline Dim leading(const Value *v) {
  return elementCount(llvm::ArrayRef(v->type.shape).drop_back());
}
inline int64_t lastDim(const Value *v) { return *v->type.shape.back().constant(); }
inline Dim elements(const Value *v) { return elementCount(v->type.shape); }
inline Dim bytesOf(const Value *v) { return storedBytes(v->type); }

Scalar scalarOf(DType t); // F32, F16, BF16 or what is quantised
inline Scalar scalarOf(const Value *v) { return scalarOf(v->type.dtype); }
/// Whether all floating-point operands and results are stored as the fused kernels store them.
bool hasKernelTypes(const Op &op);
inline bool isI32(const Value *v) { return !v || v->type.dtype == DType::I32; }

inline bool isConstant(const Value *v) { return v && v->def() && v->def()->is(OpCode::Constant); }
/// Null: it is no constant.
const Tensor *constantOf(const Value *v);
/// A constant of ones.
bool isOnes(const Value *v);

/// A norm over the last axis with one gain and bias per element.
bool isRowNorm(const Op &op);
/// A layer norm without gain and shift, as fold-norms leaves it.
bool isFoldedNorm(const Op &op);
/// A product with weights: a linear or one of its quantised forms.
bool isProduct(const Op &op);
/// The value that a product adds to its rows; null: none, or it is no product.
Value *residualOf(const Op &op);
/// An op whose result is its operand under another shape.
bool isView(const Op &op);
/// Whether the result has the rows of the operand, maybe in a wider type: the largest element of
/// each is at the same place.
bool keepsRows(const Op &op);

/// Elements of a row of k that share a scale of `scales`; 0: all do.
int64_t groupOf(const Value *scales, int64_t k);
/// How a result is quantised by a scale and a zero point that are constants; None: they are not.
Given givenOf(const Value *scale, const Value *zero, DType to);

} // namespace gpt2c
