// What the comparison of a plan with the exported graph finds, and what it lets pass. A list of
// faults.
#include "verify/CheckPlan.h"
#include "tests/unit/passes/RandomGpt.h"
#include "tests/unit/verify/LongGpt.h"

#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

/// A matcher by hand: whether `text` has `part` in it.
testing::AssertionResult has(const std::string &text, const std::string &part) {
  if (llvm::StringRef(text).contains(part))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no '" << part << "' in: " << text;
}

struct Outcome {
  ExitCode code = ExitCode::Ok;
  std::string message;
  CheckReport report;

  const FunctionCheck *check(llvm::StringRef what) const {
    auto it = llvm::find_if(report.checks, [&](auto &c) { return c.what == what; });
    return it == report.checks.end() ? nullptr : &*it;
  }
};

Outcome compare(const Function &graph, const Module &plan, double tolerance = singleTolerance,
                VerifyMode mode = VerifyMode::Fast, bool byLoss = false,
                DType narrow = DType::F32) {
  Outcome out;
  auto exported = ExportedGraph::of(graph, plan);
  if (!exported) {
    out.code = ExitCode::InvalidModel;
    out.message = llvm::toString(exported.takeError());
    return out;
  }
  if (narrow != DType::F32)
    llvm::cantFail(exported->roundTo(narrow));
  ReferenceLimits limits;
  if (const Value *kv = plan.function("forward")->argument("kv"))
    limits.context = kv->type.shape[4].constant().value_or(0);
  auto reference = Reference::make(std::move(*exported), mode, limits);
  llvm::append_range(out.report.unchecked, reference->unchecked());
  HostRunner runner(plan);
  CheckOptions options{.tolerance = tolerance,
                       .suffix = "",
                       .int8Loss = byLoss,
                       .byLoss = byLoss,
                       .narrow = narrow,
                       .rounding = tolerance == singleTolerance};
  if (llvm::Error e = checkPlan(*reference, plan, runner, options, out.report)) {
    llvm::raw_string_ostream os(out.message);
    out.code = printError(std::move(e), os);
  }
  return out;
}

/// The first op of a kind in a function of the plan.
Op *find(const Module &m, llvm::StringRef function, llvm::function_ref<bool(const Op &)> is) {
  for (auto &op : m.function(function)->ops())
    if (is(*op))
      return op.get();
  return nullptr;
}

/// The constant behind an operand becomes a copy, its elements what `f` makes of them.
void change(Op *user, unsigned operand, llvm::function_ref<float(int64_t, float)> f) {
  Op *old = user->operand(operand)->def();
  ASSERT_TRUE(old && old->is(OpCode::Constant));
  Tensor copy(DType::F32, old->constant.shape());
  for (int64_t i = 0; i < copy.count(); ++i)
    copy.data<float>()[i] = f(i, float(old->constant.asDouble(i)));
  old->constant = copy;
}

/// The nodes in the message's line that begins with `line`.
std::string lineOf(const std::string &message, llvm::StringRef line) {
  auto at = message.find(line.str());
  return at == std::string::npos ? "" : message.substr(at, message.find('\n', at) - at);
}

class CheckPlan : public testing::Test {
protected:
  LongGpt gpt;
  Module plan = llvm::cantFail(gpt.compiled());
};

TEST_F(CheckPlan, ASoundPlanPasses) {
  Outcome out = compare(gpt.function, plan);
  EXPECT_EQ(out.code, ExitCode::Ok) << out.message;
  for (const char *name : {"@forward", "@prefill", "@decode", "@extend"}) {
    ASSERT_TRUE(out.check(name)) << name;
    EXPECT_GT(out.check(name)->error, 0) << name << " is compared with itself";
    EXPECT_LT(out.check(name)->error, 1e-5) << name;
    EXPECT_GE(out.check(name)->tokens, LongGpt::context - 4) << name;
  }
  EXPECT_TRUE(out.report.unchecked.empty()) << out.report.unchecked.front();
}

TEST_F(CheckPlan, FullComparesMore) {
  Outcome out = compare(gpt.function, plan, singleTolerance, VerifyMode::Full);
  EXPECT_EQ(out.code, ExitCode::Ok) << out.message;
  ASSERT_TRUE(out.check("@forward"));
  EXPECT_GE(out.check("@forward")->error, compare(gpt.function, plan).check("@forward")->error);
}

