// A change planted in a plan is found at its op, by what the op adds to what it reads.
#include "verify/StepErrors.h"
#include "tests/unit/verify/LongGpt.h"
#include "verify/PlanRunner.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

constexpr int64_t tokens = 20;

std::vector<TokenIds> texts() {
  std::vector<TokenIds> out(2);
  for (int64_t i = 0; i < tokens; ++i) {
    out[0].push_back(int32_t(i * 7 % LongGpt::vocabulary));
    out[1].push_back(int32_t((i * i + 3) % LongGpt::vocabulary));
  }
  return out;
}

std::vector<Tensor> prefillArguments(const Module &m, bool float64) {
  return llvm::cantFail(HostRunner(m, float64).stepArguments("prefill", texts(), {0, 0}));
}

/// What the CPU device traces of @prefill.
std::vector<TracedValue> trace(const Module &m) {
  const Function &f = *m.function("prefill");
  std::vector<TracedValue> out;
  std::vector<Value *> values;
  for (auto [i, op] : llvm::enumerate(f.ops()))
    for (Value *v : op->results())
      if (isComputedFloat(*v)) {
        values.push_back(v);
        out.push_back({i, v, {}});
      }
  SymbolMap symbols;
  auto bound = llvm::cantFail(bindArguments(f, prefillArguments(m, false), symbols));
  auto tensors = llvm::cantFail(Executor(f).evaluate(values, std::move(bound), symbols));
  for (auto [t, tensor] : llvm::zip(out, tensors))
    t.tensor = tensor;
  return out;
}

StepReference ofPlan(const Module &m, bool own) {
  StepReference r;
  r.function = m.function("prefill");
  r.options.float64 = true;
  r.own = own;
  r.arguments = prefillArguments(m, true);
  r.onPlan = prefillArguments(m, true);
  r.rows = {2, tokens, 0};
  return r;
}

class StepErrors : public testing::Test {
protected:
  Op *find(llvm::function_ref<bool(const Op &)> is, unsigned which = 0) {
    for (auto &op : plan.function("prefill")->ops())
      if (is(*op) && which-- == 0)
        return op.get();
    return nullptr;
  }
  static bool isLinear(const Op &op) { return op.is(OpCode::Linear); }

  /// The constant behind an operand becomes a copy, its elements what `f` makes of them.
  static void change(Op *user, unsigned operand,
                     llvm::function_ref<float(const Tensor &, int64_t)> f) {
    Op *old = user->operand(operand)->def();
    Tensor copy(DType::F32, old->constant.shape());
    for (int64_t i = 0; i < copy.count(); ++i)
      copy.data<float>()[i] = f(old->constant, i);
    old->constant = copy;
  }

  /// The values that are off by more than the tolerance, against the sound plan and the graph.
  std::vector<ValueError> against(const StepReference &reference) {
    return llvm::cantFail(stepErrors(trace(plan), reference));
  }
  std::vector<ValueError> againstGraph() {
    auto exported = llvm::cantFail(ExportedGraph::of(gpt.function, plan));
    GraphCall call;
    call.texts = texts();
    StepReference r;
    r.function = &exported.function();
    r.options = exported.execution(Arithmetic::Double);
    r.arguments = r.onPlan = llvm::cantFail(exported.arguments(call));
    r.rows = {2, tokens, 0};
    return against(r);
  }
  static const ValueError *first(llvm::ArrayRef<ValueError> errors, double tolerance = 1e-4) {
    auto it = llvm::find_if(errors, [&](const ValueError &e) { return e.own() > tolerance; });
    return it == errors.end() ? nullptr : it;
  }
  /// The op, and nothing but the op, adds an error, against either reference.
  void expectAlone(const Op *op) {
    for (const auto &errors : {against(ofPlan(sound, false)), againstGraph()}) {
      const ValueError *e = first(errors);
      ASSERT_TRUE(e);
      EXPECT_EQ(e->value->def(), op) << e->value->def()->describe() << ": " << e->own();
      unsigned over = 0;
      std::string which;
      for (const ValueError &other : errors)
        if (other.own() > 1e-4) {
          ++over;
          which +=
              other.value->def()->describe() + " for " + other.standsFor->def()->describe() + "\n";
        }
      EXPECT_EQ(over, 1u) << "the steps behind it inherit the error, they add none:\n" << which;
      EXPECT_GT(errors.back().total.relative, 1e-5) << "and it reaches the logits";
    }
  }

  LongGpt gpt;
  Module plan = llvm::cantFail(gpt.compiled()), sound = llvm::cantFail(gpt.compiled());
};

