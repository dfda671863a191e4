// Creates ops with inferred types at an insertion point.
#pragma once

#include "ir/Infer.h"

namespace gpt2c {

class Builder {
public:
  /// Inserts before `before`; null: at the end of `function`.
  explicit Builder(Function &function, Op *before = nullptr)
      : function_(function), before_(before) {}

  Function &function() const { return function_; }
  void setInsertionPoint(Op *before) { before_ = before; }
  /// Locations given to every op created from now on.
  void setLocations(llvm::ArrayRef<llvm::StringRef> names) {
    locations_.assign(names.begin(), names.end());
  }

  /// An op with the given attributes; its inference error is returned and nothing is left behind.
  llvm::Expected<Op *> create(OpCode code, llvm::ArrayRef<Value *> operands,
                              llvm::ArrayRef<NamedAttr> attrs = {}, unsigned numResults = 0);
  /// The same for ops with one result.
  llvm::Expected<Value *> value(OpCode code, llvm::ArrayRef<Value *> operands,
                                llvm::ArrayRef<NamedAttr> attrs = {});
  Value *constant(Tensor t);
  void ret(llvm::ArrayRef<Value *> values);

  /// Ops created since construction or the last clear, in order.
  llvm::ArrayRef<Op *> created() const { return created_; }

private:
  Function &function_;
  Op *before_;
  llvm::SmallVector<llvm::StringRef, 2> locations_;
  llvm::SmallVector<Op *, 8> created_;
};

} // namespace gpt2c
