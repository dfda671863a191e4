#include "codegen/Codegen.h"

#include "codegen/KernelBuild.h"
#include "codegen/PlanPorts.h"
#include "codegen/PlanVersions.h"
#include "codegen/StepBuilder.h"
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "ir/Text.h"
#include "ir/ops/AppendAttention.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/sampling/SampledChoice.h"
#include "templates/Lowerings.h"
#include "templates/decode_step/common/PersistentStep.h"
#include "templates/sample/Sample.h"
#include "templates/tokens/Tokens.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"

#include <xxhash.h>

namespace gpt2c {

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

/// The most sequences of each version of @generate.
constexpr int64_t persistentRows[] = {1, 2, 4, 8, 16};
/// The most sequences for which @generate has been measured to be faster than the graph, without
/// thread block clusters.
constexpr int64_t fasterRows = 2;
/// The most sequences for which shares of clusters have, with a state in pages or without; and of
/// decoders whose heads turn or share keys, or whose MLP is gated, or whose int8 weights are about
/// the 31 MB a layer where that has been measured.
constexpr int64_t fasterShareRows = 1, fasterManyShareRows = 8, leastInt8ManyBytes = 28'000'000;
/// The same for the bytes of a layer's weights: a product of more has time to hide what a launch
/// takes. Without clusters, and with them, in floats and in int8.
constexpr int64_t fasterBytes = 28'000'000, fasterClusterBytes = 64'000'000,
                  fasterInt8ClusterBytes = 32'000'000;
/// The same for decoders whose heads turn or share keys, or whose MLP is gated, in clusters: around
/// 122 MB, where it has been measured.
constexpr int64_t leastGroupedBytes = 80'000'000, mostGroupedBytes = 130'000'000;

class PlanGenerator {
public:
  PlanGenerator(const Module &module, const CodegenOptions &options)
      : module_(module), options_(options) {}

  llvm::Expected<std::unique_ptr<GeneratedPlan>> run() {
    out_ = std::make_unique<GeneratedPlan>();
    plan::PlanT &meta = out_->contents.meta;
    meta.compiler_version = options_.compilerVersion;
    meta.model_name = module_.name;
    meta.precision = options_.precision;
    meta.flags = options_.flags;
    meta.eos_token = options_.eosToken;
    pool_.fuseNorm = options_.fuseNorm;
    pool_.tf32 = options_.fp32Math == Fp32Math::Tf32x3;
    pool_.chooser = options_.choose;
    pool_.launchMode = options_.dependentLaunch ? plan::LaunchMode::Pdl : plan::LaunchMode::Launch;
    pool_.target = Target::of(options_.archs);
    meta.batch_invariant = options_.batchInvariant;
    if (options_.batchInvariant && !module_.function(functions::extend))
      return makeError(ExitCode::Unsupported,
                       "--batch-invariant: the model has no @extend, the function over rows of any "
                       "sequences that is made so; a remark says why");
    if (llvm::Error e = describeKv(module_, options_, meta))
      return e;
    if (llvm::Error e = describePorts(module_, meta))
      return e;
    for (auto &f : module_.functions)
      if (options_.archs.empty())
        describeFunction(*f);
      else if (options_.batchInvariant && f->name() != functions::extend)
        continue; // the CPU device has it from the IR
      else if (llvm::Error e = lowerFunction(*f))
        return e;
    if (!options_.archs.empty()) {
      addAdvance();
      addSteps();
      addSample();
      if (options_.batchInvariant) {
        // Nothing but @extend has kernels.
      } else if (options_.decode == DecodeMode::Persistent) {
        if (llvm::Error e = addPersistent())
          return e;
      } else if (options_.decode == DecodeMode::Auto && measuredPersistent()) {
        if (llvm::Error e = addPersistent())
          out_->graphDecode = llvm::toString(std::move(e));
      }
      if (!noPagedStep_.empty() &&
          llvm::any_of(meta.functions, [](auto &f) { return f->name == rt::functions::generate; }))
        out_->otherSteps = "there is no persistent kernel over pages: " + noPagedStep_;
      if (llvm::Error e = compile())
        return e;
    }
    addTextAndWeights();
    return std::move(out_);
  }

private:
  plan::PlanT &meta() { return out_->contents.meta; }

  const plan::KvPlanT *kvPlan() const { return out_->contents.meta.kv.get(); }
  PlanVersions sizes() const {
    return {options_.maxBatch, kvPlan() ? kvPlan()->max_context : options_.context,
            options_.symbolBounds};
  }

