// Weights of a few bits as GPTQ's and AWQ's tools save them: `quantization_config` of config.json,
// and for each module, in place of its weight,
//   qweight, qzeros   integers, several in a word of 32 bits, the first one in the lowest bits
//   scales            [groups, out]
//   g_idx             the group of each input, of GPTQ alone
// of which W[out, in] = (q - z) s. GPTQ packs q along inputs, [in / 8, out] words, AWQ along
// outputs, [in, out / 8], eight of them in the order 0 2 4 6 1 3 5 7; both pack z along outputs.
// Files of GPTQ's first format hold z - 1.
#pragma once

#include "frontend/checkpoint/Config.h"
#include "frontend/checkpoint/Decoder.h"
#include "frontend/checkpoint/Weights.h"
#include "frontend/files/ExternalFiles.h"

namespace gpt2c {

/// What config.json says of them; none where it says nothing, and where it asks for what is not
/// known here, which is in `config` afterwards.
std::optional<Packing> readPacking(Config &config);

struct UnpackedWeights {
  std::vector<uint8_t> q;      ///< [out, in]
  std::vector<uint8_t> zeros;  ///< [out, groups]
  std::vector<float> scales;   ///< [out, groups]
  std::vector<int64_t> inputs; ///< which input each column of q meets; empty: 0, 1, 2, ..
  int64_t group = 0;           ///< columns that share a scale
};

/// The weights of a module; `found` is called with the names of its tensors. InvalidModel where
/// they are not those of a module of this size, Unsupported for groups of different sizes.
llvm::Expected<UnpackedWeights> unpackWeights(const CheckpointWeights &weights,
                                              ExternalFiles &files, const std::string &module,
                                              int64_t in, int64_t out, const Packing &packing,
                                              llvm::function_ref<void(const std::string &)> found);

} // namespace gpt2c
