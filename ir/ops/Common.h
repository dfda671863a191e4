// Helpers shared by the ops' files.
#pragma once

#include "ir/DimBounds.h"
#include "ir/Eval.h"

namespace gpt2c {

#define OP(Name, ...) extern const OpInfo op##Name;
#include "ir/Ops.def"

/// Bytes of all operands and results.
Dim ioBytes(const Op &op);
/// One flop per element of result 0, every operand read and every result written once.
Cost elementwiseCost(const Op &op);
/// One flop per element of operand 0.
Cost reductionCost(const Op &op);

// Decisions about dimensions. None when the answer depends on the symbols' values.
std::optional<bool> isEqual(const Dim &a, const Dim &b, const DimBounds &bounds);
std::optional<bool> isLess(const Dim &a, const Dim &b, const DimBounds &bounds);
inline std::optional<bool> isLessEqual(const Dim &a, const Dim &b, const DimBounds &bounds) {
  auto r = isLess(b, a, bounds);
  return r ? std::optional(!*r) : std::nullopt;
}

// Arithmetic on contents; none when the result is not a Dim (or could overflow).
std::optional<Dim> addDims(const Dim &a, const Dim &b, const DimBounds &bounds = {});
std::optional<Dim> subDims(const Dim &a, const Dim &b, const DimBounds &bounds = {});
std::optional<Dim> mulDims(const Dim &a, const Dim &b, const DimBounds &bounds = {});
/// Toward zero.
std::optional<Dim> divDims(const Dim &a, const Dim &b, const DimBounds &bounds);
std::optional<Dim> minDims(const Dim &a, const Dim &b, const DimBounds &bounds);
std::optional<Dim> maxDims(const Dim &a, const Dim &b, const DimBounds &bounds);
/// A truth value as the content of a Bool element.
inline std::optional<Dim> boolDim(std::optional<bool> b) {
  return b ? std::optional(Dim(int64_t(*b))) : std::nullopt;
}

/// The dimensions as numbers, when all are constant.
std::optional<llvm::SmallVector<int64_t, 4>> concreteShape(llvm::ArrayRef<Dim> shape);

/// The rank of a result whose shape is the elements of operand i, a vector of known length: an
/// error where the length is not known or no real tensor has that many dimensions.
llvm::Expected<int64_t> rankFromLength(const InferContext &c, unsigned i);

// Inference. Where an integer result's elements follow from those of the operands, the content is
// set too.
using DimFunction = std::optional<Dim> (*)(const Dim &, const Dim &, const DimBounds &);
llvm::Error inferFloatUnary(InferContext &c);   // the operand's type, which must be floating point
llvm::Error inferNumericUnary(InferContext &c); // the operand's type, not Bool
llvm::Error inferArithmetic(InferContext &c,
                            DimFunction f = nullptr); // broadcast, one numeric dtype
llvm::Error inferCompare(InferContext &c,
                         DimFunction f = nullptr); // broadcast, one dtype, gives Bool
llvm::Error inferLogic(InferContext &c, DimFunction f = nullptr);     // broadcast of Bools
llvm::Error inferReduction(InferContext &c, DimFunction f = nullptr); // attributes axes, keepdims
/// The content of a result whose elements are elements of the first `dataOperands` operands, found
/// by evaluating the op on their positions. Call after the result's type is set; the other operands
/// must be known constants.
void forwardContent(InferContext &c, unsigned dataOperands = 1);

// A list of integers given as an attribute or, before shapes are resolved, as an operand.
bool listGiven(const Op &op, llvm::StringRef attr, unsigned operand);
std::optional<Dims> knownList(const InferContext &c, llvm::StringRef attr, unsigned operand);
llvm::Expected<std::vector<int64_t>> listValue(const EvalContext &c, llvm::StringRef attr,
                                               unsigned operand);

// Evaluation.
llvm::SmallVector<int64_t, 4> rowMajorStrides(llvm::ArrayRef<int64_t> shape);
int64_t product(llvm::ArrayRef<int64_t> dims);
/// out[i0, i1, ...] = in[offset + i0 * strides[0] + i1 * strides[1] + ...], any element type.
void copyStrided(const Tensor &in, int64_t offset, llvm::ArrayRef<int64_t> strides, Tensor &out);
/// Normalised axes of a reduction, sorted; all when the list is empty.
llvm::Expected<llvm::SmallVector<int64_t, 4>> reducedAxes(const EvalContext &c, unsigned rank);
/// Calls f with a value of the unsigned type that has the size of an element; for copies.
template <typename F> void withWord(unsigned byteSize, F f) {
  switch (byteSize) {
  case 1:
    return f(uint8_t{});
  case 2:
    return f(uint16_t{});
  case 4:
    return f(uint32_t{});
  default:
    return f(uint64_t{});
  }
}

/// Integer arithmetic that wraps; plain arithmetic for floating point.
template <typename T>
using WrapType = std::conditional_t<std::is_floating_point_v<T>, T,
                                    std::conditional_t<(sizeof(T) > 4), uint64_t, uint32_t>>;
template <typename T> T wrapAdd(T a, T b) {
  return static_cast<T>(WrapType<T>(a) + WrapType<T>(b));
}
template <typename T> T wrapSub(T a, T b) {
  return static_cast<T>(WrapType<T>(a) - WrapType<T>(b));
}
template <typename T> T wrapMul(T a, T b) {
  return static_cast<T>(WrapType<T>(a) * WrapType<T>(b));
}

} // namespace gpt2c