  /// A function without steps: its ports are known, the CPU device runs its IR.
  void describeFunction(const Function &f) {
    if (isShortPrefill(f))
      return;
    auto out = std::make_unique<plan::FunctionT>();
    out->name = f.name();
    StepBuilder builder(pool_, *out, sizes().bounds(f, options_.maxBatch));
    builder.addInputs(f);
    builder.addOutputs(f);
    meta().functions.push_back(std::move(out));
  }

  using Versions = std::vector<std::unique_ptr<plan::FunctionT>>;

  /// Versions of @extend, by rows and segments.
  llvm::Expected<Versions> extendVersions(Function &f, PlanPool &pool) {
    Versions versions;
    for (const PlanVersions::RowsBox &box : sizes().rowsBoxes(!pool.batchInvariant())) {
      versions.push_back(std::make_unique<plan::FunctionT>());
      versions.back()->name = f.name();
      if (pool.orders)
        pool.orders->beginVersion("up to " + std::to_string(box.rows) + " rows");
      StepBuilder builder(pool, *versions.back(), sizes().boundsOfRows(f, box));
      if (hasSampling())
        builder.drawRows(Dim::symbol("segments"));
      if (llvm::Error e = builder.build(f, loweringOf))
        return e;
    }
    return versions;
  }

  /// The same, all in one order of sums.
  llvm::Expected<Versions> invariantVersions(Function &f) {
    SumOrders orders;
    pool_.orders = &orders;
    auto reset = llvm::make_scope_exit([&] { pool_.orders = nullptr; });
    PlanPool other = pool_; // what is built to find out is not kept
    if (auto versions = extendVersions(f, other); !versions)
      return versions.takeError();
    if (llvm::Error e = orders.decide())
      return e;
    out_->orderCosts = orders.estimates();
    auto versions = extendVersions(f, pool_);
    if (versions)
      if (llvm::Error e = checkOneOrder(*versions))
        return e;
    return versions;
  }

  /// Without a kernel for its attention @extend is left to the CPU.
  llvm::Error lowerExtend(Function &f) {
    auto versions = options_.batchInvariant ? invariantVersions(f) : extendVersions(f, pool_);
    if (versions) {
      llvm::move(*versions, std::back_inserter(meta().functions));
      return llvm::Error::success();
    }
    out_->noRows = llvm::toString(versions.takeError());
    if (options_.batchInvariant)
      return makeError(ExitCode::Unsupported, "--batch-invariant: @extend has no kernels that give "
                                              "a row the same bits in every call: " +
                                                  out_->noRows);
    describeFunction(f);
    return llvm::Error::success();
  }

  llvm::Error lowerFunction(Function &f) {
    if (f.name() == functions::extend)
      return lowerExtend(f);
    for (auto [batch, seq] : sizes().boxes(f, module_)) {
      auto out = std::make_unique<plan::FunctionT>();
      out->name = isShortPrefill(f) ? rt::functions::prefill : f.name();
      SymbolBounds limits = sizes().bounds(f, batch);
      limits["seq"].second = std::min(limits["seq"].second, seq);
      StepBuilder builder(pool_, *out, limits);
      if (llvm::Error e = builder.build(f, loweringOf)) {
        out_->hostOnly.push_back(llvm::toString(std::move(e)));
        describeFunction(f);
        return llvm::Error::success();
      }
      meta().functions.push_back(std::move(out));
    }
    return llvm::Error::success();
  }

  /// The bookkeeping between decode steps on the device: tokens[step] = next, ids = next, past
  /// += 1.
  void addAdvance() {
    if (llvm::none_of(meta().functions, [](auto &f) {
          return f->name == rt::functions::decode && !f->steps.empty();
        }))
      return;
    Function f(rt::functions::advance);
    Dim batch = Dim::symbol("batch"), capacity = Dim::symbol("capacity");
    Value *next = f.addArgument({DType::I32, {batch}}, "next");
    Value *ids = f.addArgument({DType::I32, {batch, 1}}, "ids");
    Value *past = f.addArgument({DType::I32, {batch}}, "past");
    Value *tokens = f.addArgument({DType::I32, {capacity, batch}}, "tokens");
    Value *step = f.addArgument({DType::I32, {Dim(1)}}, "step");
    SymbolBounds symbols = sizes().bounds(f, options_.maxBatch);
    symbols["capacity"] = {1, 1 << 20};
    auto out = std::make_unique<plan::FunctionT>();
    out->name = rt::functions::advance;
    StepBuilder builder(pool_, *out, symbols);
    builder.addInputs(f);
    StepBuilder::Args args;
    for (Value *v : {next, ids, past, tokens, step})
      args[v->name] = llvm::cantFail(builder.read(v));
    args["batch"] = builder.i32(batch);
    args["capacity"] = builder.i32(capacity);
    plan::ExprT one = rt::constantExpr(1);
    builder.launch({}, "advance", advance(pool_.nextKernelName("advance")), args, {one, one, one},
                   0, 0);
    meta().functions.push_back(std::move(out));
  }

