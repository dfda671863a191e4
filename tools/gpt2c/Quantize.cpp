#include "tools/gpt2c/Quantize.h"

#include "ir/Error.h"
#include "tools/common/Calibrate.h"
#include "tools/common/CommandLine.h"
#include "tools/common/Tokens.h"
#include "tools/gpt2c/QualityGate.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"

namespace gpt2c {

namespace cl = llvm::cl;

static auto category() { return cl::cat(toolCategory()); }

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
    auto share = parseShare("--max-ppl-increase", maxIncrease);
    if (!share)
      return share.takeError();
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

llvm::Error checkQuantizeUsage(const QuantizeOptions &options) {
  bool int8 = options.scheme != QuantizeScheme::None || options.int8Kv;
  bool gated = !maxIncrease.empty() || !maxKl.empty();
  if (!int8 && (gated || !evalPath.empty()))
    return makeError(ExitCode::Usage,
                     "--eval and its limits judge int8: give --quantize or --kv-type=int8");
  if (gated && evalPath.empty())
    return makeError(ExitCode::Usage, "--max-ppl-increase and --max-kl need --eval=FILE");
  if (!calibrationPath.empty() && options.calibration)
    return makeError(ExitCode::Usage, "--calibration and --load-calibration exclude each other");
  if (!saveCalibration.empty() && calibrationPath.empty())
    return makeError(ExitCode::Usage, "--save-calibration needs --calibration=FILE");
  if (calibrationTokens < 2 || evalTokens < 2)
    return makeError(ExitCode::Usage, "--calibration-tokens and --eval-tokens are at least 2");
  bool needs =
      options.scheme == QuantizeScheme::W8A8Tensor || options.scheme == QuantizeScheme::W8A8Smooth;
  if (needs && calibrationPath.empty() && !options.calibration)
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

static llvm::Error collectStatistics(const Function &forward, QuantizeOptions &options,
                                     const rt::Tokenizer *tokenizer) {
  auto tokens = readTokens(calibrationPath, tokenizer);
  if (!tokens)
    return tokens.takeError();
  CalibrateOptions calibration;
  calibration.maxTokens = calibrationTokens;
  calibration.progress = [](int64_t done, int64_t windows) {
    show("calibration: " + llvm::Twine(done) + " of " + llvm::Twine(windows) + " windows");
  };
  auto statistics = calibrate(forward, *tokens, calibration);
  show("");
  if (!statistics)
    return statistics.takeError();
  options.calibration = std::make_shared<Calibration>(std::move(*statistics));
  if (saveCalibration.empty())
    return llvm::Error::success();
  return writeOutput(saveCalibration,
                     [&](llvm::raw_ostream &os) { os << options.calibration->toJson(); });
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

static llvm::Error judge(PassContext &ctx, const PipelineOptions &pipeline,
                         const rt::Tokenizer *tokenizer, plan::QuantizationT &card) {
  auto tokens = readTokens(evalPath, tokenizer);
  if (!tokens)
    return tokens.takeError();
  GateOptions gate;
  gate.limits = llvm::cantFail(limits(), "checked before");
  gate.maxTokens = evalTokens;
  gate.rankTokens = rankTokens;
  gate.progress = [](const llvm::Twine &what) { show("quality: " + what); };
  auto result = holdQuality(ctx.module(), ctx.options(), pipeline, *tokens, gate);
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
    ctx.note(
        llvm::formatv("{0} keeps its precision: int8 in it alone has a KL divergence of {1:e2}",
                      s.name, s.kl)
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
                                 const rt::Tokenizer *tokenizer,
                                 std::unique_ptr<plan::QuantizationT> &card) {
  QuantizeOptions &quantize = ctx.options().quantize;
  bool int8 = quantize.scheme != QuantizeScheme::None || quantize.int8Kv;
  if ((!int8 && calibrationPath.empty()) || stopsEarlier(pipeline))
    return runPipeline(ctx, pipeline);
  PipelineOptions part = pipeline;
  part.stopBefore = quantisedStage;
  if (llvm::Error e = runPipeline(ctx, part))
    return e;
  if (!calibrationPath.empty())
    if (llvm::Error e = collectStatistics(*ctx.module().function("forward"), quantize, tokenizer))
      return e;
  if (int8) {
    card = std::make_unique<plan::QuantizationT>();
    card->scheme = schemeName(quantize.scheme).str();
    card->int8_kv = quantize.int8Kv;
    card->weight_group = quantize.weightGroup;
    if (quantize.calibration) {
      card->calibration = quantize.calibration->hash;
      card->calibration_tokens = quantize.calibration->tokens;
    }
    if (!evalPath.empty())
      if (llvm::Error e = judge(ctx, pipeline, tokenizer, *card))
        return e;
  }
  PipelineOptions rest = pipeline;
  rest.startAt = quantisedStage;
  return runPipeline(ctx, rest);
}

} // namespace gpt2c
