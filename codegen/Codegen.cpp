#include "codegen/Codegen.h"

#include "codegen/KernelBuild.h"
#include "codegen/PlanPorts.h"
#include "codegen/StepBuilder.h"
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "ir/Text.h"
#include "ir/ops/AppendAttention.h"
#include "runtime/Expr.h"
#include "runtime/FunctionNames.h"
#include "runtime/RowsCall.h"
#include "templates/Lowerings.h"
#include "templates/persistent/PersistentStep.h"
#include "templates/tokens/Tokens.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"

#include <xxhash.h>

#include <array>

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
/// The same for the bytes of a layer's weights: a product of more has time to hide what a launch
/// takes. Without clusters, and with them.
constexpr int64_t fasterBytes = 28'000'000, fasterClusterBytes = 48'000'000;

/// The most pages of the KV state of @extend; how many there are is said at load.
constexpr int64_t mostPages = 1 << 24;

/// The most rows of each version of @extend: near those for which @decode and @prefill are
/// compiled, so that most kernels serve both.
constexpr std::array<int64_t, 8> extendRows = {1, 8, 32, 64, 128, 256, 512, 1024};

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
      if (options_.batchInvariant) {
        // Nothing but @extend has kernels.
      } else if (options_.decode == DecodeMode::Persistent) {
        if (llvm::Error e = addPersistent())
          return e;
      } else if (options_.decode == DecodeMode::Auto && measuredPersistent()) {
        if (llvm::Error e = addPersistent())
          out_->graphDecode = llvm::toString(std::move(e));
      }
      if (llvm::Error e = compile())
        return e;
    }
    addTextAndWeights();
    return std::move(out_);
  }