  /// Whether a device can choose otherwise than greedily.
  bool hasSampling() {
    return meta().vocab_size >= 1 && meta().vocab_size <= mostSampledVocabulary;
  }
  /// The choices behind the logits of @extend, for sequences that are not greedy: a version for few
  /// of them, and one for any number.
  void addSample() {
    const bool extends = llvm::any_of(meta().functions, [](auto &f) {
      return f->name == rt::functions::extend && !f->steps.empty();
    });
    if (!extends || !hasSampling())
      return;
    const int64_t vocabulary = meta().vocab_size;
    if (const SampleConfig c = spreadSampleConfig(vocabulary, pool_.target); c.blocks > 1)
      addSample(c, std::min(mostSpreadRows, options_.maxBatch));
    SampleConfig c = sampleConfig(vocabulary, pool_.target);
    c.rehearsed = rehearsed_;
    addSample(c, options_.maxBatch);
  }
  void addSample(const SampleConfig &c, int64_t most) {
    Function f(rt::functions::sample);
    const Dim segments = Dim::symbol("segments"), all(1);
    Value *logits = f.addArgument({DType::F32, {segments, Dim(c.vocabulary)}}, "logits");
    Value *greedy = f.addArgument({DType::I32, {segments}}, "greedy");
    Value *rows = f.addArgument({DType::I32, {segments, Dim(rt::sampleRowWords)}}, "rows");
    Value *adjustments = f.addArgument({DType::I32, {all, Dim(4)}}, "adjustments");
    Value *next = f.addArgument({DType::I32, {segments}}, "next");
    constexpr int64_t reportWords = sizeof(rt::LogprobReport) / sizeof(int32_t);
    Value *reports = f.addArgument({DType::I32, {segments, Dim(reportWords)}}, "reports");
    auto out = std::make_unique<plan::FunctionT>();
    out->name = rt::functions::sample;
    SymbolBounds symbols;
    symbols["segments"] = {1, most};
    StepBuilder builder(pool_, *out, symbols);
    builder.addInputs(f);
    StepBuilder::Args args;
    for (Value *v : {logits, greedy, rows, adjustments, next, reports})
      args[v->name] = llvm::cantFail(builder.read(v));
    builder.launch({}, "sample", gpt2c::sample(pool_.nextKernelName("sample"), c), args,
                   gridOf(c, builder.expr(segments)), segments * Dim(4 * c.vocabulary), 0);
    meta().functions.push_back(std::move(out));
  }

  /// @extend of single tokens: @decode over its state.
  void addSteps() {
    const Function *extend = module_.function(functions::extend);
    auto decode =
        llvm::find_if(module_.functions, [](auto &f) { return f->name() == functions::decode; });
    const bool extends = llvm::any_of(meta().functions, [](auto &f) {
      return f->name == rt::functions::extend && !f->steps.empty();
    });
    if (!extends || options_.batchInvariant || decode == module_.functions.end())
      return;
    const bool persistent = options_.decode == DecodeMode::Persistent ||
                            (options_.decode == DecodeMode::Auto && measuredPersistent() &&
                             measuredPersistent(**decode, layerBytes(**decode)));
    const int64_t covered = persistent ? addPersistentSteps(**decode, *extend) : 0;
    for (auto [batch, seq] : sizes().boxes(**decode, module_)) {
      if (batch <= covered)
        continue;
      auto out = std::make_unique<plan::FunctionT>();
      out->name = rt::functions::steps;
      StepBuilder builder(pool_, *out, sizes().bounds(**decode, batch));
      builder.usePages(*extend);
      if (hasSampling())
        builder.drawRows(Dim::symbol("batch"));
      if (llvm::Error e = builder.build(**decode, loweringOf)) {
        out_->otherSteps = "they run as @extend: " + llvm::toString(std::move(e));
        return;
      }
      meta().functions.push_back(std::move(out));
    }
  }

