// Ops outside the fused form: loops, places of results, and what is refused. Whether the kernels
// compute what they should is tested by tests/suite/op_kernels.
#include "templates/generic/GenericLowerings.h"
#include "templates/Lowerings.h"

#include "ir/Error.h"
#include "ir/Text.h"
#include "runtime/plan/Expr.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

Dim sym(const char *name) { return Dim::symbol(name); }

TEST(Loop, DropsAxesOfOneAndJoinsDenseNeighbours) {
  Shape sizes{sym("b"), Dim(1), sym("s"), Dim(64)};
  Loop loop{sizes, {denseStrides(sizes), denseStrides(sizes)}};
  loop.simplify();
  EXPECT_EQ(loop.sizes, Shape{sym("b") * sym("s") * Dim(64)});
  EXPECT_EQ(loop.strides[1], Shape{Dim(1)});
}

TEST(Loop, KeepsAxesThatATensorWalksApart) {
  Shape sizes{sym("b"), sym("s"), Dim(64)};
  Loop loop{sizes, {denseStrides(sizes), broadcastStrides({Dim(64)}, sizes)}};
  loop.simplify();
  EXPECT_EQ(loop.sizes, (Shape{sym("b") * sym("s"), Dim(64)}));
  EXPECT_EQ(loop.strides[0], (Shape{Dim(64), Dim(1)}));
  EXPECT_EQ(loop.strides[1], (Shape{Dim(0), Dim(1)}));
}

TEST(Loop, OfAScalarHasNoAxes) {
  Loop loop{{Dim(1), Dim(1)}, {{Dim(5), Dim(1)}}};
  loop.simplify();
  EXPECT_TRUE(loop.sizes.empty());
  EXPECT_TRUE(loop.strides[0].empty());
}

TEST(BroadcastStrides, AlignsAtTheLastAxis) {
  EXPECT_EQ(broadcastStrides({Dim(3), Dim(1), Dim(5)}, {Dim(2), Dim(3), Dim(4), Dim(5)}),
            (Shape{Dim(0), Dim(5), Dim(0), Dim(1)}));
  // Names that inference took to be equal are equal.
  EXPECT_EQ(broadcastStrides({sym("total"), Dim(2)}, {sym("past") + sym("seq"), Dim(2)}),
            (Shape{Dim(2), Dim(1)}));
}

TEST(Table, HasEveryOpThatCanRemain) {
  llvm::StringSet<> without;
  for (const OpInfo *info : allOps())
    if (!info->has(Terminator) && !allKernels().lowers(info->code))
      without.insert(info->mnemonic);
  EXPECT_EQ(without.size(), 2u);
  EXPECT_TRUE(without.contains("non_zero"));  // its result's size depends on the data
  EXPECT_TRUE(without.contains("rank_part")); // of weights: done when a plan is loaded
}

struct Lowered {
  plan::FunctionT function;
  std::string error;
  std::vector<std::string> steps() const {
    std::vector<std::string> out;
    for (auto &s : function.steps)
      out.push_back(s->op);
    return out;
  }
  const plan::ArgT &arg(size_t step, size_t i) const { return *function.steps[step]->args[i]; }
};

Lowered lower(const std::string &body,
              const SymbolBounds &bounds = {{"b", {1, 4}}, {"s", {1, 16}}}) {
  Lowered out;
  auto module = parseModule("module @m {}\n\n" + body, "test.ir");
  if (!module) {
    out.error = llvm::toString(module.takeError());
    return out;
  }
  PlanPool pool;
  StepBuilder builder(pool, out.function, bounds);
  if (llvm::Error e = build(builder, *(*module)->functions.front()))
    out.error = llvm::toString(std::move(e));
  return out;
}

using Names = std::vector<std::string>;

TEST(Outputs, AreComputedInPlaceThroughViews) {
  Lowered f = lower("func @f(%x: f32[b, s]) -> (%y: f32[b, 1, s]) {\n"
                    "  %0 = exp(%x) : f32[b, s]\n"
                    "  %1 = unsqueeze(%0) {axes = [1]} : f32[b, 1, s]\n"
                    "  return %1\n}\n");
  ASSERT_EQ(f.error, "");
  EXPECT_EQ(f.steps(), Names{"exp"});
  EXPECT_EQ(f.arg(0, 0).kind, plan::ArgKind::Output);
  EXPECT_TRUE(f.function.buffers.empty());
}

