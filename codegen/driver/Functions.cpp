// The functions of a module as launches.
#include "codegen/OneOrder.h"
#include "codegen/StepBuilder.h"
#include "codegen/driver/Draft.h"
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "runtime/plan/FunctionNames.h"
#include "templates/Lowerings.h"
#include "templates/sample/Sample.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using Functions = std::vector<std::unique_ptr<plan::FunctionT>>;

bool PlanDraft::hasSampling() {
  return meta().vocab_size >= 1 && meta().vocab_size <= mostSampledVocabulary;
}

/// A function without steps: its ports are known, the CPU device runs its IR.
static void describeFunction(PlanDraft &d, const Function &f) {
  if (isOtherForm(f))
    return;
  auto out = std::make_unique<plan::FunctionT>();
  out->name = f.name();
  StepBuilder builder(d.pool, *out, d.versions().bounds(f, d.options.maxBatch));
  builder.addInputs(f);
  builder.addOutputs(f);
  d.meta().functions.push_back(std::move(out));
}

static llvm::Expected<Functions> extendVersions(PlanDraft &d, Function &f) {
  auto versions =
      d.options.batchInvariant ? d.scheduler().invariant(f, d.out.orderCosts) : d.scheduler().of(f);
  if (!versions)
    return versions.takeError();
  Functions list;
  for (const FunctionSchedule &version : *versions) {
    list.push_back(std::make_unique<plan::FunctionT>());
    list.back()->name = f.name();
    d.noteBody(*list.back(), *version.of);
    StepBuilder builder(d.pool, *list.back(), version.bounds);
    if (d.hasSampling())
      builder.drawRows(Dim::symbol("segments"));
    if (llvm::Error e = builder.build(*version.of, version.schedule, emit))
      return e;
  }
  if (d.options.batchInvariant)
    if (llvm::Error e = checkOneOrder(list))
      return e;
  return list;
}

/// Without a kernel for its attention @extend is left to the CPU.
static llvm::Error addExtend(PlanDraft &d, Function &f) {
  auto versions = extendVersions(d, f);
  if (versions) {
    llvm::move(*versions, std::back_inserter(d.meta().functions));
    return llvm::Error::success();
  }
  const std::string why = llvm::toString(versions.takeError());
  if (d.options.batchInvariant)
    return makeError(ExitCode::Unsupported,
                     "--batch-invariant: @extend has no kernels that give a row the same bits in "
                     "every call: " +
                         why +
                         (d.options.fp32Math == Fp32Math::Ffma
                              ? "\n  products of fp32 have them with --fp32-math=3xtf32"
                              : ""));
  d.lacks(&GeneratedPlan::noRows, why);
  describeFunction(d, f);
  return llvm::Error::success();
}

/// One that has an op without a kernel is left to the CPU.
static void addFunction(PlanDraft &d, Function &f) {
  auto leaveToHost = [&](llvm::Error why) {
    d.lacks(&GeneratedPlan::hostOnly, llvm::toString(std::move(why)));
    describeFunction(d, f);
  };
  auto versions = d.scheduler().of(f);
  if (!versions)
    return leaveToHost(versions.takeError());
  for (const FunctionSchedule &version : *versions) {
    auto out = std::make_unique<plan::FunctionT>();
    out->name = isOtherForm(f) ? rt::functions::prefill : f.name();
    d.noteBody(*out, *version.of);
    StepBuilder builder(d.pool, *out, version.bounds);
    if (llvm::Error e = builder.build(*version.of, version.schedule, emit))
      return leaveToHost(std::move(e));
    d.meta().functions.push_back(std::move(out));
  }
}

llvm::Error addFunctions(PlanDraft &d) {
  for (auto &f : d.module.functions) {
    if (functions::isWidened(f->name())) // a form of versions of the one that it is named after
      continue;
    if (functions::ranksOf(f->name()) > 1) // addRanks() does, and the CPU device has it from the IR
      continue;
    const bool extend = f->name() == functions::extend;
    if (d.options.archs.empty())
      describeFunction(d, *f);
    else if (extend) {
      if (llvm::Error e = addExtend(d, *f))
        return e;
    } else if (!d.options.batchInvariant) // else the CPU device has it from the IR
      addFunction(d, *f);
  }
  return llvm::Error::success();
}

} // namespace gpt2c