  /// The same as persistent kernels, for plans that decode so; returns for how many sequences.
  int64_t addPersistentSteps(Function &decode, const Function &extend) {
    const int64_t most = options_.precision == "fp32" ? 1 : options_.maxBatch;
    int64_t covered = 0;
    for (int64_t rows : persistentRows) {
      if (covered >= most)
        break;
      auto out = std::make_unique<plan::FunctionT>();
      if (llvm::Error e = buildPagedStep(
              pool_, *out, decode, extend, sizes().bounds(decode, std::min(rows, most)), rows,
              options_.decode == DecodeMode::Persistent || rows <= shareRows(decode))) {
        std::string why = llvm::toString(std::move(e));
        if (rows == 1)
          noPagedStep_ = std::move(why);
        break;
      }
      if (options_.dependentLaunch && leavesProcessors(*out, mostRehearsedRows, pool_.target))
        rehearsed_ = int(std::min<int64_t>(rows, mostRehearsedRows));
      covered = rows;
      meta().functions.push_back(std::move(out));
    }
    return covered;
  }

  llvm::Error addPersistent() {
    if (llvm::none_of(options_.archs, [](const std::string &name) {
          std::optional<rt::Arch> arch = rt::Arch::parse(name);
          return arch && arch->capability.major >= 9;
        }))
      return makeError(ExitCode::Unsupported,
                       "--decode=persistent: none of the architectures is sm_90 or later");
    auto decode =
        llvm::find_if(module_.functions, [](auto &f) { return f->name() == functions::decode; });
    if (decode == module_.functions.end())
      return makeError(ExitCode::Unsupported, "--decode=persistent: the model has no @decode");
    const int64_t most = options_.precision == "fp32" ? 1 : options_.maxBatch;
    const bool asked = options_.decode != DecodeMode::Auto;
    const int64_t bytes = asked ? 0 : layerBytes(**decode);
    if (!asked && !measuredPersistent(**decode, bytes))
      return llvm::Error::success();
    bool clusters = true; // until a form is known
    int64_t covered = 0;
    for (int64_t rows : persistentRows) {
      const bool faster = asked || (rows <= fasterRows && bytes <= fasterBytes);
      if (covered >= most || !(faster || clusters))
        break;
      auto out = std::make_unique<plan::FunctionT>();
      if (llvm::Error e = buildPersistentStep(
              pool_, *out, **decode, sizes().bounds(**decode, std::min(rows, most)), rows,
              {.stages = faster, .shares = asked || rows <= shareRows(**decode)})) {
        if (rows == 1)
          return e;
        if (bytes > fasterBytes) { // nothing is missed
          llvm::consumeError(std::move(e));
          break;
        }
        out_->graphDecode = std::to_string(rows) + " sequences: " + llvm::toString(std::move(e));
        break;
      }
      clusters = !out->steps.empty() && out->steps.front()->clusters > 0;
      covered = rows;
      meta().functions.push_back(std::move(out));
    }
    return llvm::Error::success();
  }
  /// Bytes of weights of the products of a layer, on average; those of the last one are the
  /// vocabulary's.
  static int64_t layerBytes(const Function &decode) {
    int64_t bytes = 0, last = 0, layers = 0;
    for (auto &op : decode.ops()) {
      layers += op->is(OpCode::AppendAttention);
      if (!op->is(OpCode::Linear) && !op->is(OpCode::QuantizedLinear))
        continue;
      const Type &w = op->operand(ops::Linear::W)->type;
      bytes += last;
      last = byteSize(w.dtype);
      for (const Dim &d : w.shape)
        last *= d.constant().value_or(0);
    }
    return bytes / std::max<int64_t>(layers, 1);
  }
  /// Whether heads turn or share keys, or the MLP is gated.
  static bool isGrouped(const Function &decode) {
    return llvm::any_of(decode.ops(), [](const auto &op) {
      return op->is(OpCode::Rope) || op->is(OpCode::Gated) ||
             (op->is(OpCode::AppendAttention) &&
              op->operand(ops::AppendAttention::Kv)->type.shape[3] !=
                  Dim(op->intAttr("num_heads")));
    });
  }
  static int64_t shareRows(const Function &decode) {
    const bool many =
        isGrouped(decode) || (isQuantised(decode) && layerBytes(decode) >= leastInt8ManyBytes);
    return many ? fasterManyShareRows : fasterShareRows;
  }
  static bool isQuantised(const Function &decode) {
    return llvm::any_of(decode.ops(),
                        [](const auto &op) { return op->is(OpCode::QuantizedLinear); });
  }
  /// Whether a step with so many bytes of weights in a layer may be faster as a persistent kernel.
  static bool measuredPersistent(const Function &decode, int64_t bytes) {
    return isGrouped(decode)
               ? bytes >= leastGroupedBytes && bytes <= mostGroupedBytes
               : bytes <= (isQuantised(decode) ? fasterInt8ClusterBytes : fasterClusterBytes);
  }
  /// Where the persistent kernel may be faster than the graph: with clusters, beside all other
  /// optimisations.
  bool measuredPersistent() const {
    return pool_.target.has(stepClusters) && options_.fuseNorm && options_.dependentLaunch &&
           llvm::any_of(module_.functions, [](auto &f) { return f->name() == functions::decode; });
  }

