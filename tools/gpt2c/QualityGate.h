// Keeps layers out of int8 until limits of quality hold.
#pragma once

#include "tools/common/verification/TextForward.h"
#include "tools/runtime-common/Quality.h"

namespace gpt2c {

struct GateOptions {
  QualityLimits limits;
  int64_t maxTokens = 0;  ///< of the text, for the limits
  int64_t rankTokens = 0; ///< of the text, to rank the layers
  int64_t window = 512;   ///< tokens a sequence; at most the model's context
  OpenForward open;
  /// Told what is being done, for people who wait; and once, where it will take long, how long.
  std::function<void(const llvm::Twine &)> progress = nullptr, estimate = nullptr;
};

/// A layer and what int8 in it alone does to the logits.
struct LayerSensitivity {
  std::string name;
  double kl = 0; ///< mean divergence from the model without int8, in nats
};

struct GateResult {
  QualityReport baseline, quantised; ///< over the text, in f32 and as the plan will be
  /// Layers that keep their precision, the worst first; empty when the limits held at once.
  std::vector<LayerSensitivity> kept;
};

/// `module` is in front of the stage `quantised`; the pipeline runs on copies of its @forward with
/// `options`. An error with the code Quality when the limits hold with no layer in int8 at most.
llvm::Expected<GateResult> holdQuality(const Module &module, const PassOptions &options,
                                       const PipelineOptions &pipeline, const rt::Tokens &tokens,
                                       const GateOptions &gate);

} // namespace gpt2c
