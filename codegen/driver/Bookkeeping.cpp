// Functions of a plan that no function of the module stands for: what happens between steps.
#include "codegen/StepBuilder.h"
#include "codegen/driver/Draft.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/sampling/SampledChoice.h"
#include "templates/sample/Sample.h"
#include "templates/tokens/Tokens.h"

namespace gpt2c {

void addAdvance(PlanDraft &d) {
  if (!d.launches(rt::functions::decode))
    return;
  Function f(rt::functions::advance);
  Dim batch = Dim::symbol("batch"), capacity = Dim::symbol("capacity");
  Value *next = f.addArgument({DType::I32, {batch}}, "next");
  Value *ids = f.addArgument({DType::I32, {batch, 1}}, "ids");
  Value *past = f.addArgument({DType::I32, {batch}}, "past");
  Value *tokens = f.addArgument({DType::I32, {capacity, batch}}, "tokens");
  Value *step = f.addArgument({DType::I32, {Dim(1)}}, "step");
  SymbolBounds symbols = d.versions().bounds(f, d.options.maxBatch);
  symbols["capacity"] = {1, 1 << 20};
  auto out = std::make_unique<plan::FunctionT>();
  out->name = rt::functions::advance;
  StepBuilder builder(d.pool, *out, symbols);
  builder.addInputs(f);
  StepBuilder::Args args;
  for (Value *v : {next, ids, past, tokens, step})
    args[v->name] = llvm::cantFail(builder.read(v));
  args["batch"] = builder.i32(batch);
  args["capacity"] = builder.i32(capacity);
  plan::ExprT one = rt::constantExpr(1);
  builder.launch({}, "advance", advance(d.pool.nextKernelName("advance")), args, {one, one, one}, 0,
                 0);
  d.meta().functions.push_back(std::move(out));
}

/// For up to `most` rows.
static void addSample(PlanDraft &d, const SampleConfig &c, int64_t most) {
  Function f(rt::functions::sample);
  const Dim segments = Dim::symbol("segments"), all(1);
  Value *logits = f.addArgument({DType::F32, {segments, Dim(c.vocabulary)}}, "logits");
  Value *greedy = f.addArgument({DType::I32, {segments}}, "greedy");
  Value *rows = f.addArgument({DType::I32, {segments, Dim(rt::sampleRowWords)}}, "rows");
  Value *masks = f.addArgument({DType::I32, {all}}, "masks");
  Value *adjustments = f.addArgument({DType::I32, {all, Dim(4)}}, "adjustments");
  Value *next = f.addArgument({DType::I32, {segments}}, "next");
  constexpr int64_t reportWords = sizeof(rt::LogprobReport) / sizeof(int32_t);
  Value *reports = f.addArgument({DType::I32, {segments, Dim(reportWords)}}, "reports");
  auto out = std::make_unique<plan::FunctionT>();
  out->name = rt::functions::sample;
  SymbolBounds symbols;
  symbols["segments"] = {1, most};
  StepBuilder builder(d.pool, *out, symbols);
  builder.addInputs(f);
  StepBuilder::Args args;
  for (Value *v : {logits, greedy, rows, masks, adjustments, next, reports})
    args[v->name] = llvm::cantFail(builder.read(v));
  builder.launch({}, "sample", gpt2c::sample(d.pool.nextKernelName("sample"), c), args,
                 gridOf(c, builder.expr(segments)), segments * Dim(4 * c.vocabulary), 0);
  d.meta().functions.push_back(std::move(out));
}

void addSample(PlanDraft &d) {
  if (!d.launches(rt::functions::extend) || !d.hasSampling())
    return;
  const int64_t vocabulary = d.meta().vocab_size;
  if (const SampleConfig c = spreadSampleConfig(vocabulary, d.pool.target); c.blocks > 1)
    addSample(d, c, std::min(mostSpreadRows, d.options.maxBatch));
  SampleConfig c = sampleConfig(vocabulary, d.pool.target);
  c.rehearsed = d.rehearsed;
  addSample(d, c, d.options.maxBatch);
}

} // namespace gpt2c