  llvm::Error compile() {
    if (pool_.kernels().empty())
      return llvm::Error::success();
    auto nvrtc = Nvrtc::load(options_.cudaPath);
    if (!nvrtc)
      return nvrtc.takeError();
    for (const std::string &arch : options_.archs)
      if (!(*nvrtc)->supports(arch))
        return makeError(ExitCode::Unsupported,
                         "NVRTC " + (*nvrtc)->version() + " (" + (*nvrtc)->libraryPath() +
                             ") cannot compile for " + arch +
                             "; a newer one is needed, or leave it out of --gpu-arch");
    std::vector<KernelProgram> programs;
    for (const auto &[i, k] : llvm::enumerate(pool_.kernels())) {
      auto source = std::make_unique<plan::SourceT>();
      source->name = k.name + ".cu";
      source->text = moduleSource(k);
      programs.push_back({source->name, source->text});
      auto kernel = std::make_unique<plan::KernelT>();
      kernel->name = k.name;
      kernel->source = int(i);
      meta().sources.push_back(std::move(source));
      meta().kernels.push_back(std::move(kernel));
    }
    KernelCache cache(options_.kernelCache);
    auto images = buildKernels(**nvrtc, programs,
                               {options_.archs, options_.threads, options_.progress}, cache);
    if (!images)
      return images.takeError();
    out_->images_ = std::move(*images);
    out_->kernels = {unsigned(out_->images_.size()) - cache.hits(), cache.hits(), cache.damaged(),
                     cache.failedToStore()};
    for (size_t i = 0; i < out_->images_.size(); ++i) {
      const std::string &arch = options_.archs[i / programs.size()];
      auto image = std::make_unique<plan::ImageT>();
      image->source = int(i % programs.size());
      image->arch = arch;
      image->ptx = llvm::StringRef(arch).starts_with("compute_");
      meta().images.push_back(std::move(image));
      out_->contents.images.push_back(std::as_bytes(std::span(out_->images_[i])));
    }
    return llvm::Error::success();
  }

  void addTextAndWeights() {
    PrintOptions print;
    print.weights = [&](uint64_t, const Tensor &t) { pool_.weight(t); };
    llvm::raw_string_ostream os(out_->irText_);
    gpt2c::print(module_, os, print);
    os.flush();
    out_->contents.irText = out_->irText_;
    out_->tokenizer_ = options_.tokenizer;
    out_->contents.tokenizer = std::as_bytes(std::span(out_->tokenizer_));
    out_->weights_ = pool_.weights();
    for (const Tensor &t : out_->weights_) {
      auto weight = std::make_unique<plan::WeightT>();
      weight->name = hashText(t.hash());
      weight->dtype = static_cast<plan::DType>(t.dtype());
      weight->shape.assign(t.shape().begin(), t.shape().end());
      meta().weights.push_back(std::move(weight));
      out_->contents.weights.push_back({static_cast<const std::byte *>(t.raw()), t.bytes()});
    }
    meta().model_hash = XXH3_64bits(out_->irText_.data(), out_->irText_.size());
  }

  const Module &module_;
  CodegenOptions options_;
  PlanPool pool_;
  std::unique_ptr<GeneratedPlan> out_;
  int rehearsed_ = 0;       ///< rows for which @sample rehearses behind @steps
  std::string noPagedStep_; ///< why the step of one sequence has no persistent kernel over pages
};

llvm::Expected<std::unique_ptr<GeneratedPlan>> generatePlan(const Module &module,
                                                            const CodegenOptions &options) {
  return PlanGenerator(module, options).run();
}

} // namespace gpt2c
