// Which tensors of a plan stand for which of another function that was made from the same model: of
// the exported graph, of another plan.
#pragma once

#include "ir/Executor.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace gpt2c {

/// Whether tensors of the value are compared across forms of one model: results of floating point
/// that are computed, but for the KV state, a norm whose gain moved elsewhere, and scales of
/// integers.
bool isComparedAcross(const Value &v);
/// Results of floating point that are computed, but for the KV state.
bool isComputedFloat(const Value &v);

/// Binds arguments and symbols. An error without a code where a shape does not fit.
llvm::Expected<Executor::Bindings>
bindArguments(const Function &f, llvm::ArrayRef<Tensor> arguments, SymbolMap &symbols);

/// The values of one side, in the order of the function, found by ONNX nodes.
class Counterparts {
public:
  explicit Counterparts(llvm::ArrayRef<Value *> values);
  /// The indices of those whose ops have a node in common with v's: those with most of all nodes in
  /// common first, of these ops of the same kind, of these the last first.
  llvm::SmallVector<size_t> of(const Value &v) const;

private:
  llvm::ArrayRef<Value *> values_;
  llvm::DenseMap<llvm::StringRef, llvm::SmallVector<size_t, 2>> byNode_;
};

/// The sequences of a comparison: the other side has all of their tokens, the plan those from `cut`
/// on.
struct ComparedRows {
  int64_t batch = 0, tokens = 0, cut = 0;
};

/// The part of `whole` that `got` is to equal, in the order of got's elements; none when the sizes
/// differ. A plan keeps heads behind tokens, and may keep the last rows alone.
std::optional<Tensor> partFor(const Tensor &got, Tensor whole, const ComparedRows &rows);
/// `whole` of the other side with those of its rows in place that the plan has; none when the sizes
/// differ.
std::optional<Tensor> withPart(const Tensor &whole, const Tensor &got, const ComparedRows &rows);

} // namespace gpt2c
