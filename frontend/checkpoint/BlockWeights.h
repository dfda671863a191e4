// Weights in fp8 (E4M3) as checkpoints with `quant_method` "fp8" hold them:
//   weight            F8_E4M3 [out, in]
//   weight_scale_inv  floats [ceil(out / rows), ceil(in / columns)], a scale for each block
// with W = weight times the scale of its block; blocks at the ends of rows and columns are smaller.
#pragma once

#include "frontend/checkpoint/Decoder.h"
#include "frontend/checkpoint/Weights.h"
#include "frontend/files/ExternalFiles.h"

namespace gpt2c {

/// Behind the name of a module.
inline constexpr const char *blockScales = ".weight_scale_inv";

struct BlockWeights {
  const CheckpointWeights::Weight *weight = nullptr; ///< F8_E4M3 [out, in]
  std::vector<float> scales;                         ///< [out, in / group]
  int64_t group = 0; ///< inputs that share a scale, the columns of a block or a part of them
};

/// The weights of a module; `found` is called with the names of its tensors. InvalidModel where
/// they are not those of a module of this size, Unsupported for a weight of another type.
llvm::Expected<BlockWeights> readBlockWeights(const CheckpointWeights &weights,
                                              ExternalFiles &files, const std::string &module,
                                              int64_t in, int64_t out, const Packing &packing,
                                              llvm::function_ref<void(const std::string &)> found);

} // namespace gpt2c
