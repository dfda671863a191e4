#include "tools/gpt2c/QualityGate.h"

#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "tools/common/RuntimeError.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

#include <chrono>
#include <cmath>

namespace gpt2c {

namespace {

using Model = std::unique_ptr<TextForward>;

LogitsFunction logitsOf(TextForward &model) {
  return [&model](std::span<const rt::Tokens> sequences) -> rt::Result<rt::HostTensor> {
    auto logits = model.logits(sequences);
    if (!logits)
      return toStatus(logits.takeError());
    return std::move(*logits);
  };
}

class Gate {
public:
  Gate(const Module &module, const PassOptions &options, const PipelineOptions &pipeline,
       const rt::Tokens &tokens, const GateOptions &gate)
      : module_(module), options_(options), pipeline_(pipeline), tokens_(tokens), gate_(gate) {}

  llvm::Expected<GateResult> run() {
    PassOptions plain = options_;
    plain.quantize = {};
    plain.precision = DType::F32;
    auto base = candidate(plain);
    if (!base)
      return base.takeError();
    base_ = std::move(*base);
    auto first = measure({}, gate_.maxTokens, "int8 in all layers");
    if (!first)
      return first.takeError();
    GateResult result = std::move(*first);
    const std::vector<std::string> broken = limitsExceeded(result.quantised, gate_.limits);
    if (broken.empty())
      return result;
    tellHowLong();
    auto ranked = sensitivities();
    if (!ranked)
      return ranked.takeError();
    return keepWorst(*ranked, llvm::join(broken, "\n"));
  }

private:
  /// The least number of layers, the most sensitive ones, whose precision lets the limits hold.
  llvm::Expected<GateResult> keepWorst(llvm::ArrayRef<LayerSensitivity> ranked,
                                       const std::string &reason) {
    std::optional<GateResult> best;
    size_t fails = 0, holds = ranked.size(); // with so many layers kept; all is not worth trying
    while (holds - fails > 1) {
      size_t kept = fails + (holds - fails) / 2;
      llvm::StringSet<> names;
      for (const LayerSensitivity &s : ranked.take_front(kept))
        names.insert(s.name);
      auto result = measure(names, gate_.maxTokens,
                            llvm::Twine(kept) + " of " + llvm::Twine(ranked.size()) +
                                " layers keep their precision");
      if (!result)
        return result.takeError();
      if (!limitsExceeded(result->quantised, gate_.limits).empty()) {
        fails = kept;
        continue;
      }
      holds = kept;
      best = std::move(*result);
      best->kept = ranked.take_front(kept).vec();
    }
    if (best)
      return std::move(*best);
    return makeError(ExitCode::Quality,
                     "no choice of layers for int8 stays within the limits: with all of them " +
                         reason + ". Choose another scheme (--quantize), or wider limits");
  }

  llvm::StringSet<> layersInInt8() const {
    llvm::StringSet<> all;
    for (auto &op : module_.function(functions::forward)->ops())
      if (treatmentOf(*op, options_.quantize).first != Treatment::Keep)
        all.insert(layerName(*op));
    return all;
  }

  /// Of the text, where `most` bounds it (0: nothing does).
  int64_t tokensOf(int64_t most) const {
    const auto all = int64_t(tokens_.size());
    return most ? std::min(most, all) : all;
  }

  /// Each layer is an evaluation, and so is each step of the search over how many are kept; by the
  /// time that the first evaluation took.
  void tellHowLong() {
    const size_t layers = layersInInt8().size(), steps = llvm::Log2_64_Ceil(layers + 1);
    planned_ += layers + steps;
    plannedTokens_ +=
        int64_t(layers) * tokensOf(gate_.rankTokens) + int64_t(steps) * tokensOf(gate_.maxTokens);
    if (gate_.estimate)
      gate_.estimate("int8 in all layers is beyond a limit: " + llvm::Twine(layers) +
                     " layers are ranked by an evaluation each, about " + secondsLeft());
  }

  std::string secondsLeft() const {
    const double each = seconds_ / double(std::max<int64_t>(doneTokens_, 1));
    return std::to_string(int64_t(std::ceil(each * double(plannedTokens_ - doneTokens_)))) + " s";
  }

  llvm::Expected<std::vector<LayerSensitivity>> sensitivities() {
    const llvm::StringSet<> all = layersInInt8();
    std::vector<LayerSensitivity> out;
    for (auto &layer : all) {
      llvm::StringSet<> others = all;
      others.erase(layer.first());
      auto result = measure(others, gate_.rankTokens, "int8 in " + layer.first() + " alone");
      if (!result)
        return result.takeError();
      out.push_back({layer.first().str(), result->quantised.baseline->klMean});
    }
    llvm::sort(out, [](const LayerSensitivity &a, const LayerSensitivity &b) {
      return a.kl != b.kl ? a.kl > b.kl : a.name < b.name;
    });
    return out;
  }

  llvm::Expected<GateResult> measure(const llvm::StringSet<> &keep, int64_t maxTokens,
                                     const llvm::Twine &what) {
    if (gate_.progress)
      gate_.progress("evaluation " + llvm::Twine(done_ + 1) + " of " + llvm::Twine(planned_) +
                     ", " + what + (done_ ? "; about " + secondsLeft() + " left" : std::string()));
    const auto begun = std::chrono::steady_clock::now();
    PassOptions options = options_;
    for (auto &name : keep)
      options.quantize.keep.insert(name.first());
    auto model = candidate(options);
    if (!model)
      return model.takeError();
    EvalOptions eval{.window = window(), .maxTokens = maxTokens, .batch = batchSize};
    const LogitsFunction models[] = {logitsOf(*base_), logitsOf(**model)};
    rt::Result<std::vector<QualityReport>> reports = evaluate(models, true, tokens_, eval);
    if (!reports)
      return toError(reports.status());
    ++done_;
    doneTokens_ += tokensOf(maxTokens);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    return GateResult{.baseline = (*reports)[0], .quantised = (*reports)[1], .kept = {}};
  }

  llvm::Expected<Model> candidate(const PassOptions &options) {
    auto lowered = lowerForward(module_, *module_.function(functions::forward), options, pipeline_);
    if (!lowered)
      return lowered.takeError();
    return gate_.open(std::move(*lowered), batchSize);
  }

  int64_t window() const {
    int64_t context = contextOf(module_);
    return context ? std::min(context, gate_.window) : gate_.window;
  }

  static constexpr int64_t batchSize = 2;
  const Module &module_;
  const PassOptions &options_;
  const PipelineOptions &pipeline_;
  const rt::Tokens &tokens_;
  const GateOptions &gate_;
  Model base_;
  size_t done_ = 0, planned_ = 1; // evaluations; those planned are the most that there may be
  int64_t doneTokens_ = 0, plannedTokens_ = tokensOf(gate_.maxTokens);
  double seconds_ = 0;
};

} // namespace

llvm::Expected<GateResult> holdQuality(const Module &module, const PassOptions &options,
                                       const PipelineOptions &pipeline, const rt::Tokens &tokens,
                                       const GateOptions &gate) {
  return Gate(module, options, pipeline, tokens, gate).run();
}

} // namespace gpt2c