TEST_F(CheckPlan, AWeightOfOneFunctionThatIsOnePercentLargerIsFoundAndNamed) {
  for (const char *name : {"forward", "prefill", "decode", "extend"}) {
    Module m = llvm::cantFail(gpt.compiled());
    Op *fc = find(m, name, [](const Op &op) {
      return op.is(OpCode::Linear) && op.result()->type.shape.back() == Dim(2 * LongGpt::width);
    });
    ASSERT_TRUE(fc);
    change(fc, 1, [](int64_t, float v) { return v * 1.01f; });
    Outcome out = compare(gpt.function, m);
    EXPECT_EQ(out.code, ExitCode::Quality) << name;
    EXPECT_TRUE(has(out.message, "@" + std::string(name) + ", error "));
    std::string here = lineOf(out.message, "the first tensor that parts");
    EXPECT_TRUE(has(here, "in @" + std::string(name) + ": linear"));
    EXPECT_TRUE(has(here, fc->locations.front().str())) << out.message;
    EXPECT_TRUE(has(lineOf(out.message, "it stands for"), "node_")) << out.message;
  }
}

// Of a sequence that is longer than a page, in pieces: what a call reads that others wrote.
TEST_F(CheckPlan, RowsThatDoNotSeeTheFirstTokensOfALongSequenceAreFound) {
  Op *op = find(plan, "extend", [](const Op &o) { return o.is(OpCode::AppendAttention); });
  ASSERT_TRUE(op && op->boolAttr("paged"));
  op->setAttr("window", int64_t(66));
  Outcome out = compare(gpt.function, plan);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(out.message, "@extend, error "));
  EXPECT_LT(out.check("@decode")->error, 1e-5);
}

TEST_F(CheckPlan, RowsAtOtherPositionsAreFound) {
  Op *embed = find(plan, "extend", [](const Op &o) { return o.is(OpCode::Embed); });
  ASSERT_TRUE(embed);
  change(embed, ops::Embed::Positions,
         [](int64_t i, float v) { return i / LongGpt::width < 60 ? v : -v; });
  Outcome out = compare(gpt.function, plan);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(out.message, "@extend, error "));
}

TEST_F(CheckPlan, ADroppedActivationIsFound) {
  Op *op = find(plan, "prefill", [](const Op &o) {
    return o.is(OpCode::Linear) && o.stringAttr("activation") != "none";
  });
  ASSERT_TRUE(op);
  op->setAttr("activation", std::string("none"));
  Outcome out = compare(gpt.function, plan);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(lineOf(out.message, "the first tensor that parts"), op->locations.front().str()));
}

TEST_F(CheckPlan, AnotherEpsilonIsFound) {
  Op *op = find(plan, "decode",
                [](const Op &o) { return o.info().attr("epsilon") && o.floatAttr("epsilon") > 0; });
  ASSERT_TRUE(op);
  op->setAttr("epsilon", 1e-2);
  Outcome out = compare(gpt.function, plan);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(out.message, "@decode"));
}

TEST_F(CheckPlan, AMaskThatDiffersBeyondToken64IsFound) {
  // The graph hides the first keys of query 70 and of no other; the plan is that of the plain mask.
  Op *mask = gpt.mask->def();
  Tensor changed(DType::Bool, mask->constant.shape());
  std::memcpy(changed.raw(), std::as_const(mask->constant).raw(), changed.bytes());
  std::fill_n(changed.data<uint8_t>() + 70 * LongGpt::context, 60, 0);
  mask->constant = changed;
  Outcome out = compare(gpt.function, plan);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(lineOf(out.message, "the first tensor that parts"), "attention"));
  EXPECT_TRUE(has(lineOf(out.message, "it stands for"), "[0, 70, "));
}

TEST_F(CheckPlan, PositionsThatDifferAtTheEndAreFound) {
  Op *embed = find(plan, "prefill", [](const Op &o) { return o.is(OpCode::Embed); });
  ASSERT_TRUE(embed);
  unsigned table = 0;
  for (unsigned i = 0; i < embed->numOperands(); ++i)
    if (embed->operand(i) && embed->operand(i)->type.rank() == 2 &&
        embed->operand(i)->type.shape[0] == Dim(LongGpt::context))
      table = i;
  change(embed, table, [](int64_t i, float v) { return i / LongGpt::width < 80 ? v : -v; });
  Outcome out = compare(gpt.function, plan);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(lineOf(out.message, "the first tensor that parts"), "embed"));
}

TEST_F(CheckPlan, ANanThatIsLostIsFound) {
  Op *qkv = gpt.queries->def();
  Tensor changed(DType::F32, qkv->constant.shape());
  std::memcpy(changed.raw(), std::as_const(qkv->constant).raw(), changed.bytes());
  changed.data<float>()[3] = NAN;
  qkv->constant = changed;
  Outcome out = compare(gpt.function, plan, int8Tolerance);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(out.message, "NaN or infinity on one side alone"));
}

