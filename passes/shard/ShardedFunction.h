// A function of ranks while it is built: which of its values a rank has whole, and of which a part.
#pragma once

#include "ir/Builder.h"
#include "passes/shard/Cut.h"

#include "llvm/ADT/DenseMap.h"

#include <map>
#include <tuple>

namespace gpt2c {

/// Of a value what a rank has: the columns of the cut, which are its last axis, or heads and their
/// elements, its last two.
struct Part {
  Value *value = nullptr;
  Cut cut;
  int axes = 1;
};

/// Knows values by those of the function that it is made from.
class ShardedFunction {
public:
  ShardedFunction(const Function &from, int64_t ranks, llvm::StringRef name)
      : from_(from), ranks_(ranks), made_(std::make_unique<Function>(name.str())), b_(*made_) {}

  int64_t ranks() const { return ranks_; }
  Builder &builder() { return b_; }
  Function &function() { return *made_; }
  /// Returns what `from` returns.
  llvm::Expected<std::unique_ptr<Function>> finish();

  const Part *part(const Value *v) const {
    auto it = parts_.find(v);
    return it == parts_.end() ? nullptr : &it->second;
  }
  void setPart(const Value *of, Value *value, Cut cut, int axes = 1);
  void setWhole(const Value *of, Value *value);

  /// `v` with all of its columns: gathered where ranks have parts, with a constant copied.
  llvm::Expected<Value *> whole(const Value *v);
  /// The same where there is a value.
  llvm::Expected<Value *> wholeIfAny(const Value *v) { return v ? whole(v) : nullptr; }
  /// What a rank has of a value along an axis.
  llvm::Expected<Value *> rankPart(const Value *v, int64_t axis, const Cut &cut);

private:
  llvm::Expected<Value *> gather(const Part &part, const Value *v);
  Value *constant(const Value *v);

  const Function &from_;
  int64_t ranks_;
  std::unique_ptr<Function> made_;
  Builder b_;
  llvm::DenseMap<const Value *, Value *> whole_;
  llvm::DenseMap<const Value *, Part> parts_;
  std::map<std::tuple<const Value *, int64_t, int64_t, std::vector<int64_t>>, Value *> rankParts_;
};

/// Adds `op`, of which an operand is a part, over the columns of the rank. False, and nothing is
/// added, where it does not treat columns by themselves.
llvm::Expected<bool> addByColumns(ShardedFunction &to, const Op &op);

} // namespace gpt2c
