#include "codegen/StepBuilder.h"

#include "templates/Lowerings.h"

#include "ir/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gpt2c {
namespace {

struct Mlp {
  int rows = 32, width = 256, hidden = 512;
  std::string gain = "1.0", bias = "%b2", returned = "%y", returnedType = "";
  bool hopper = true;
};

struct Steps {
  PlanPool pool;
  plan::FunctionT function;

  explicit Steps(const Mlp &m) {
    const std::string d = std::to_string(m.width), hidden = std::to_string(m.hidden),
                      row = "f16[b, " + d + "]",
                      type = m.returnedType.empty() ? row : m.returnedType;
    auto constant = [](const std::string &name, const std::string &value,
                       const std::string &shape) {
      return "  %" + name + " = constant dense<" + value + "> : f16[" + shape + "]\n";
    };
    auto module = parseModule(
        "module @m {}\n\nfunc @f(%x: " + row + ") -> (%y: " + row + ", %z: " + type + ") {\n" +
            constant("one", m.gain, d) + constant("w1", "0.5", hidden + ", " + d) +
            constant("b1", "-0.5", hidden) + constant("w2", "-0.5", d + ", " + hidden) +
            constant("b2", "0.25", d) + "  %n = layer_norm(%x, %one, none) : " + row +
            "\n  %h = linear(%n, %w1, %b1) {activation = \"gelu_tanh\"} : f16[b, " + hidden +
            "]\n  %y = linear(%h, %w2, " + m.bias + ", %x) : " + row + "\n  return %y, " +
            m.returned + "\n}\n",
        "test.ir");
    if (!module) {
      ADD_FAILURE() << llvm::toString(module.takeError());
      return;
    }
    pool.target = Target::of({m.hopper ? "sm_90a" : "sm_80"});
    StepBuilder b(pool, function, {{"b", {1, m.rows}}});
    if (llvm::Error e = build(b, *(*module)->functions.front()))
      ADD_FAILURE() << llvm::toString(std::move(e));
  }
  bool isOne() const {
    return llvm::count_if(pool.kernels(), [](const KernelSource &k) {
             return llvm::StringRef(k.name).starts_with("mlp_cluster");
           }) == 1;
  }
};

TEST(MlpLowering, OneLaunchHasBothProducts) {
  Steps s({});
  ASSERT_TRUE(s.isOne());
  EXPECT_EQ(s.function.steps[0]->op, "layer_norm+linear+bias+gelu_tanh+linear+bias+residual");
  EXPECT_EQ(s.function.buffers.size(), 0u); // the hidden value has no place
  EXPECT_TRUE(Steps({.rows = 17}).isOne());
  EXPECT_TRUE(Steps({.width = 1024, .hidden = 1024}).isOne());
}

TEST(MlpLowering, OthersHaveTwo) {
  EXPECT_FALSE(Steps({.rows = 16}).isOne());
  EXPECT_FALSE(Steps({.rows = 33}).isOne());
  EXPECT_FALSE(Steps({.width = 320}).isOne());
  EXPECT_FALSE(Steps({.width = 1280, .hidden = 768}).isOne());
  EXPECT_FALSE(Steps({.hidden = 640}).isOne());
  EXPECT_FALSE(Steps({.gain = "2.0"}).isOne()); // fold-norms would have left none
  EXPECT_FALSE(Steps({.bias = "none"}).isOne());
  EXPECT_FALSE(Steps({.returned = "%h", .returnedType = "f16[b, 512]"}).isOne());
  EXPECT_FALSE(Steps({.hopper = false}).isOne());
}

// Two layers of attention, each with a state of its own, and MLP: the first MLP brings the second
// attention's state nearer, the second none, by the same kernel.
void checkStateAhead(int queries, int headsBehind, bool expected) {
  const std::string row = llvm::formatv("f16[b, {0}, 256]", queries);
  std::string layers, x = "x", states[2];
  for (int i = 0; i < 2; ++i) {
    const int heads = i ? headsBehind : 4;
    states[i] = llvm::formatv("f16[2, 2, slots, {0}, 64, {1}]", heads, 256 / heads);
    layers += llvm::formatv(R"(
  %q{0} = linear(%{1}, %wq, none) : f16[b, {2}, 768]
  %s{0}, %a{0} = append_attention(%kv{0}, %q{0}, %past)
      {{layer = {0}, num_heads = {3}, scale = 0.125} : {4}, {5}
  %n{0} = layer_norm(%a{0}, %one, none) : {5}
  %h{0} = linear(%n{0}, %w1, %b1) {{activation = "gelu_tanh"} : f16[b, {2}, 512]
  %y{0} = linear(%h{0}, %w2, %b2, %a{0}) : {5}
)",
                            i, x, queries, heads, states[i], row);
    x = llvm::formatv("y{0}", i);
  }
  auto module = parseModule(llvm::formatv(R"(module @m {{}

func @f(%x: {0}, %kv0: {1}, %kv1: {2}, %past: i32[b]) -> (%y1: {0}, %s0: {1}, %s1: {2}) {{
  %one = constant dense<1.0> : f16[256]
  %wq = constant dense<0.5> : f16[768, 256]
  %w1 = constant dense<0.5> : f16[512, 256]
  %b1 = constant dense<0.5> : f16[512]
  %w2 = constant dense<0.5> : f16[256, 512]
  %b2 = constant dense<0.5> : f16[256]
{3}  return %y1, %s0, %s1
}
)",
                                          row, states[0], states[1], layers)
                                .str(),
                            "test.ir");
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  PlanPool pool;
  pool.target = Target::of({"sm_90a"});
  plan::FunctionT function;
  StepBuilder b(pool, function, {{"b", {1, 32 / queries}}, {"slots", {32, 32}}});
  if (llvm::Error e = build(b, *(*module)->functions.front()))
    FAIL() << llvm::toString(std::move(e));
  std::vector<const plan::StepT *> mlps;
  for (const auto &step : function.steps)
    if (llvm::StringRef(step->op).starts_with("layer_norm+linear"))
      mlps.push_back(step.get());
  ASSERT_EQ(mlps.size(), 2u);
  EXPECT_EQ(mlps[0]->kernel, mlps[1]->kernel);
  auto stateAhead = [](const plan::StepT &step) { return step.args[12]->kind; };
  EXPECT_EQ(stateAhead(*mlps[0]), expected ? plan::ArgKind::Input : plan::ArgKind::Null);
  EXPECT_EQ(stateAhead(*mlps[1]), plan::ArgKind::Null);
}

TEST(MlpLowering, BringsTheNextStateNearer) { checkStateAhead(1, 4, true); }
TEST(MlpLowering, ManyQueriesDoNotWaitForTheirState) { checkStateAhead(4, 4, false); }
TEST(MlpLowering, AStateOfOtherHeadsIsNotItsKernels) { checkStateAhead(1, 2, false); }

// No hidden column is larger than sqrt(256) sqrt(256 / 4) + 0.5 = 128.5, no sum than 512 / 2 times
// that, which is 2^29 units.
TEST(MlpLowering, UnitsHoldTheLargestSum) {
  Steps s({});
  EXPECT_TRUE(llvm::any_of(s.pool.weights(), [](const Tensor &t) {
    return t.dtype() == DType::F32 && t.count() == 256 && t.asDouble(0) == std::exp2(-13) &&
           t.asDouble(255) == std::exp2(-13);
  }));
}

// Layers that share weights but not biases have units of their own.
TEST(MlpLowering, UnitsAreOfAllThatTheyAreMadeOf) {
  PlanPool pool;
  Tensor w = Tensor::of<float>({1, 2}, {2}), a = Tensor::of<float>({3, 4}, {2}),
         b = Tensor::of<float>({5, 6}, {2});
  const int first = pool.derived("of", {&w, &a}, [&] { return a; });
  EXPECT_EQ(pool.derived("of", {&w, &a}, [&] { return b; }), first);
  EXPECT_NE(pool.derived("of", {&w, &b}, [&] { return b; }), first);
}

} // namespace
} // namespace gpt2c
