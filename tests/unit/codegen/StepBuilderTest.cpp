#include "codegen/StepBuilder.h"

#include "templates/Lowerings.h"

#include "ir/Text.h"
#include "runtime/plan/Expr.h"

#include <gtest/gtest.h>

#include <map>

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

/// Logits of up to `rows` rows by a product, with what else is returned.
plan::FunctionT vocabulary(int rows, const std::string &more, const std::string &type) {
  auto module =
      parseModule("module @m {}\n\nfunc @f(%x: f16[b, 64], %w: f16[16400, 64]) -> "
                  "(%logits: f16[b, 16400], %y: " +
                      type + ") {\n  %0 = linear(%x, %w) : f16[b, 16400]\n  %1 = " + more + " : " +
                      type + "\n  return %0, %1\n}\n",
                  "test.ir");
  plan::FunctionT function;
  if (!module) {
    ADD_FAILURE() << llvm::toString(module.takeError());
    return function;
  }
  PlanPool pool;
  pool.target = Target::of({"sm_90a"});
  StepBuilder b(pool, function, {{"b", {1, rows}}});
  if (llvm::Error e = build(b, *(*module)->functions.front()))
    ADD_FAILURE() << llvm::toString(std::move(e));
  return function;
}

TEST(StepBuilder, LogitsAreOptionalWhereOnlyTheirLargestIsRead) {
  const std::string largest = "arg_max(%0) {axis = -1, keepdims = false, dtype = i32}";
  for (int rows : {8, 128}) {
    plan::FunctionT f = vocabulary(rows, largest, "i32[b]");
    ASSERT_EQ(f.outputs.size(), 2u);
    EXPECT_TRUE(f.outputs[0]->optional);
    EXPECT_FALSE(f.outputs[1]->optional);
    EXPECT_FALSE(vocabulary(rows, "exp(%0)", "f16[b, 16400]").outputs[0]->optional);
  }
  // arg_max reads what the tiles of these wrote.
  EXPECT_FALSE(vocabulary(1024, largest, "i32[b]").outputs[0]->optional);
}

TEST(StepBuilder, ABufferSaysWhichValueItHoldsAndWhenItIsWhole) {
  auto module = parseModule("module @m {}\n\nfunc @f(%x: f32[b, 64], %w: f32[64, 64]) -> "
                            "(%y: f32[b, 64]) {\n  %0 = exp(%x) : f32[b, 64]\n"
                            "  %1 = linear(%0, %w) : f32[b, 64]\n  %2 = exp(%1) : f32[b, 64]\n"
                            "  return %2\n}\n",
                            "test.ir");
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  plan::FunctionT function;
  PlanPool pool;
  StepBuilder b(pool, function, {{"b", {1, 4}}});
  llvm::cantFail(build(b, *(*module)->functions.front()));
  std::map<int, const plan::BufferT *> byValue;
  for (const auto &buffer : function.buffers)
    if (buffer->value >= 0)
      byValue[buffer->value] = buffer.get();
  ASSERT_EQ(byValue.size(), 2u) << "%2 is the output";
  for (auto [value, buffer] : byValue) {
    EXPECT_EQ(buffer->shape.size(), 2u);
    EXPECT_GE(buffer->whole_step, buffer->first_step);
    EXPECT_LE(buffer->whole_step, buffer->last_step);
  }
  EXPECT_EQ(byValue[0]->whole_step, 0);
  EXPECT_EQ(byValue[1]->whole_step, int(function.steps.size()) - 2)
      << "however many steps it takes";
}

TEST(StepBuilder, BuffersAreAsLargeAsAJointLimitAllows) {
  auto module = parseModule("module @m {}\n\nfunc @f(%x: f32[past, 8], %y: f32[seq, 8]) -> "
                            "(%z: f32[past + seq, 8]) {\n"
                            "  %0 = concat(%x, %y) {axis = 0} : f32[past + seq, 8]\n"
                            "  %1 = softmax(%0) {axis = 0} : f32[past + seq, 8]\n"
                            "  return %1\n}\n",
                            "test.ir");
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  Function &f = *(*module)->functions.front();
  f.limits.atMost(Dim::symbol("past") + Dim::symbol("seq"), 16);
  plan::FunctionT function;
  PlanPool pool;
  StepBuilder b(pool, function, {{"past", {0, 16}}, {"seq", {1, 16}}});
  llvm::cantFail(build(b, f));
  ASSERT_EQ(function.limits.size(), 1u);
  EXPECT_EQ(function.limits[0]->most, 16);
  ASSERT_FALSE(function.buffers.empty());
  EXPECT_EQ(function.buffers[0]->bytes, 16u * 8 * 4);
  std::vector<rt::Range> symbols;
  for (const auto &s : function.symbols)
    symbols.push_back({s->min, s->max});
  auto rows = rt::exprRange(*function.buffers[0]->shape[0], symbols);
  ASSERT_TRUE(bool(rows));
  EXPECT_EQ(rows->hi, 16) << "what a plan's reader can tell";
}

} // namespace
} // namespace gpt2c
