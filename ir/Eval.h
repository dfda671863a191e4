// What an op's reference evaluation sees.
//
// Numerics, for every op: floating-point operands arrive as F32, or all as F64 when the executor
// runs in double precision; f16 and bf16 operands were widened to F32 before and results are
// rounded to nearest even after the op (so an op computes in at least single precision and rounds
// once). Ops with the trait DataMovement see the stored type. Sums are accumulated in the type of
// the operands, dot products in BLAS order for F32. NaN propagates through arithmetic, min and max;
// comparisons with NaN are false. Integer arithmetic wraps; division truncates toward zero. Casts
// saturate nowhere; see Tensor::cast.
#pragma once

#include "ir/Infer.h"

namespace gpt2c {

class EvalContext {
public:
  EvalContext(const Op &op, llvm::ArrayRef<Tensor> inputs, llvm::MutableArrayRef<Tensor> outputs,
              const SymbolMap &symbols)
      : op_(op), inputs_(inputs), outputs_(outputs), symbols_(symbols) {}
  const Op &op() const { return op_; }
  unsigned numInputs() const { return inputs_.size(); }
  bool has(unsigned i) const { return i < inputs_.size() && inputs_[i].valid(); }
  const Tensor &input(unsigned i) const { return inputs_[i]; }
  Tensor &output(unsigned i = 0) { return outputs_[i]; }
  /// Allocates result i. The dtype is the declared one, except that a float result is F64 when an
  /// operand is F64 and F32 when the declared type is f16 or bf16 (unless the op is DataMovement).
  Tensor &allocate(llvm::ArrayRef<int64_t> shape, unsigned i = 0);
  DType resultDType(unsigned i = 0) const;
  /// Values of a Dims attribute or an integer operand.
  llvm::Expected<std::vector<int64_t>> dims(llvm::StringRef attr) const;
  std::vector<int64_t> ints(unsigned operand) const;
  const SymbolMap &symbols() const { return symbols_; }
  llvm::Error error(const llvm::Twine &message) const;

private:
  const Op &op_;
  llvm::ArrayRef<Tensor> inputs_;
  llvm::MutableArrayRef<Tensor> outputs_;
  const SymbolMap &symbols_;
};

/// Numpy broadcasting of concrete shapes; none when they do not broadcast.
std::optional<llvm::SmallVector<int64_t, 4>> broadcastShapes(llvm::ArrayRef<int64_t> a,
                                                             llvm::ArrayRef<int64_t> b);

/// For each element of `out` (row-major) the element index of an operand of shape `in` broadcast to
/// it. Calls f(outIndex, inIndex...) with one index per shape in `ins`.
void forEachBroadcast(llvm::ArrayRef<int64_t> out, llvm::ArrayRef<llvm::ArrayRef<int64_t>> ins,
                      llvm::function_ref<void(int64_t, llvm::ArrayRef<int64_t>)> f);

/// Elementwise helpers for the ops' files: the functor is called with float, double, and for
/// `binary` int32_t and int64_t. `unary(c, [](auto x) { return std::exp(x); })`.
template <typename F> llvm::Error evalUnary(EvalContext &c, F f);
template <typename F> llvm::Error evalBinary(EvalContext &c, F f);
/// Comparison and logic: result Bool.
template <typename F> llvm::Error evalPredicate(EvalContext &c, F f);

} // namespace gpt2c

#include "ir/EvalImpl.h"
