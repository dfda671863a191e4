// Plans before there is one: how far what a choice of schemes computes is from the model in f32.
#pragma once

#include "tools/gpt2c/QualityGate.h"

namespace gpt2c {

class QualityEvaluations {
public:
  QualityEvaluations(const Module &module, const PassOptions &options,
                     const PipelineOptions &pipeline, const rt::Tokens &tokens,
                     const GateOptions &gate)
      : module_(module), options_(options), pipeline_(pipeline), tokens_(tokens), gate_(gate) {}

  /// Opens the model in f32, unquantised. To be called first.
  llvm::Error open();
  /// The model with those options over the first `maxTokens` tokens of the text (0: all).
  llvm::Expected<GateResult> measure(const QuantizeOptions &quantize, int64_t maxTokens,
                                     const llvm::Twine &what);
  /// So many more may come, each over that many tokens.
  void plan(size_t evaluations, int64_t maxTokens);
  /// What is planned and not done, by what the evaluations so far took: "12 s".
  std::string secondsLeft() const;
  size_t planned() const { return planned_; }

private:
  llvm::Expected<std::unique_ptr<TextForward>> candidate(const PassOptions &options);
  /// Of the text, where `most` bounds it (0: nothing does).
  int64_t tokensOf(int64_t most) const;
  int64_t window() const;

  static constexpr int64_t batchSize = 2;
  const Module &module_;
  const PassOptions &options_;
  const PipelineOptions &pipeline_;
  const rt::Tokens &tokens_;
  const GateOptions &gate_;
  std::unique_ptr<TextForward> base_;
  size_t done_ = 0, planned_ = 0;
  int64_t doneTokens_ = 0, plannedTokens_ = 0;
  double seconds_ = 0;
};

} // namespace gpt2c