private:
  plan::PlanT &meta() { return out_->contents.meta; }

  /// Bounds of the symbols of `f`: by name in the functions over the KV state, by the inputs they
  /// belong to in an exported graph, whose symbols are named as the exporter liked.
  SymbolBounds bounds(const Function &f, int64_t maxBatch) const {
    int64_t context = kvPlan() ? kvPlan()->max_context : 1024;
    SymbolBounds bounds = options_.symbolBounds;
    bounds.insert({{"batch", {1, maxBatch}},
                   {"seq", {1, context}},
                   {"past", {0, context}},
                   {"slots", {1, options_.maxBatch}}});
    boundRows(bounds, mostRows());
    auto bind = [&](const Type &type, unsigned axis, std::pair<int64_t, int64_t> range) {
      if (axis < type.rank())
        if (auto symbol = type.shape[axis].asSymbol())
          bounds.try_emplace(symbol->str(), range);
    };
    if (const Value *ids = f.argument("ids")) {
      bind(ids->type, 0, {1, maxBatch});
      bind(ids->type, 1, {1, context});
    }
    for (unsigned i = 0; i < f.numArguments(); ++i) {
      const Type &type = f.argument(i)->type;
      switch (type.rank()) {
      case 2: // a mask over past and new tokens
        bind(type, 0, {1, maxBatch});
        bind(type, 1, {1, 2 * context});
        break;
      case 4: // past[batch, heads, tokens, head_dim]
        bind(type, 0, {1, maxBatch});
        bind(type, 2, {0, context});
        break;
      case 5: // past[2, batch, heads, tokens, head_dim]
        bind(type, 1, {1, maxBatch});
        bind(type, 3, {0, context});
        break;
      default:
        break;
      }
    }
    return bounds;
  }
  const plan::KvPlanT *kvPlan() const { return out_->contents.meta.kv.get(); }

  /// The first version of @prefill where few rows are computed in another way than many: the plan
  /// has it under the same name, and other devices do without.
  static bool isShortPrefill(const Function &f) { return f.name() == functions::prefillShort; }
  bool hasShortPrefill() const { return module_.function(functions::prefillShort); }

  /// A function without steps: its ports are known, the CPU device runs its IR.
  void describeFunction(const Function &f) {
    if (isShortPrefill(f))
      return;
    auto out = std::make_unique<plan::FunctionT>();
    out->name = f.name();
    StepBuilder builder(pool_, *out, bounds(f, options_.maxBatch));
    builder.addInputs(f);
    builder.addOutputs(f);
    meta().functions.push_back(std::move(out));
  }

  /// The largest batch and sequence of each version of a function over the KV state, smallest
  /// first: what a step should look like depends on how many rows it has.
  std::vector<std::pair<int64_t, int64_t>> variants(const Function &f) const {
    const int64_t context = kvPlan() ? kvPlan()->max_context : 1024, batch = options_.maxBatch;
    std::vector<std::pair<int64_t, int64_t>> list;
    if (f.name() == functions::decode)
      list = {{1, context},  {8, context},  {16, context},
              {32, context}, {64, context}, {128, context}};
    else if (isShortPrefill(f))
      return {{1, std::min<int64_t>(32, context)}};
    else if (f.name() == functions::prefill)
      list = {{1, 32}, {1, 128}, {1, 512}, {1, context}, {8, 128}, {8, 512}};
    if (f.name() == functions::prefill && hasShortPrefill())
      list.erase(list.begin());
    llvm::erase_if(list, [&](auto v) { return v.first > batch || v.second > context; });
    list.erase(llvm::unique(list), list.end());
    if (list.empty() || list.back() != std::pair(batch, context))
      list.push_back({batch, context});
    return list;
  }

  /// The most new tokens of a call of @extend.
  int64_t mostRows() const {
    const int64_t context = kvPlan() ? kvPlan()->max_context : 1024;
    return std::min<int64_t>(extendRows.back(), options_.maxBatch * context);
  }
  /// Of the symbols of @extend for that many rows. A piece has up to pieceTokens of one sequence.
  void boundRows(SymbolBounds &bounds, int64_t rows) const {
    const int64_t segments = std::min(rows, options_.maxBatch);
    const int64_t pieces = std::min(rows, rows / rt::pieceTokens + segments);
    bounds.insert({{"rows", {1, rows}},
                   {"segments", {1, segments}},
                   {"sequences", {1, segments}},
                   {"pieces", {1, pieces}},
                   {"pages", {1, mostPages}}});
  }

  using Versions = std::vector<std::unique_ptr<plan::FunctionT>>;

  /// Versions of @extend, by rows alone.
  llvm::Expected<Versions> extendVersions(Function &f, PlanPool &pool) {
    Versions versions;
    int64_t covered = 0;
    for (int64_t rows : extendRows) {
      if (covered == mostRows())
        break;
      covered = std::min(rows, mostRows());
      versions.push_back(std::make_unique<plan::FunctionT>());
      versions.back()->name = f.name();
      SymbolBounds limits;
      boundRows(limits, covered);
      limits.merge(bounds(f, options_.maxBatch));
      if (pool.orders)
        pool.orders->beginVersion("up to " + std::to_string(covered) + " rows");
      StepBuilder builder(pool, *versions.back(), limits);
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
    for (auto [batch, seq] : variants(f)) {
      auto out = std::make_unique<plan::FunctionT>();
      out->name = isShortPrefill(f) ? rt::functions::prefill : f.name();
      SymbolBounds limits = bounds(f, batch);
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
    SymbolBounds symbols = bounds(f, options_.maxBatch);
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
    const int64_t most = options_.precision == "fp16" ? options_.maxBatch : 1;
    const bool asked = options_.decode != DecodeMode::Auto;
    const int64_t bytes = asked ? 0 : layerBytes(**decode);
    if (bytes > fasterClusterBytes)
      return llvm::Error::success();
    bool clusters = true; // until a form is known
    int64_t covered = 0;
    for (int64_t rows : persistentRows) {
      const bool faster = asked || (rows <= fasterRows && bytes <= fasterBytes);
      if (covered >= most || !(faster || clusters))
        break;
      auto out = std::make_unique<plan::FunctionT>();
      if (llvm::Error e = buildPersistentStep(
              pool_, *out, **decode, bounds(**decode, std::min(rows, most)), rows, !faster)) {
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
  /// Where the persistent kernel may be faster than the graph: on Hopper, beside all other
  /// optimisations.
  bool measuredPersistent() const {
    return pool_.target.hopper() && options_.fuseNorm && options_.dependentLaunch &&
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
};

llvm::Expected<std::unique_ptr<GeneratedPlan>> generatePlan(const Module &module,
                                                            const CodegenOptions &options) {
  return PlanGenerator(module, options).run();
}

} // namespace gpt2c
