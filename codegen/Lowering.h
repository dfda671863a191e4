// What lowerings share: sizes, and arguments by the names of a kernel's parameters.
#pragma once

#include "codegen/StepBuilder.h"

#include "ir/Error.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/KvLayout.h"
#include "schedule/products/Operands.h"

#include "llvm/Support/MathExtras.h"

namespace gpt2c {

inline plan::ExprT ceilDivExpr(StepBuilder &b, const Dim &d, int64_t by) {
  return rt::combineExpr(rt::ExprOp::CeilDiv, b.expr(d), rt::constantExpr(by));
}
inline plan::ExprT one() { return rt::constantExpr(1); }

/// Arguments by kernel parameter name; the first error wins.
class ArgList {
public:
  explicit ArgList(StepBuilder &b) : b_(b) {}
  ArgList &in(llvm::StringRef name, Value *v) { return add(name, b_.read(v)); }
  ArgList &out(llvm::StringRef name, Value *v) { return add(name, b_.write(v)); }
  ArgList &i32(llvm::StringRef name, const Dim &d) { return add(name, b_.i32(d)); }
  /// One that is about the layers of a state in pages, of which a device may have some.
  ArgList &i32(llvm::StringRef name, const Dim &d, rt::LayerArg of) {
    plan::ArgT a = b_.i32(d);
    a.index = int(of);
    return add(name, std::move(a));
  }
  ArgList &set(llvm::StringRef name, plan::ArgT a) { return add(name, std::move(a)); }
  /// What there is so far.
  llvm::Expected<StepBuilder::Args> copy() {
    if (error_)
      return take();
    return args_;
  }
  llvm::Expected<StepBuilder::Args> take() {
    if (error_)
      return std::move(error_);
    llvm::consumeError(std::move(error_));
    return std::move(args_);
  }

private:
  ArgList &add(llvm::StringRef name, llvm::Expected<plan::ArgT> a) {
    if (a)
      args_[name] = std::move(*a);
    else
      error_ = llvm::joinErrors(std::move(error_), a.takeError());
    return *this;
  }
  StepBuilder &b_;
  StepBuilder::Args args_;
  llvm::Error error_ = llvm::Error::success();
};

using llvm::divideCeilSigned;

} // namespace gpt2c
