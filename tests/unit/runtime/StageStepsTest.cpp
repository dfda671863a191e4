// Launches of a plan dealt to stages: cuts lie where the fewest bytes live on, between layers.
#include "runtime/cuda/StageSteps.h"

#include "runtime/plan/Expr.h"
#include "runtime/plan/KvLayout.h"

#include <gtest/gtest.h>

namespace gpt2c::rt::cuda {
namespace {

using FunctionList = std::vector<std::unique_ptr<plan::FunctionT>>;

std::unique_ptr<plan::StepT> step(int64_t bytes, int layer, LayerArg of = LayerArg::Layer) {
  auto out = std::make_unique<plan::StepT>();
  out->mode = plan::LaunchMode::Pdl;
  out->bytes = std::make_unique<plan::ExprT>(constantExpr(bytes));
  if (layer >= 0) {
    auto arg = std::make_unique<plan::ArgT>();
    arg->kind = plan::ArgKind::I32;
    arg->index = int(of);
    arg->expr = std::make_unique<plan::ExprT>(constantExpr(layer));
    out->args.push_back(std::move(arg));
  }
  return out;
}

std::unique_ptr<plan::BufferT> buffer(uint64_t bytes, int first, int last) {
  auto out = std::make_unique<plan::BufferT>();
  out->bytes = bytes;
  out->first_step = first;
  out->last_step = last;
  return out;
}

/// Each layer has a norm, attention and an MLP, which fetches the next layer's state ahead; a
/// table that all attention reads; behind them the vocabulary.
std::unique_ptr<plan::FunctionT> extend(int layers, bool marked = true) {
  auto f = std::make_unique<plan::FunctionT>();
  f->name = "extend";
  f->steps.push_back(step(1, -1)); // embeddings
  f->buffers.push_back(buffer(10, 0, 2));
  for (int l = 0; l < layers; ++l) {
    const int norm = 1 + 3 * l;
    f->steps.push_back(step(1, -1));
    f->steps.push_back(step(100, l, marked ? LayerArg::Layer : LayerArg::None));
    f->steps.push_back(step(200, l + 1, LayerArg::Ahead));
    f->buffers.push_back(buffer(10, norm, norm + 1));         // of the norm
    f->buffers.push_back(buffer(10, norm + 1, norm + 2));     // of attention
    f->buffers.push_back(buffer(10, norm + 2, norm + 3 + 1)); // x
  }
  f->steps.push_back(step(300, -1));
  f->buffers.push_back(buffer(4, 0, 3 * layers));
  return f;
}

std::unique_ptr<plan::FunctionT> sample() {
  auto f = std::make_unique<plan::FunctionT>();
  f->name = "sample";
  f->steps.push_back(step(1, -1));
  return f;
}

plan::PlanT planOf(int layers) {
  plan::PlanT meta;
  meta.kv = std::make_unique<plan::KvPlanT>();
  meta.kv->layers = layers;
  return meta;
}

TEST(StageSteps, AreTheFunctionTogether) {
  FunctionList functions;
  functions.push_back(extend(4));
  functions.push_back(sample());
  const plan::PlanT meta = planOf(4);
  size_t at = 0;
  int layer = 0;
  for (int stage = 0; stage < 3; ++stage) {
    Result<StagePlan> cut = StagePlan::create(meta, functions, stage, 3);
    ASSERT_TRUE(cut) << cut.status().message();
    const StageSteps &steps = *cut->of(*functions[0]);
    EXPECT_EQ(steps.first, at);
    EXPECT_EQ(cut->firstLayer(), layer);
    EXPECT_GT(cut->layers(), 0);
    at = steps.last;
    layer += cut->layers();
    // x of the layer before, and the table; the cut is in front of a norm.
    EXPECT_EQ(steps.given.size(), stage ? 2U : 0U);
    if (stage) {
      EXPECT_EQ(steps.first, size_t(1 + 3 * cut->firstLayer()));
    }
    const StageSteps &sampling = *cut->of(*functions[1]);
    EXPECT_EQ(sampling.last - sampling.first, cut->isLast() ? 1U : 0U);
  }
  EXPECT_EQ(at, functions[0]->steps.size());
  EXPECT_EQ(layer, 4);
  // The vocabulary counts: the last stage has one layer, another two.
  EXPECT_EQ(StagePlan::create(meta, functions, 2, 3)->layers(), 1);
}

TEST(StageSteps, AreRefusedWithoutLayers) {
  FunctionList functions;
  functions.push_back(extend(4, false));
  Status s = StagePlan::create(planOf(4), functions, 0, 2).status();
  EXPECT_EQ(s.code(), Code::Unsupported);
  EXPECT_NE(s.message().find("compile it again"), std::string::npos) << s.message();
  functions[0] = extend(2);
  s = StagePlan::create(planOf(2), functions, 0, 3).status();
  EXPECT_EQ(s.message(), "the plan has 2 layers with a KV state, too few for 3 stages");
  functions[0] = sample();
  EXPECT_EQ(StagePlan::create(planOf(2), functions, 0, 2).status().code(), Code::Unsupported);
}

} // namespace
} // namespace gpt2c::rt::cuda