TEST_F(StepErrors, ASoundPlanAddsRoundingAlone) {
  for (const auto &errors :
       {against(ofPlan(plan, true)), against(ofPlan(sound, false)), againstGraph()}) {
    EXPECT_GT(errors.size(), 5u);
    EXPECT_EQ(first(errors, 1e-5), nullptr);
    for (const ValueError &e : errors)
      EXPECT_LT(e.total.relative, 1e-5) << e.value->def()->describe();
    EXPECT_EQ(llvm::ArrayRef(errors.back().shape),
              (llvm::ArrayRef<int64_t>{2, LongGpt::vocabulary}));
    EXPECT_TRUE(errors.back().hasAdded);
  }
}

TEST_F(StepErrors, OneRowOfWeightsThatIsOnePercentLargerIsFoundWithItsChannel) {
  Op *op = find(isLinear, 1);
  ASSERT_TRUE(op);
  constexpr int64_t row = 3;
  change(op, 1, [](const Tensor &t, int64_t i) {
    return float(t.asDouble(i)) * (i / t.dim(1) == row ? 1.01f : 1.0f);
  });
  expectAlone(op);
  const auto errors = against(ofPlan(sound, false));
  ASSERT_FALSE(first(errors)->channels.empty());
  EXPECT_EQ(first(errors)->channels.front().index, row);
}

TEST_F(StepErrors, ADroppedBiasIsFound) {
  for (unsigned which : {0u, 2u}) {
    plan = llvm::cantFail(gpt.compiled());
    Op *op = find(isLinear, which);
    ASSERT_TRUE(op && op->operand(2));
    change(op, 2, [](const Tensor &, int64_t) { return 0.0f; });
    expectAlone(op);
  }
}

TEST_F(StepErrors, AWrongEpilogueIsFound) {
  Op *op = find(
      [](const Op &o) { return o.is(OpCode::Linear) && o.stringAttr("activation") != "none"; });
  ASSERT_TRUE(op);
  op->setAttr("activation", std::string("relu"));
  expectAlone(op);
}

TEST_F(StepErrors, AnotherScaleOfScoresIsFound) {
  Op *op = find([](const Op &o) { return o.is(OpCode::AppendAttention); });
  ASSERT_TRUE(op);
  op->setAttr("scale", op->floatAttr("scale") * 1.2);
  expectAlone(op);
}

/// A device that computes an op wrongly: the IR is sound.
TEST_F(StepErrors, WhatADeviceComputesWronglyIsFoundAtItsStepAndItsToken) {
  std::vector<TracedValue> traced = trace(plan);
  const size_t step = 1; // the norm behind the embedding
  Tensor &t = traced[step].tensor;
  const int64_t width = t.dim(-1), token = 5;
  ASSERT_EQ(t.count(), 2 * tokens * width);
  for (int64_t c = 0; c < width; ++c)
    t.data<float>()[token * width + c] *= 1.5f;
  const auto errors = llvm::cantFail(stepErrors(traced, ofPlan(plan, true)));
  // What was computed from the sound value before is now off from what its step reads.
  const ValueError *e = first(errors);
  ASSERT_TRUE(e);
  EXPECT_EQ(e->value, traced[step].value);
  ASSERT_FALSE(e->tokens.empty());
  EXPECT_EQ(e->tokens.front().index, token);
  EXPECT_NEAR(e->tokens.front().error, 0.5, 0.01);
}

/// Kernels keep what they do not hand on: what has no tensor is computed again, and its error is of
/// the step that hands on what came of it.
TEST_F(StepErrors, WhatAStepKeepsToItselfIsPartOfTheStep) {
  auto products = [](std::vector<TracedValue> all) {
    llvm::erase_if(all, [](const TracedValue &t) {
      return !t.value->def()->is(OpCode::Linear) && !t.value->def()->is(OpCode::AppendAttention);
    });
    return all;
  };
  EXPECT_EQ(first(llvm::cantFail(stepErrors(products(trace(plan)), ofPlan(plan, true))), 1e-5),
            nullptr);
  Op *norm = find([](const Op &o) { return o.is(OpCode::LayerNorm); });
  ASSERT_TRUE(norm);
  norm->setAttr("epsilon", 1.0);
  const auto other = llvm::cantFail(stepErrors(products(trace(plan)), ofPlan(sound, false)));
  const ValueError *e = first(other);
  ASSERT_TRUE(e);
  EXPECT_EQ(e->value->def()->operand(0), norm->result());
}

TEST_F(StepErrors, ANaNIsMadeByTheFirstStepThatHasIt) {
  Op *op = find(isLinear, 1);
  ASSERT_TRUE(op && op->operand(2));
  change(op, 2, [](const Tensor &t, int64_t i) { return i == 1 ? NAN : float(t.asDouble(i)); });
  unsigned made = 0;
  for (const ValueError &e : against(ofPlan(plan, true))) {
    made += e.made;
    EXPECT_EQ(e.made, e.value->def() == op) << e.value->def()->describe();
  }
  EXPECT_EQ(made, 1u);
}

} // namespace
