#include "tools/gpt2c/QualityEvaluations.h"

#include "ir/FunctionNames.h"
#include "tools/common/RuntimeError.h"

#include <chrono>
#include <cmath>

namespace gpt2c {

static LogitsFunction logitsOf(TextForward &model) {
  return [&model](std::span<const rt::Tokens> sequences) -> rt::Result<rt::HostTensor> {
    auto logits = model.logits(sequences);
    if (!logits)
      return toStatus(logits.takeError());
    return std::move(*logits);
  };
}

llvm::Error QualityEvaluations::open() {
  PassOptions plain = options_;
  plain.quantize = {};
  plain.precision = DType::F32;
  auto base = candidate(plain);
  if (!base)
    return base.takeError();
  base_ = std::move(*base);
  return llvm::Error::success();
}

void QualityEvaluations::plan(size_t evaluations, int64_t maxTokens) {
  planned_ += evaluations;
  plannedTokens_ += int64_t(evaluations) * tokensOf(maxTokens);
}

std::string QualityEvaluations::secondsLeft() const {
  const double each = seconds_ / double(std::max<int64_t>(doneTokens_, 1));
  const auto left = std::max<int64_t>(plannedTokens_ - doneTokens_, 0);
  return std::to_string(int64_t(std::ceil(each * double(left)))) + " s";
}

llvm::Expected<GateResult> QualityEvaluations::measure(const QuantizeOptions &quantize,
                                                       int64_t maxTokens, const llvm::Twine &what) {
  if (gate_.progress)
    gate_.progress("evaluation " + llvm::Twine(done_ + 1) + " of " + llvm::Twine(planned_) + ", " +
                   what + (done_ ? "; about " + secondsLeft() + " left" : std::string()));
  const auto begun = std::chrono::steady_clock::now();
  PassOptions options = options_;
  options.quantize = quantize;
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

llvm::Expected<std::unique_ptr<TextForward>>
QualityEvaluations::candidate(const PassOptions &options) {
  auto lowered = lowerForward(module_, *module_.function(functions::forward), options, pipeline_);
  if (!lowered)
    return lowered.takeError();
  return gate_.open(std::move(*lowered), batchSize);
}

int64_t QualityEvaluations::tokensOf(int64_t most) const {
  const auto all = int64_t(tokens_.size());
  return most ? std::min(most, all) : all;
}

int64_t QualityEvaluations::window() const {
  int64_t context = contextOf(module_);
  return context ? std::min(context, gate_.window) : gate_.window;
}

} // namespace gpt2c