TEST_F(CheckPlan, NanOnBothSidesIsNoComparison) {
  Op *qkv = gpt.queries->def();
  Tensor changed(DType::F32, qkv->constant.shape());
  std::fill_n(changed.data<float>(), changed.count(), NAN);
  qkv->constant = changed;
  Module m = llvm::cantFail(gpt.compiled(PassOptions{.level = 0}));
  Outcome out = compare(gpt.function, m);
  EXPECT_EQ(out.code, ExitCode::Ok) << out.message;
  ASSERT_FALSE(out.report.unchecked.empty());
  EXPECT_TRUE(has(out.report.unchecked.front(), "is NaN or infinite in the exported graph"));
}

TEST_F(CheckPlan, HalfPrecisionHasItsOwnToleranceAndItsOverflowShows) {
  PassOptions half;
  half.precision = DType::F16;
  Outcome sound = compare(gpt.function, llvm::cantFail(gpt.compiled(half)), halfTolerance);
  EXPECT_EQ(sound.code, ExitCode::Ok) << sound.message;
  EXPECT_GT(sound.check("@forward")->error, 1e-4) << "nothing was rounded";
  Op *qkv = gpt.queries->def();
  Tensor changed(DType::F32, qkv->constant.shape());
  std::memcpy(changed.raw(), std::as_const(qkv->constant).raw(), changed.bytes());
  changed.data<float>()[2 * LongGpt::width] = 7e4f;
  qkv->constant = changed;
  Outcome out = compare(gpt.function, llvm::cantFail(gpt.compiled(half)), halfTolerance);
  EXPECT_EQ(out.code, ExitCode::Quality);
}

/// The graph with its logits times `factor`, which is made in front of the function's end.
std::unique_ptr<Function> withLogitsTimes(const Function &graph,
                                          llvm::function_ref<Value *(Builder &, Value *)> factor) {
  auto out = graph.clone(graph.name());
  Builder b(*out, out->terminator());
  Value *logits = out->returned()[0], *by = factor(b, out->argument("input_ids"));
  out->terminator()->setOperands({llvm::cantFail(b.value(OpCode::Mul, {logits, by}))});
  return out;
}

/// 2 where both are equal, else 1.
Value *twiceWhere(Builder &b, Value *x, int64_t equals) {
  Value *hit = llvm::cantFail(b.value(OpCode::Equal, {x, b.constant(Tensor::scalar(equals))}));
  return llvm::cantFail(b.value(
      OpCode::Where, {hit, b.constant(Tensor::scalar(2.0F)), b.constant(Tensor::scalar(1.0F))}));
}

TEST_F(CheckPlan, TextsAreAsLongAsAConstantThatMeetsLengths) {
  for (int64_t n : {2, 11, 50}) {
    auto graph = withLogitsTimes(gpt.function, [&](Builder &b, Value *ids) {
      Value *shape = llvm::cantFail(b.value(OpCode::Shape, {ids}));
      Value *tokens = llvm::cantFail(
          b.value(OpCode::Gather, {shape, b.constant(Tensor::scalar(int64_t(1)))}, {{"axis", 0}}));
      return twiceWhere(b, tokens, n);
    });
    Outcome out = compare(*graph, plan);
    EXPECT_EQ(out.code, ExitCode::Quality) << n;
    EXPECT_TRUE(has(out.message, "@forward of " + std::to_string(n) + " tokens, error "));
  }
}

TEST_F(CheckPlan, TheFifthSequenceIsLookedAt) {
  auto graph = withLogitsTimes(gpt.function, [&](Builder &b, Value *) {
    Value *range = llvm::cantFail(
        b.value(OpCode::Range, {},
                {{"start", Dims{0}}, {"limit", Dims{Dim::symbol("batch")}}, {"delta", Dims{1}}}));
    Value *column = llvm::cantFail(b.value(OpCode::Reshape, {twiceWhere(b, range, 4)},
                                           {{"shape", Dims{Dim::symbol("batch"), 1, 1}}}));
    return column;
  });
  Outcome out = compare(*graph, plan);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(out.message, "logits[4, "));
}

TEST_F(CheckPlan, EveryTokenOfASmallVocabularyIsLookedAt) {
  for (int32_t token = 0; token < LongGpt::vocabulary; ++token) {
    Module m = llvm::cantFail(gpt.compiled());
    Op *embed = find(m, "forward", [](const Op &op) { return op.is(OpCode::Embed); });
    ASSERT_TRUE(embed);
    change(embed, ops::Embed::Tokens,
           [&](int64_t i, float v) { return i / LongGpt::width == token ? v * 1.2F : v; });
    EXPECT_EQ(compare(gpt.function, m).code, ExitCode::Quality) << token;
  }
}

