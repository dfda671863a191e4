#include "codegen/StepBuilder.h"

#include "runtime/Expr.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

TEST(StepBuilder, WaitsForWeightsThatAStepMakes) {
  PlanPool pool;
  plan::FunctionT function;
  StepBuilder b(pool, function, {});
  plan::ArgT weight;
  weight.kind = plan::ArgKind::Weight;
  auto mode = [&](plan::ArgT w, const char *name) {
    KernelSource kernel;
    kernel.name = pool.nextKernelName("product");
    kernel.text = "// " + kernel.name;
    kernel.params = {"x", name};
    StepBuilder::Args args;
    args["x"] = b.sharedScratch("rows", 64);
    args[name] = std::move(w);
    const plan::ExprT one = rt::constantExpr(1);
    b.launch({}, "linear", std::move(kernel), args, {one, one, one}, 0, 0);
    return function.steps.back()->mode;
  };
  EXPECT_EQ(mode(weight, "w"), plan::LaunchMode::Pdl);
  EXPECT_EQ(mode(weight, "wMap"), plan::LaunchMode::Pdl);
  EXPECT_EQ(mode(b.sharedScratch("wide", 64), "w"), plan::LaunchMode::Launch);
  EXPECT_EQ(mode(b.sharedScratch("wide", 64), "wMap"), plan::LaunchMode::Launch);
}

} // namespace
} // namespace gpt2c
