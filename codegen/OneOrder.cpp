#include "codegen/OneOrder.h"

#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static bool isLike(const plan::StepT &a, const plan::StepT &b) {
  if (!a.sum_order.empty() || !b.sum_order.empty())
    return a.sum_order == b.sum_order;
  // The lowest index of the largest is the same in any order.
  if (a.op == "arg_max" && b.op == "arg_max")
    return true;
  return a.kernel == b.kernel && a.block == b.block &&
         llvm::equal(a.grid, b.grid, [](auto &x, auto &y) { return x->code == y->code; });
}

llvm::Error checkOneOrder(llvm::ArrayRef<std::unique_ptr<plan::FunctionT>> versions) {
  const auto &first = versions.front()->steps;
  for (const auto &version : versions.drop_front()) {
    if (version->steps.size() != first.size())
      return makeError(ExitCode::Unsupported, "versions have " + llvm::Twine(first.size()) +
                                                  " and " + llvm::Twine(version->steps.size()) +
                                                  " steps");
    for (auto [i, a, b] : llvm::enumerate(first, version->steps))
      if (!isLike(*a, *b))
        return makeError(ExitCode::Unsupported,
                         "step " + llvm::Twine(i) + ", " + a->op +
                             ", is summed up in another order for other numbers of rows");
  }
  return llvm::Error::success();
}

} // namespace gpt2c