TEST(Outputs, AreCopiedWhereNoStepWroteThem) {
  Lowered f = lower("func @f(%x: f32[b, s]) -> (%a: f32[b, s], %c: f32[s, b], %d: f32[b, s]) {\n"
                    "  %0 = exp(%x) : f32[b, s]\n"
                    "  %1 = reshape(%x) {shape = [s, b]} : f32[s, b]\n"
                    "  return %0, %1, %0\n}\n");
  ASSERT_EQ(f.error, "");
  EXPECT_EQ(f.steps(), (Names{"exp", "copy", "copy"}));
  EXPECT_EQ(f.arg(1, 0).index, 1);
  EXPECT_EQ(f.arg(1, 1).kind, plan::ArgKind::Input);
  EXPECT_EQ(f.arg(2, 0).index, 2);
  EXPECT_EQ(f.arg(2, 1).kind, plan::ArgKind::Output);
}

/// A function that appends to its first argument and returns it under the same name.
Lowered lowerAppend(const std::string &state) {
  std::string type = "f32[1, 2, 4, 2, 8, 3]";
  return lower("func @f(%" + state + ": " + type + ", %k: f32[b, s, 6], %past: i32[b]) -> (%" +
               state + ": " + type + ") {\n  %0 = kv_append(%" + state +
               ", %k, %k, %past) {layer = 0} : " + type + "\n  return %0\n}\n");
}

TEST(KvAppend, WritesIntoTheState) {
  Lowered f = lowerAppend("kv");
  ASSERT_EQ(f.error, "");
  EXPECT_EQ(f.steps(), Names{"kv_append"});
  EXPECT_EQ(f.arg(0, 0).kind, plan::ArgKind::Input);
}

TEST(KvAppend, LeavesOtherArgumentsAlone) {
  Lowered f = lowerAppend("x");
  ASSERT_EQ(f.error, "");
  EXPECT_EQ(f.steps(), (Names{"kv_append", "kv_append"})); // the copy, then the rows
  EXPECT_EQ(f.arg(0, 0).kind, plan::ArgKind::Output);
  EXPECT_EQ(f.arg(1, 0).kind, plan::ArgKind::Output);
}

TEST(Refused, ListsOpsWhoseSizeDependsOnTheData) {
  Lowered f = lower("func @f(%x: i64[b], %n: i64[]) -> (%y: i64[2, u], %z: i64[v]) {\n"
                    "  %0 = unsqueeze(%x) {axes = [0]} : i64[1, b]\n"
                    "  %1 = non_zero(%0) : i64[2, u]\n"
                    "  %2 = range(%n, %n, %n) : i64[v]\n"
                    "  return %1, %2\n}\n");
  EXPECT_NE(f.error.find("depends on the data: non_zero, range"), std::string::npos) << f.error;
}

// Products of many rows without int8 activations: weights are widened for each, one after the
// other.
TEST(Temporaries, ShareMemoryWithThoseOfOtherOps) {
  Lowered f = lower("func @f(%x: f16[s, 64]) -> (%y: f16[s, 64]) {\n"
                    "  %a = constant dense<1> : i8[96, 64]\n"
                    "  %b = constant dense<2> : i8[64, 96]\n"
                    "  %sa = constant dense<0.5> : f32[96, 1]\n"
                    "  %sb = constant dense<0.5> : f32[64, 1]\n"
                    "  %0 = quantized_linear(%x, %a, %sa) : f16[s, 96]\n"
                    "  %1 = quantized_linear(%0, %b, %sb) : f16[s, 64]\n"
                    "  return %1\n}\n",
                    {{"s", {1, 1024}}});
  ASSERT_EQ(f.error, "");
  EXPECT_EQ(f.steps(), (Names{"dequantize", "quantized_linear", "dequantize", "quantized_linear"}));
  EXPECT_EQ(f.function.scratch_bytes, 0u);
  std::vector<const plan::BufferT *> wide;
  for (auto &buffer : f.function.buffers)
    if (buffer->name == "wide-weights")
      wide.push_back(buffer.get());
  ASSERT_EQ(wide.size(), 2u);
  EXPECT_EQ(wide[0]->last_step, 1);
  EXPECT_EQ(wide[1]->first_step, 2);
  EXPECT_EQ(wide[0]->offset, wide[1]->offset);
}

