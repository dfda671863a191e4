// What products take in each scheme, by the estimates of their launches.
#pragma once

#include "codegen/Codegen.h"
#include "passes/Pipeline.h"

namespace gpt2c {

/// What a layer takes in a scheme, of what it takes unquantised: the mean over the versions of
/// @decode, @prefill and @extend, a function as much as another. Where the plan has floats beside
/// (--widen-weights), no version counts for more than 1.
struct SchemePrice {
  QuantizeScheme scheme = QuantizeScheme::None;
  double share = 1;
};

/// A layer, and the schemes in which it is faster than unquantised, fastest first.
struct LayerPrices {
  std::string name;
  std::vector<int64_t> shape; ///< of its weights
  std::vector<SchemePrice> schemes;
};

/// Of every product of @forward that may be quantised, in its order. `module` is in front of the
/// stage `quantised`. For several kinds of architectures the largest share counts; without one
/// those of sm_90a stand for the plan's.
llvm::Expected<std::vector<LayerPrices>> priceSchemes(const Module &module,
                                                      const PassOptions &options,
                                                      const PipelineOptions &pipeline,
                                                      const CodegenOptions &codegen);

} // namespace gpt2c
