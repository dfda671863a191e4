// Recognition by meaning: run a piece of the graph on chosen inputs with the reference executor in
// double precision and compare with a formula, instead of comparing spellings.
#pragma once

#include "ir/Executor.h"
#include "passes/Rewrite.h"

namespace gpt2c {

/// Values for every symbol of the function, different for each `trial`: small, distinct, at
/// least 1. Trials cover unequal lengths.
SymbolMap probeSymbols(const Function &f, unsigned trial);

/// A shape under `symbols`; none when a dimension has no value or is negative, or when a tensor of
/// it would have more elements than a trial may touch (2^27).
std::optional<llvm::SmallVector<int64_t, 4>> concreteShape(const Type &t, const SymbolMap &symbols);

/// A deterministic tensor of doubles in (-scale, scale).
Tensor randomTensor(llvm::ArrayRef<int64_t> shape, uint64_t seed, double scale = 1.0);
/// 1, 2, 3, ... as doubles.
Tensor iotaTensor(llvm::ArrayRef<int64_t> shape);

/// The ops between `root` and the values at which `stop` says so (or that are arguments). Leaves:
/// arguments and stopped values; constants and ops without operands belong to the slice.
struct BackwardSlice {
  llvm::SmallVector<Op *> ops;
  llvm::SmallVector<Value *> leaves;
  bool contains(const Op *op) const;
  bool hasLeaf(const Value *v) const;
};
BackwardSlice backwardSlice(Value *root, llvm::function_ref<bool(Value *)> stop);

/// Whether `a` is computed from `fromA` as `b` is from `fromB`: by equal ops on equal constants and
/// on the same arguments.
bool computedAlike(const Value *a, const Value *fromA, const Value *b, const Value *fromB);

/// One evaluation: `root` in double precision with the given leaves bound. Errors are swallowed (a
/// probe that cannot run does not match); `why` receives the reason. What would take more than 4
/// GiB for all its values is not begun.
std::optional<Tensor> probe(const Function &f, Value *root, Executor::Bindings bound,
                            const SymbolMap &symbols, std::string *why = nullptr);
/// The same for several values at once, in double precision or in the graph's own.
std::optional<std::vector<Tensor>> probeAll(const Function &f, llvm::ArrayRef<Value *> roots,
                                            Executor::Bindings bound, const SymbolMap &symbols,
                                            bool float64, std::string *why = nullptr);

} // namespace gpt2c
