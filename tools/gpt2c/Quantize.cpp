#include "tools/gpt2c/Quantize.h"

#include "codegen/Nvrtc.h"
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "passes/quantize/ScoreDivergence.h"
#include "passes/quantize/WeightGroups.h"
#include "runtime/cuda/CudaDevice.h"
#include "tools/common/Calibrate.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/Tokens.h"
#include "tools/common/flags/CommandLine.h"
#include "tools/gpt2c/AutoSchemes.h"
#include "tools/gpt2c/Gpu.h"
#include "tools/gpt2c/QualityGate.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"

#include <random>

namespace gpt2c {

namespace cl = llvm::cl;

static cl::opt<std::string>
    calibrationPath("calibration",
                    cl::desc("Text from which int8 takes its scales, read with the tokenizer; "
                             "FILE.ids holds token ids"),
                    cl::value_desc("FILE"), category());
static cl::opt<int64_t> calibrationTokens("calibration-tokens",
                                          cl::desc("Only the first N tokens of it (default 16384)"),
                                          cl::value_desc("N"), cl::init(16384), category());
static cl::opt<std::string> saveCalibration("save-calibration",
                                            cl::desc("Write the statistics, for "
                                                     "--load-calibration"),
                                            cl::value_desc("FILE"), category());
static cl::opt<std::string>
    evalPath("eval",
             cl::desc("Text over which the plan is compared with the model before int8 (or .ids)"),
             cl::value_desc("FILE"), category());
static cl::opt<int64_t> evalTokens("eval-tokens",
                                   cl::desc("Only the first N tokens of it (default 16384)"),
                                   cl::value_desc("N"), cl::init(16384), category());
static cl::opt<std::string>
    maxIncrease("max-ppl-increase",
                cl::desc("Most that int8 may add to the perplexity over --eval: 1% or 0.01; the "
                         "layers that do most harm keep their precision until that holds"),
                cl::value_desc("SHARE"), category());
static cl::opt<std::string> maxKl("max-kl",
                                  cl::desc("The same for the mean KL divergence of the next token"),
                                  cl::value_desc("NATS"), category());

/// Tokens over which layers are ranked.
constexpr int64_t rankTokens = 2048;

static llvm::Expected<QualityLimits> limits() {
  QualityLimits out;
  if (!maxIncrease.empty()) {
    rt::Result<double> share = parseShare("--max-ppl-increase", maxIncrease);
    if (!share)
      return toError(share.status());
    out.maxIncrease = *share;
  }
  if (!maxKl.empty()) {
    double value = 0;
    if (llvm::StringRef(maxKl).getAsDouble(value) || !(value >= 0))
      return makeError(ExitCode::Usage, "--max-kl=" + maxKl + " is no number of nats");
    out.maxKl = value;
  }
  return out;
}

/// Whether statistics are there for scores alone: some rows of some windows do.
static bool asksForScores(const QuantizeOptions &options) {
  return options.scheme == QuantizeScheme::Fp8 && options.fp8Products;
}

/// Smoothing, weights of four bits and scores by inputs in fp8 ask which channels are large, which
/// lies in the weights: without a text it is found with random tokens.
static bool collectsStatistics(const QuantizeOptions &options) {
  const bool asks = options.scheme == QuantizeScheme::W8A8Smooth ||
                    options.scheme == QuantizeScheme::W4A16 ||
                    options.scheme == QuantizeScheme::Auto || asksForScores(options);
  return !calibrationPath.empty() || (asks && !options.calibration);
}

std::vector<FlagPath> quantizeInputs() {
  return {{"--calibration", calibrationPath}, {"--eval", evalPath}};
}

std::vector<FlagPath> quantizeOutputs() { return {{"--save-calibration", saveCalibration}}; }

bool usesDevice(const QuantizeOptions &options) {
  return collectsStatistics(options) || !evalPath.empty();
}

llvm::Error checkQuantizeUsage(const QuantizeOptions &options) {
  const bool int8 = options.any();
  bool gated = !maxIncrease.empty() || !maxKl.empty();
  if (!int8 && (gated || !evalPath.empty()))
    return makeError(ExitCode::Usage,
                     "--eval and its limits judge int8: give --quantize or --kv-type");
  if (!int8 && (!calibrationPath.empty() || options.calibration) && saveCalibration.empty())
    return makeError(ExitCode::Usage,
                     "a calibration has no effect without int8: give --quantize, or keep it with "
                     "--save-calibration=FILE");
  if (options.scheme == QuantizeScheme::Auto && (!gated || evalPath.empty()))
    return makeError(ExitCode::Usage,
                     "--quantize=auto chooses by limits: give --eval=TEXT, and --max-ppl-increase "
                     "or --max-kl");
  if (gated && evalPath.empty())
    return makeError(ExitCode::Usage, "--max-ppl-increase and --max-kl need --eval=FILE");
  if (!calibrationPath.empty() && options.calibration)
    return makeError(ExitCode::Usage, "--calibration and --load-calibration exclude each other");
  if (!saveCalibration.empty() && !collectsStatistics(options))
    return makeError(ExitCode::Usage, "--save-calibration needs --calibration=FILE");
  if (calibrationTokens < 2 || evalTokens < 2)
    return makeError(ExitCode::Usage, "--calibration-tokens and --eval-tokens are at least 2");
  if (hasCalibratedScales(options.scheme) && calibrationPath.empty() && !options.calibration)
    return makeError(ExitCode::Usage,
                     "--quantize=" + schemeName(options.scheme) +
                         " takes its scales from statistics: give --calibration=TEXT or "
                         "--load-calibration=FILE");
  auto parsed = limits();
  return parsed ? llvm::Error::success() : parsed.takeError();
}

/// A line on a terminal, written over by the next.
static void show(const llvm::Twine &text) {
  if (llvm::sys::Process::StandardErrIsDisplayed())
    llvm::errs() << "\r\033[K" << text;
}

namespace {

/// What runs models before there is a plan, and its name for people.
struct Runner {
  OpenForward open;
  std::string name;
};

} // namespace

/// `options` are those of the plan.
static llvm::Expected<Runner> openDevice(const DeviceName &device, const CodegenOptions &options) {
  const Runner host{openHostForward, "the CPU"};
  if (device.kind == DeviceName::Kind::Cpu)
    return host;
  const bool either = device.kind == DeviceName::Kind::Auto;
  auto gpu = rt::cuda::CudaDevice::open(device.ordinal);
  if (!gpu)
    return either ? llvm::Expected<Runner>(host) : toError(gpu.status());
  if (auto nvrtc = Nvrtc::load(options.cudaPath); !nvrtc) {
    if (!either)
      return nvrtc.takeError();
    llvm::consumeError(nvrtc.takeError());
    return host;
  }
  CodegenOptions native = options;
  native.archs = {archOf((*gpu)->capability())};
  native.progress = nullptr;
  return Runner{[native, gpu = gpuOf(device)](const Module &module, int64_t batch) {
                  return openPlanForward(module, batch, native, gpu);
                },
                (*gpu)->name()};
}

/// The tokens of --calibration, or random ones.
static llvm::Expected<rt::Tokens> calibrationText(PassContext &ctx, const Function &forward,
                                                  const rt::Tokenizer *tokenizer) {
  if (!calibrationPath.empty())
    return readTokens(calibrationPath, tokenizer);
  auto logits = llvm::find(forward.resultNames, "logits");
  int64_t vocab = 0;
  if (logits != forward.resultNames.end())
    vocab = forward.returned()[logits - forward.resultNames.begin()]
                ->type.shape.back()
                .constant()
                .value_or(0);
  if (vocab == 0)
    return makeError(ExitCode::Usage, "the model does not say how many tokens it has: give "
                                      "--calibration=TEXT or --load-calibration=FILE");
  ctx.setPass("calibration");
  ctx.note("random tokens stand for a text; --calibration=TEXT takes a real one");
  std::mt19937 random(1);
  constexpr int64_t forScores = 2048;
  rt::Tokens tokens(size_t(asksForScores(ctx.options().quantize)
                               ? std::min<int64_t>(calibrationTokens, forScores)
                               : calibrationTokens));
  for (int32_t &id : tokens)
    id = int32_t(random() % uint64_t(vocab));
  return tokens;
}

static llvm::Error collectStatistics(PassContext &ctx, const PipelineOptions &pipeline,
                                     const Runner &runner, const rt::Tokenizer *tokenizer) {
  const Module &module = ctx.module();
  QuantizeOptions &quantize = ctx.options().quantize;
  auto tokens = calibrationText(ctx, *module.function(functions::forward), tokenizer);
  if (!tokens)
    return tokens.takeError();
  CalibrateOptions calibration;
  calibration.maxTokens = calibrationTokens;
  constexpr int64_t mostChannels = 3072; // of a block, whose products are 36 MiB
  if (quantize.scheme == QuantizeScheme::W4A16 || quantize.scheme == QuantizeScheme::Auto)
    calibration.productChannels = mostChannels;
  calibration.open = [&](const Function &observed) -> llvm::Expected<std::unique_ptr<TextForward>> {
    PassOptions plain = ctx.options();
    plain.quantize = {};
    plain.precision = DType::F32;
    auto lowered = lowerForward(module, observed, plain, pipeline);
    if (!lowered)
      return lowered.takeError();
    return runner.open(std::move(*lowered), 1);
  };
  calibration.progress = [&](int64_t done, int64_t windows) {
    show("calibration on " + llvm::Twine(runner.name) + ": " + llvm::Twine(done) + " of " +
         llvm::Twine(windows) + " windows");
  };
  if (int64_t context = contextOf(module))
    calibration.window = std::min(calibration.window, context);
  auto statistics = calibrate(*module.function(functions::forward), *tokens, calibration);
  show("");
  if (!statistics)
    return statistics.takeError();
  quantize.calibration = std::make_shared<Calibration>(std::move(*statistics));
  if (saveCalibration.empty())
    return llvm::Error::success();
  return writeOutput(saveCalibration,
                     [&](llvm::raw_ostream &os) { os << quantize.calibration->toJson(); });
}

static void record(const QualityReport &base, const QualityReport &report,
                   plan::QuantizationT &card) {
  card.eval_tokens = report.tokens;
  card.base_perplexity = base.perplexity;
  card.perplexity = report.perplexity;
  card.kl_mean = report.baseline->klMean;
  card.kl_p99 = report.baseline->klP99;
  card.agreement = report.baseline->agreement;
}

/// Takes the schemes that were chosen into the options and the card, with a remark for each layer.
static void take(const AutoResult &result, PassContext &ctx, plan::QuantizationT &card) {
  QuantizeOptions &quantize = ctx.options().quantize;
  ctx.setPass("auto-schemes");
  auto note = [&](const std::string &name, const SchemePrice &price, double kl) {
    auto layer = std::make_unique<plan::ChosenLayerT>();
    layer->name = name;
    layer->scheme = schemeName(price.scheme).str();
    layer->share = price.share;
    layer->kl = kl;
    card.chosen.push_back(std::move(layer));
    const bool plain = price.scheme == QuantizeScheme::None;
    std::string text =
        name + (plain ? " keeps its precision" : " is in " + schemeName(price.scheme).str());
    if (!plain)
      text += llvm::formatv(": about {0:f2} of the time that it takes unquantised", price.share);
    if (kl >= 0)
      text += llvm::formatv("; its fastest scheme in it alone has a KL divergence of {0:e2}", kl);
    ctx.note(text);
  };
  for (const ChosenScheme &layer : result.layers) {
    note(layer.name, layer.price, layer.kl);
    quantize.chosen[layer.name] = layer.price.scheme;
  }
}

/// The schemes of --quantize=auto.
static llvm::Expected<GateResult> choose(PassContext &ctx, const PipelineOptions &pipeline,
                                         const CodegenOptions &codegen, const rt::Tokens &tokens,
                                         const GateOptions &gate, plan::QuantizationT &card) {
  auto prices = priceSchemes(ctx.module(), ctx.options(), pipeline, codegen);
  if (!prices)
    return prices.takeError();
  auto result = chooseSchemes(ctx.module(), ctx.options(), pipeline, tokens, gate, *prices);
  if (!result)
    return result.takeError();
  take(*result, ctx, card);
  return std::move(result->quality);
}

static llvm::Error judge(PassContext &ctx, const PipelineOptions &pipeline,
                         const CodegenOptions &codegen, const Runner &runner,
                         const rt::Tokenizer *tokenizer, plan::QuantizationT &card) {
  auto tokens = readTokens(evalPath, tokenizer);
  if (!tokens)
    return tokens.takeError();
  GateOptions gate;
  gate.limits = llvm::cantFail(limits(), "checked before");
  gate.maxTokens = evalTokens;
  gate.rankTokens = rankTokens;
  gate.open = runner.open;
  gate.progress = [&](const llvm::Twine &what) {
    show("quality on " + llvm::Twine(runner.name) + ": " + what);
  };
  gate.estimate = [&](const llvm::Twine &what) {
    show("");
    llvm::errs() << "note: quality on " << runner.name << ": " << what << "\n";
  };
  auto result = ctx.options().quantize.scheme == QuantizeScheme::Auto
                    ? choose(ctx, pipeline, codegen, *tokens, gate, card)
                    : holdQuality(ctx.module(), ctx.options(), pipeline, *tokens, gate);
  show("");
  if (!result)
    return result.takeError();
  record(result->baseline, result->quantised, card);
  for (const LayerSensitivity &s : result->kept) {
    ctx.options().quantize.keep.insert(s.name);
    auto layer = std::make_unique<plan::KeptLayerT>();
    layer->name = s.name;
    layer->kl = s.kl;
    card.kept.push_back(std::move(layer));
    ctx.setPass("quality-gate");
    const QuantizeScheme scheme = ctx.options().quantize.scheme;
    const bool four = scheme == QuantizeScheme::W4A16;
    ctx.note(llvm::formatv("{0} {1}: {2} in it alone has a KL divergence of {3:e2}", s.name,
                           four ? "has weights of eight bits" : "keeps its precision",
                           four            ? "int4"
                           : isFp8(scheme) ? "fp8"
                                           : "int8",
                           s.kl)
                 .str());
  }
  return llvm::Error::success();
}

/// The stage before which statistics are collected and layers judged.
constexpr const char *quantisedStage = "quantised";

/// Whether --compile-to stops before int8.
static bool stopsEarlier(const PipelineOptions &pipeline) {
  for (const Stage &stage : gpt2c::pipeline()) {
    if (stage.name == quantisedStage)
      return false;
    if (stage.name == pipeline.compileTo)
      return true;
  }
  return false;
}

llvm::Error runQuantizedPipeline(PassContext &ctx, const PipelineOptions &pipeline,
                                 const CodegenOptions &codegen, const DeviceName &device,
                                 const rt::Tokenizer *tokenizer,
                                 std::unique_ptr<plan::QuantizationT> &card) {
  QuantizeOptions &quantize = ctx.options().quantize;
  const bool int8 = quantize.any();
  const bool collects = collectsStatistics(quantize);
  if ((!int8 && !collects) || stopsEarlier(pipeline))
    return runPipeline(ctx, pipeline);
  PipelineOptions part = pipeline;
  part.stopBefore = quantisedStage;
  if (llvm::Error e = runPipeline(ctx, part))
    return e;
  Runner runner;
  if (usesDevice(quantize)) {
    auto opened = openDevice(device, codegen);
    if (!opened)
      return opened.takeError();
    runner = std::move(*opened);
  }
  if (collects)
    if (llvm::Error e = collectStatistics(ctx, pipeline, runner, tokenizer)) {
      if (!asksForScores(quantize) || !calibrationPath.empty())
        return e;
      ctx.note("what inputs in fp8 do to scores is not known: " + llvm::toString(std::move(e)));
    }
  ctx.setPass("weight-groups");
  settleWeightGroup(ctx);
  findWideInputs(ctx.module(), quantize); // a function by itself, as the gate's, has no KV state
  if (int8) {
    card = std::make_unique<plan::QuantizationT>();
    const bool weights = isFp8(quantize.scheme) && quantize.isWeightsOnly() &&
                         quantize.scheme != QuantizeScheme::Fp8Block;
    card->scheme = schemeName(weights ? QuantizeScheme::Fp8Weights : quantize.scheme).str();
    card->int8_kv = quantize.kvType == DType::I8;
    card->weight_group = quantize.weightGroup.value_or(0);
    if (quantize.calibration) {
      card->calibration = quantize.calibration->hash;
      card->calibration_tokens = quantize.calibration->tokens;
    }
    if (!evalPath.empty())
      if (llvm::Error e = judge(ctx, pipeline, codegen, runner, tokenizer, *card))
        return e;
  }
  PipelineOptions rest = pipeline;
  rest.startAt = quantisedStage;
  return runPipeline(ctx, rest);
}

} // namespace gpt2c