/// The graph in half precision.
std::unique_ptr<Function> halved(const Function &graph) {
  auto out = graph.clone(graph.name());
  for (auto &op : out->ops())
    if (op->is(OpCode::Constant) && op->constant.dtype() == DType::F32) {
      op->constant = op->constant.cast(DType::F16);
      op->result()->type.dtype = DType::F16;
    }
  llvm::cantFail(out->inferTypes());
  return out;
}

TEST_F(CheckPlan, APlanLiesWithinWhatTheExportsOwnRoundingExplains) {
  auto graph = halved(gpt.function);
  auto compiled = [&] {
    Module m;
    m.functions.push_back(graph->clone(graph->name()));
    std::vector<Remark> remarks;
    PassOptions options;
    PassContext context(m, options, remarks);
    llvm::cantFail(runPipeline(context, {}));
    return m;
  };
  auto isNorm = [](const Op &op) { return op.is(OpCode::LayerNorm); };
  // Gains are off by less than half precision rounds; then by far more.
  for (auto [off, code] : {std::pair(0.5F, ExitCode::Ok), std::pair(30.0F, ExitCode::Quality)}) {
    Module m = compiled();
    Op *norm = find(m, "forward", isNorm);
    ASSERT_TRUE(norm);
    change(norm, ops::LayerNorm::Scale, [off = off](int64_t i, float v) {
      return v * (1 + off * (i % 2 ? 0x1p-9F : -0x1p-9F));
    });
    Outcome out = compare(*graph, m);
    EXPECT_EQ(out.code, code) << off << ": " << out.message;
    EXPECT_GT(out.check("@forward")->error, singleTolerance) << off;
    EXPECT_LE(out.check("@forward")->tolerance, 2e-2);
  }
}

TEST_F(CheckPlan, Int8IsJudgedByTheMedianAndABrokenScaleIsFound) {
  PassOptions options;
  options.quantize.scheme = QuantizeScheme::W8A8;
  Outcome sound = compare(gpt.function, llvm::cantFail(gpt.compiled(options)), int8Tolerance,
                          VerifyMode::Fast, true);
  EXPECT_EQ(sound.code, ExitCode::Ok) << sound.message;
  EXPECT_GT(sound.check("@forward")->error, 1e-4) << "nothing was quantised";
  for (const char *name : {"forward", "prefill", "decode"}) {
    Module m = llvm::cantFail(gpt.compiled(options));
    Op *linear = find(m, name, [](const Op &op) {
      return op.is(OpCode::QuantizedLinear) && op.result()->type.shape.back() == Dim(37);
    });
    ASSERT_TRUE(linear) << name;
    change(linear, ops::QuantizedLinear::WScale,
           [](int64_t i, float v) { return i % 2 ? v * 8 : v; });
    Outcome out = compare(gpt.function, m, int8Tolerance, VerifyMode::Fast, true);
    EXPECT_EQ(out.code, ExitCode::Quality) << name;
    EXPECT_TRUE(has(out.message, "int8 loses too much of what the model computes: @" +
                                     std::string(name) + ", half of the rows of 'logits' are"));
  }
}

TEST_F(CheckPlan, AnOverflowOfHalfPrecisionIsNamed) {
  PassOptions half;
  half.precision = DType::F16;
  Op *qkv = gpt.queries->def();
  Tensor changed(DType::F32, qkv->constant.shape());
  for (int64_t i = 0; i < changed.count(); ++i)
    changed.data<float>()[i] = float(qkv->constant.asDouble(i)) * 6e4F;
  qkv->constant = changed;
  Outcome out = compare(gpt.function, llvm::cantFail(gpt.compiled(half)), halfTolerance,
                        VerifyMode::Fast, false, DType::F16);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(out.message, "fp16 overflows: @forward"));
  EXPECT_TRUE(has(out.message, "compile with --precision=bf16"));
}