/// A product that adds the last row of each sequence of %x; `rest` follows.
Lowered lowerLastRows(const std::string &rest) {
  return lower("func @f(%x: f16[b, s, 64], %l: i32[b]) -> (%y: f16[b, 64], %z: f16[b, 64]) {\n"
               "  %w = constant dense<1> : f16[64, 64]\n"
               "  %0 = exp(%x) : f16[b, s, 64]\n"
               "  %1 = gather_last(%0, %l) : f16[b, 64]\n" +
               rest);
}

TEST(GatherLast, HasNoStepWhereProductsAddIt) {
  Lowered f = lowerLastRows("  %2 = gather_last(%x, %l) : f16[b, 64]\n"
                            "  %3 = linear(%2, %w, none, %1) : f16[b, 64]\n"
                            "  %4 = linear(%3, %w, none, %1) : f16[b, 64]\n"
                            "  return %3, %4\n}\n");
  ASSERT_EQ(f.error, "");
  EXPECT_EQ(f.steps(), (Names{"exp", "gather_last", "linear+residual", "linear+residual"}));
  EXPECT_EQ(f.function.buffers[0]->last_step, 3); // it is read until then
}

TEST(GatherLast, HasAStepWhereAnythingElseReadsIt) {
  for (const char *other : {"neg(%1)", "linear(%1, %w)", "linear(%1, %w, none, %1)"}) {
    Lowered f =
        lowerLastRows("  %2 = linear(%1, %w, none, %1) : f16[b, 64]\n  %3 = " + std::string(other) +
                      " : f16[b, 64]\n  return %2, %3\n}\n");
    ASSERT_EQ(f.error, "");
    EXPECT_EQ(f.steps()[1], "gather_last") << other;
  }
}

TEST(Sizes, ThatBoundsAloneWouldMakeNegativeStopAtZero) {
  Lowered f = lower("func @f(%x: f32[s]) -> (%y: f32[s - 1]) {\n"
                    "  %0 = slice(%x) {starts = [1], ends = [s], axes = [0]} : f32[s - 1]\n"
                    "  return %0\n}\n",
                    {{"s", {0, 16}}});
  ASSERT_EQ(f.error, "");
  std::vector<int64_t> symbols{0};
  EXPECT_EQ(*rt::evalExpr(*f.function.outputs[0]->shape[0], symbols), 0);
  EXPECT_EQ(*rt::evalExpr(*f.function.steps[0]->grid[0], symbols), 0);
}

TEST(Sizes, SaturateInsteadOfOverflowing) {
  PlanPool pool;
  plan::FunctionT function;
  StepBuilder b(pool, function, {{"a", {0, int64_t(1) << 40}}});
  EXPECT_EQ(b.maximum(sym("a") * sym("a")), INT64_MAX);
  EXPECT_EQ(b.maximum(sym("a") - sym("a") * sym("a")), int64_t(1) << 40);
}

TEST(Kernels, AreSharedBetweenShapes) {
  auto module =
      parseModule("module @m {}\n\nfunc @f(%x: f32[b, 8], %z: f32[s, 3]) -> (%y: f32[b, 8], %w: "
                  "f32[s, 3]) {\n  %0 = exp(%x) : f32[b, 8]\n  %1 = exp(%z) : f32[s, 3]\n"
                  "  return %0, %1\n}\n",
                  "test.ir");
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  PlanPool pool;
  plan::FunctionT function;
  StepBuilder b(pool, function, {});
  ASSERT_FALSE(bool(build(b, *(*module)->functions.front())));
  EXPECT_EQ(pool.kernels().size(), 1u);
}

} // namespace
