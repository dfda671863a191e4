// Which versions of a function treat a row alike, and what is told apart.
#include "codegen/OneOrder.h"

#include "runtime/plan/Expr.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

std::unique_ptr<plan::FunctionT> version(int kernel, int64_t grid, const char *order) {
  auto f = std::make_unique<plan::FunctionT>();
  auto step = std::make_unique<plan::StepT>();
  step->op = "norm";
  step->kernel = kernel;
  step->block = {128, 1, 1};
  step->sum_order = order;
  for (int64_t size : {grid, int64_t(1), int64_t(1)})
    step->grid.push_back(std::make_unique<plan::ExprT>(rt::constantExpr(size)));
  f->steps.push_back(std::move(step));
  return f;
}

bool areAlike(std::unique_ptr<plan::FunctionT> a, std::unique_ptr<plan::FunctionT> b) {
  std::vector<std::unique_ptr<plan::FunctionT>> versions;
  versions.push_back(std::move(a));
  versions.push_back(std::move(b));
  llvm::Error e = checkOneOrder(versions);
  const bool alike = !e;
  llvm::consumeError(std::move(e));
  return alike;
}

TEST(CheckOneOrder, StepsAreAlikeByKernelAndGridOrByTheirOrder) {
  EXPECT_TRUE(areAlike(version(3, 7, ""), version(3, 7, "")));
  EXPECT_FALSE(areAlike(version(3, 7, ""), version(4, 7, "")));
  EXPECT_FALSE(areAlike(version(3, 7, ""), version(3, 8, ""))); // another division of the keys, say
  EXPECT_TRUE(areAlike(version(3, 7, "k16"), version(4, 9, "k16")));
  EXPECT_FALSE(areAlike(version(3, 7, "k16"), version(3, 7, "k16 in 2 parts")));
  EXPECT_FALSE(areAlike(version(3, 7, "k16"), version(3, 7, "")));
  auto more = version(3, 7, "");
  more->steps.push_back(std::move(version(3, 7, "")->steps[0]));
  EXPECT_FALSE(areAlike(version(3, 7, ""), std::move(more)));
}

} // namespace
} // namespace gpt2c
