// @steps and @generate: decode steps over the state of @extend, and as one kernel.
#include "codegen/StepBuilder.h"
#include "codegen/driver/Draft.h"
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "runtime/plan/Arch.h"
#include "runtime/plan/FunctionNames.h"
#include "schedule/DecodeForm.h"
#include "schedule/RankStep.h"
#include "templates/Lowerings.h"
#include "templates/decode_step/common/DecodeKernels.h"
#include "templates/decode_step/common/PersistentStep.h"
#include "templates/sample/Sample.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static DecodeForms formsOf(const PlanDraft &d) {
  return {d.function(functions::decode), d.options.decode, d.pool.target,
          d.options.fuseNorm && d.options.dependentLaunch, d.options.packWeights};
}
/// Sequences that persistent kernels are made for.
static int64_t mostPersistent(const PlanDraft &d) {
  return d.options.precision == "fp32" ? 1 : d.options.maxBatch;
}

/// @decode as it is asked about for persistent kernels, of ranks with the sums over them in its
/// products, or its form with the floats that int8 weights stand for where that is run.
class StepBody {
public:
  StepBody(PlanDraft &d, Function &decode, const DecodeForms &forms, const Function *extend)
      : d_(d), ofRank_(d.ranks > 1 ? stepOfRank(decode) : nullptr),
        decode_(ofRank_ ? *ofRank_ : decode), wide_(d.function(functions::widened(decode.name()))),
        forms_(forms), extend_(extend) {
    if (wide_) {
      shape_ = shapeOf(decode);
      wideShape_ = shapeOf(*wide_);
    }
  }
  Function &of(int64_t rows) const {
    auto problem = [&](const Function &f, const std::optional<DecoderShape> &shape) {
      return decodeProblem(f, shape ? &*shape : nullptr, rows, extend_, d_.pool.target,
                           forms_.of(rows));
    };
    return wide_ && isStepOfFloats(problem(decode_, shape_), problem(*wide_, wideShape_),
                                   decodeKernels())
               ? *wide_
               : decode_;
  }

private:
  static std::optional<DecoderShape> shapeOf(Function &f) {
    if (auto shape = readDecoder(f))
      return std::move(*shape);
    else
      llvm::consumeError(shape.takeError());
    return std::nullopt;
  }

  PlanDraft &d_;
  std::unique_ptr<Function> ofRank_;
  Function &decode_, *wide_;
  const DecodeForms &forms_;
  const Function *extend_;
  std::optional<DecoderShape> shape_, wideShape_;
};

/// Those of @steps that are persistent kernels; returns for how many sequences.
static int64_t addPersistentSteps(PlanDraft &d, const DecodeForms &forms, Function &decode,
                                  const Function &extend) {
  const int64_t most = mostPersistent(d);
  const StepBody body(d, decode, forms, &extend);
  int64_t covered = 0;
  for (int64_t rows : persistentRows) {
    if (covered >= most)
      break;
    Function &f = body.of(rows);
    auto out = std::make_unique<plan::FunctionT>();
    d.noteBody(*out, f);
    if (llvm::Error e =
            buildPagedStep(d.pool, *out, f, extend, d.versions().bounds(f, std::min(rows, most)),
                           rows, forms.of(rows))) {
      std::string why = llvm::toString(std::move(e));
      if (rows == 1)
        d.noPagedStep = std::move(why);
      break;
    }
    if (d.options.dependentLaunch && leavesProcessors(*out, mostRehearsedRows, d.pool.target))
      d.rehearsed = int(std::min<int64_t>(rows, mostRehearsedRows));
    covered = rows;
    d.meta().functions.push_back(std::move(out));
  }
  return covered;
}

void addSteps(PlanDraft &d) {
  const Function *extend = d.function(functions::extend);
  Function *decode = d.function(functions::decode);
  if (!d.launches(rt::functions::extend) || d.options.batchInvariant || !decode)
    return;
  const DecodeForms forms = formsOf(d);
  const int64_t covered =
      forms.graph().empty() ? addPersistentSteps(d, forms, *decode, *extend) : 0;
  auto slower = [&](llvm::Error why) {
    d.lacks(&GeneratedPlan::otherSteps, "they run as @extend: " + llvm::toString(std::move(why)));
  };
  auto versions = d.scheduler().steps(*decode, *extend, covered);
  if (!versions)
    return slower(versions.takeError());
  for (const FunctionSchedule &version : *versions) {
    auto out = std::make_unique<plan::FunctionT>();
    out->name = rt::functions::steps;
    d.noteBody(*out, *version.of);
    StepBuilder builder(d.pool, *out, version.bounds);
    builder.usePages(*extend);
    if (d.hasSampling())
      builder.drawRows(Dim::symbol("batch"));
    if (llvm::Error e = builder.build(*version.of, version.schedule, emit))
      return slower(std::move(e));
    d.meta().functions.push_back(std::move(out));
  }
}

/// Versions for growing numbers of sequences, as long as a form is faster or asked for. Errors:
/// there is none for a single one.
static llvm::Error addVersions(PlanDraft &d, const DecodeForms &forms, Function &decode) {
  const int64_t most = mostPersistent(d);
  const StepBody body(d, decode, forms, nullptr);
  bool clusters = true; // until a form is known
  int64_t covered = 0;
  for (int64_t rows : persistentRows) {
    if (covered >= most || !forms.mayBeFaster(rows, clusters))
      break;
    Function &f = body.of(rows);
    auto out = std::make_unique<plan::FunctionT>();
    d.noteBody(*out, f);
    if (llvm::Error e = buildPersistentStep(
            d.pool, *out, f, d.versions().bounds(f, std::min(rows, most)), rows, forms.of(rows))) {
      if (rows == 1)
        return e;
      if (forms.missNothing())
        llvm::consumeError(std::move(e));
      else
        d.lacks(&GeneratedPlan::graphDecode,
                std::to_string(rows) + " sequences: " + llvm::toString(std::move(e)));
      break;
    }
    clusters = !out->steps.empty() && out->steps.front()->clusters > 0;
    covered = rows;
    d.meta().functions.push_back(std::move(out));
  }
  return llvm::Error::success();
}

llvm::Error addGenerate(PlanDraft &d) {
  Function *decode = d.function(functions::decode);
  const DecodeForms forms = formsOf(d);
  if (!forms.graph().empty() || d.options.batchInvariant)
    return llvm::Error::success();
  if (!forms.areAsked() || (d.ranks > 1 && decode)) {
    if (llvm::Error e = addVersions(d, forms, *decode))
      d.lacks(&GeneratedPlan::graphDecode, llvm::toString(std::move(e)));
    return llvm::Error::success();
  }
  auto isHopper = [](const std::string &name) {
    std::optional<rt::Arch> arch = rt::Arch::parse(name);
    return arch && arch->capability.major >= 9;
  };
  if (llvm::none_of(d.options.archs, isHopper))
    return makeError(ExitCode::Unsupported,
                     "--decode=persistent: none of the architectures is sm_90 or later");
  if (!decode)
    return makeError(ExitCode::Unsupported, "--decode=persistent: the model has no @decode");
  return llvm::any_of(d.archs, isHopper) ? addVersions(d, forms, *decode) : llvm::Error::success();
}

} // namespace gpt2c
