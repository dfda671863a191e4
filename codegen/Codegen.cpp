#include "codegen/Codegen.h"

#include "codegen/PlanPorts.h"
#include "codegen/driver/Draft.h"
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "ir/Text.h"
#include "ir/ops/PagedAttention.h"
#include "runtime/device/RowsCall.h"
#include "runtime/plan/FunctionNames.h"

#include "llvm/ADT/STLExtras.h"

#include <xxhash.h>

namespace gpt2c {

static_assert(AttentionPiece::mostTokens == rt::pieceTokens);

std::string archOf(rt::ComputeCapability c) {
  return "sm_" + std::to_string(c.major) + std::to_string(c.minor) + (c.major == 9 ? "a" : "");
}

std::vector<std::string> defaultArchs(llvm::function_ref<bool(llvm::StringRef)> supported) {
  std::vector<std::string> archs;
  for (const char *arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120", "compute_80"})
    if (supported(arch))
      archs.push_back(arch);
  return archs;
}

class PlanGenerator {
public:
  PlanGenerator(const Module &module, const CodegenOptions &options)
      : out_(std::make_unique<GeneratedPlan>()),
        draft_{.module = module, .options = options, .out = *out_} {}

  llvm::Expected<std::unique_ptr<GeneratedPlan>> run() {
    if (llvm::Error e = describe())
      return e;
    if (llvm::Error e = draft_.options.archs.empty() ? addFunctions(draft_) : addTargets())
      return e;
    addTextAndWeights();
    return std::move(out_);
  }

private:
  plan::PlanT &meta() { return draft_.meta(); }

  /// What the plan says of the model, and what its kernels are made for.
  llvm::Error describe() {
    const CodegenOptions &options = draft_.options;
    meta().compiler_version = options.compilerVersion;
    meta().model_name = draft_.module.name;
    meta().precision = options.precision;
    meta().flags = options.flags;
    meta().eos_token = options.eosToken;
    meta().batch_invariant = options.batchInvariant;
    PlanPool &pool = draft_.pool;
    pool.tf32 = options.fp32Math == Fp32Math::Tf32x3;
    pool.packs = options.packWeights;
    pool.launchMode = options.dependentLaunch ? plan::LaunchMode::Pdl : plan::LaunchMode::Launch;
    if (options.batchInvariant && !draft_.function(functions::extend))
      return makeError(ExitCode::Unsupported,
                       "--batch-invariant: the model has no @extend, the function over rows of any "
                       "sequences that is made so; a remark says why");
    if (llvm::Error e = describeKv(draft_.module, draft_.options, meta()))
      return e;
    describeRanks(draft_.module, meta());
    return describePorts(draft_.module, meta());
  }

  /// The functions for each kind of architecture, one behind the other, and the kernels of all.
  llvm::Error addTargets() {
    const std::vector<TargetGroup> groups =
        targetGroups(draft_.options.archs, draft_.options.rates);
    for (const TargetGroup &group : groups) {
      draft_.pool.target = group.target;
      draft_.pool.targetNumber = &group - groups.data();
      draft_.archs = group.archs;
      draft_.rehearsed = 0;
      draft_.noPagedStep.clear();
      const size_t first = draft_.first = meta().functions.size();
      if (llvm::Error e = addTarget())
        return e;
      if (llvm::Error e = addRanks())
        return e;
      if (groups.size() > 1)
        for (auto &function : llvm::drop_begin(meta().functions, first))
          function->archs = group.archs;
    }
    return compileKernels(draft_, groups, out_->images_);
  }

  llvm::Error addTarget() {
    if (llvm::Error e = addFunctions(draft_))
      return e;
    addAdvance(draft_);
    addSteps(draft_);
    addSample(draft_);
    if (llvm::Error e = addGenerate(draft_))
      return e;
    if (!draft_.noPagedStep.empty() && draft_.launches(rt::functions::generate))
      out_->otherSteps.add("there is no persistent kernel over pages: " + draft_.noPagedStep,
                           draft_.archs);
    return llvm::Error::success();
  }

  /// The same of what ranks run.
  llvm::Error addRanks() {
    for (const auto &division : meta().ranks) {
      const Module module = moduleOfRank(draft_.module, draft_.pool, division->tensor);
      PlanDraft ranks{.module = module,
                      .options = draft_.options,
                      .pool = std::move(draft_.pool),
                      .archs = draft_.archs,
                      .out = *out_,
                      .first = meta().functions.size(),
                      .ranks = division->tensor};
      llvm::Error e = addRankFunctions(ranks);
      draft_.pool = std::move(ranks.pool);
      if (e)
        return e;
    }
    return llvm::Error::success();
  }
  llvm::Error addRankFunctions(PlanDraft &ranks) {
    if (ranks.options.batchInvariant) {
      ranks.lacks(&GeneratedPlan::noRows, "a batch-invariant plan has kernels for one alone");
      return llvm::Error::success();
    }
    if (llvm::Error e = addFunctions(ranks))
      return e;
    addAdvance(ranks);
    addSteps(ranks);
    addSample(ranks);
    if (llvm::Error e = addGenerate(ranks))
      return e;
    for (auto &function : llvm::drop_begin(meta().functions, ranks.first))
      function->ranks = int32_t(ranks.ranks);
    return llvm::Error::success();
  }

  void addTextAndWeights() {
    PrintOptions print;
    print.weights = [&](uint64_t, const Tensor &t) { draft_.pool.weight(t); };
    print.prints = [&](const Function &f) { return draft_.isBody(f); };
    llvm::raw_string_ostream os(out_->irText_);
    gpt2c::print(draft_.module, os, print);
    os.flush();
    out_->contents.irText = out_->irText_;
    out_->tokenizer_ = draft_.options.tokenizer;
    out_->contents.tokenizer = std::as_bytes(std::span(out_->tokenizer_));
    if (draft_.pool.packs)
      out_->packing = packMatrices(draft_.module, draft_.pool);
    out_->weights_ = draft_.pool.weights();
    for (auto [i, t] : llvm::enumerate(out_->weights_)) {
      auto weight = std::make_unique<plan::WeightT>();
      weight->packed = int32_t(draft_.pool.pack(int(i)).value_or(-1));
      weight->name = hashText(t.hash());
      weight->dtype = static_cast<plan::DType>(t.dtype());
      weight->shape.assign(t.shape().begin(), t.shape().end());
      meta().weights.push_back(std::move(weight));
      out_->contents.weights.push_back({static_cast<const std::byte *>(t.raw()), t.bytes()});
    }
    for (const plan::WeightPartT &part : draft_.pool.parts())
      meta().weight_parts.push_back(std::make_unique<plan::WeightPartT>(part));
    meta().model_hash = XXH3_64bits(out_->irText_.data(), out_->irText_.size());
  }

  std::unique_ptr<GeneratedPlan> out_;
  PlanDraft draft_;
};

llvm::Expected<std::unique_ptr<GeneratedPlan>> generatePlan(const Module &module,
                                                            const CodegenOptions &options) {
  return PlanGenerator(module, options).run();
}

} // namespace gpt2c
