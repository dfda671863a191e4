// What the tests of the kernels of attention share: the driver, its reference in float64, sizes.
#pragma once

#include "Suite.h"

#include "templates/attention/Kernels.h"

#include <map>

namespace gpt2c::kernels {

struct AttentionSizes {
  int batch, seq, context;
  /// One per sequence, or empty: no pointer is passed. With pages -1: the sequence is nobody's.
  std::vector<int> past;
  bool hideRow = false; ///< the mask hides every key of the first sequence
  bool wide = false;    ///< scores lie far apart
};

/// A kernel of append_attention, as its test tells the driver of it.
struct AttentionTest {
  std::string name; ///< attention_...
  KernelSource (*make)(llvm::StringRef, const AttentionConfig &);
  std::string (*nameOf)(const AttentionConfig &);
  /// For that many queries of each sequence, one with c.last.
  Grid (*grid)(const AttentionConfig &c, const AttentionSizes &s, int queries);
  double tolerance = 4e-6; ///< of the sum of magnitudes
  bool maps = false;       ///< qkv and the state are read by tensor maps, on Hopper
};
/// On tensor cores the probabilities are rounded to fp16, or to bf16.
constexpr double halfProbabilities = 6e-4, bfloatProbabilities = 8 * halfProbabilities;

/// Adds a kernel with a case for each of the sizes.
void attention(Suite &suite, const AttentionTest &test, const AttentionConfig &c,
               const std::vector<AttentionSizes> &sizes);

/// Causal, appending, without a mask.
AttentionConfig attentionConfig(Scalar x, Scalar kv, int headDim, int heads);
/// All that the tuner may take of a kernel, by its name, for sequences of that many queries.
template <typename Config>
std::vector<AttentionConfig> attentionCandidateConfigs(const AttentionKernel &kernel,
                                                       int64_t queries,
                                                       const AttentionConfig &model) {
  std::map<std::string, AttentionConfig> byName;
  for (int64_t sequences : {1, 8, 32, 128}) {
    AttentionProblem p{.config = model, .sequences = sequences, .queries = queries};
    p.target = Target::of({"sm_90a"});
    for (const AttentionCandidate &c : kernel.candidates(p))
      byName.try_emplace(c.name, *c.get<Config>());
  }
  std::vector<AttentionConfig> configs;
  for (const auto &[name, config] : byName)
    configs.push_back(config);
  return configs;
}

/// Heads of the state.
inline int stateHeads(const AttentionConfig &c) { return c.kvHeads ? c.kvHeads : c.heads; }
/// The first element of key or value (`part` 0 or 1) `j` of a sequence, in a state of two layers of
/// which the second is the kernel's; `h` is a head of the state.
size_t kvIndex(const AttentionConfig &c, int batchMax, int context, int part, int b, int h, int j);

/// One query, or few.
std::vector<AttentionSizes> decodeSizes();
/// Longer states.
std::vector<AttentionSizes> ringSizes();
/// States in pages, one of more than a warp has lanes.
std::vector<AttentionSizes> pageSizes();
/// Many queries.
std::vector<AttentionSizes> prefillSizes();
/// Prompts for kernels whose heads share those of the state.
std::vector<AttentionSizes> sharedSizes();

} // namespace gpt2c::kernels
