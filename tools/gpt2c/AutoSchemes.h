// --quantize=auto: each product in the fastest scheme with which limits of quality hold.
#pragma once

#include "tools/gpt2c/QualityGate.h"
#include "tools/gpt2c/SchemePrices.h"

namespace gpt2c {

/// What a layer is in, and why.
struct ChosenScheme {
  std::string name;
  SchemePrice price;
  double kl = -1; ///< of its fastest scheme in it alone, in nats; negative: it was not asked
};

struct AutoResult {
  GateResult quality;
  std::vector<ChosenScheme> layers; ///< all, in the order of the model
};

/// The most evaluations: of schemes, of groups of layers, and of steps of the search.
constexpr size_t mostGroups = 48;

/// Chooses in five steps.
/// 1. Each scheme in all layers is evaluated over `rankTokens`; of a layer's schemes those stay
///    which no other beats both in time and in divergence.
/// 2. The fastest of each layer together are evaluated over `maxTokens`. Where limits hold, that is
///    all.
/// 3. Layers of one shape, in up to 48 groups of all, are evaluated group by group: the divergence
///    of the fastest schemes in it alone. In another scheme it is taken to be in proportion to step
///    1.
/// 4. Groups step back, one scheme at a time, in the order of what divergence a step saves for the
///    time that it costs.
/// 5. The fewest steps with which limits hold are searched by halving.
/// Layers that have a scheme in `options` keep it. Errors: those of the device; Quality where
/// limits do not hold with all layers unquantised.
llvm::Expected<AutoResult> chooseSchemes(const Module &module, const PassOptions &options,
                                         const PipelineOptions &pipeline, const rt::Tokens &tokens,
                                         const GateOptions &gate,
                                         llvm::ArrayRef<LayerPrices> layers);

} // namespace gpt2c