TEST_F(CheckPlan, WhatRoundingMakesOfTheGraphItselfIsNoDefectOfAPlan) {
  LongGpt other;
  Op *qkv = other.queries->def();
  Tensor changed(DType::F32, qkv->constant.shape());
  for (int64_t i = 0; i < changed.count(); ++i)
    changed.data<float>()[i] = float(qkv->constant.asDouble(i)) * (i % 7 ? 1.0F : 1.5F);
  qkv->constant = changed;
  for (auto [type, tight] : {std::pair(DType::F16, 1e-4), {DType::BF16, 1e-3}}) {
    PassOptions options;
    options.precision = type;
    Module m = llvm::cantFail(gpt.compiled(options));
    EXPECT_EQ(compare(gpt.function, m, tight).code, ExitCode::Quality) << "nothing was rounded";
    Outcome out = compare(gpt.function, m, tight, VerifyMode::Fast, false, type);
    EXPECT_EQ(out.code, ExitCode::Ok) << out.message;
    EXPECT_GT(out.check("@forward")->error, tight);
    EXPECT_GT(out.check("@forward")->tolerance, out.check("@forward")->error);
    out = compare(gpt.function, llvm::cantFail(other.compiled(options)), tight, VerifyMode::Fast,
                  false, type);
    EXPECT_EQ(out.code, ExitCode::Quality);
  }
}

TEST_F(CheckPlan, AGraphOfOtherPortsIsNotCompared) {
  LongGpt other;
  other.function.addArgument(Type{DType::I64, {Dim(1)}}, "more");
  Module m = llvm::cantFail(other.compiled());
  EXPECT_TRUE(has(compare(gpt.function, m).message, "made from another graph"));
}

/// A graph that takes keys and values of earlier tokens, whose plan has no KV state.
class CheckPlanWithoutState : public testing::Test {
protected:
  void SetUp() override {
    for (uint64_t seed = 0; !gpt && seed < 200; ++seed) {
      auto candidate = std::make_unique<RandomGpt>(Choices{seed});
      if (candidate->past == RandomGpt::Past::Pair && candidate->isGpt() && candidate->keyMask)
        gpt = std::move(candidate);
    }
    ASSERT_TRUE(gpt) << "no seed gives such a graph";
    graph = gpt->function.clone(gpt->function.name());
    std::vector<Remark> remarks;
    PassOptions options{.level = 0};
    PassContext context(gpt->module, options, remarks);
    ASSERT_EQ(llvm::toString(runPipeline(context, {})), "");
    ASSERT_FALSE(gpt->module.function("prefill"));
  }

  std::unique_ptr<RandomGpt> gpt;
  std::unique_ptr<Function> graph;
};

TEST_F(CheckPlanWithoutState, APastOfRandomKeysIsCompared) {
  Outcome out = compare(*graph, gpt->module);
  EXPECT_EQ(out.code, ExitCode::Ok) << out.message;
  ASSERT_TRUE(out.check("@forward"));
  EXPECT_GT(out.check("@forward")->tokens, 5);
  EXPECT_TRUE(out.report.unchecked.empty()) << out.report.unchecked.front();
}

TEST_F(CheckPlanWithoutState, AValueThatOnlyAPastReachesIsFound) {
  // All keys and values of the past count twice.
  Function &f = *gpt->module.functions.front();
  bool changed = false;
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    Value *a = f.argument(i);
    if (a->type.rank() != 4 || !isFloat(a->type.dtype))
      continue;
    Builder b(f, f.ops().front().get());
    llvm::SmallVector<Use> uses(a->uses());
    Value *twice = llvm::cantFail(b.value(OpCode::Add, {a, a}));
    for (const Use &u : uses)
      u.op->setOperand(u.operand, twice);
    changed = true;
  }
  ASSERT_TRUE(changed);
  Outcome out = compare(*graph, gpt->module);
  EXPECT_EQ(out.code, ExitCode::Quality);
  EXPECT_TRUE(has(out.message, "behind 5 random keys and values"));
}

TEST(CheckPlanOfRandomModels, SoundPlansPassInBothModes) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    RandomGpt g(Choices{seed});
    unsigned number = 0;
    for (auto &op : g.function.ops())
      op->addLocations({intern("node_" + std::to_string(number++))});
    auto graph = g.function.clone(g.function.name());
    std::vector<Remark> remarks;
    PassContext context(g.module, {}, remarks);
    if (llvm::Error e = runPipeline(context, {})) {
      llvm::consumeError(std::move(e));
      continue;
    }
    Outcome out =
        compare(*graph, g.module, singleTolerance, seed % 4 ? VerifyMode::Fast : VerifyMode::Full);
    EXPECT_EQ(out.code, ExitCode::Ok) << "seed " << seed << ": " << out.message;
    EXPECT_TRUE(out.check("@forward")) << "seed " << seed;
    for (const std::string &what : out.report.unchecked)
      EXPECT_FALSE(has(what, "cannot be run")) << "seed " << seed;
  }
}

} // namespace
