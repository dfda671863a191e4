// What the tests of the kernels of attention share: the driver, its reference in float64, sizes.
#pragma once

#include "Suite.h"

#include "templates/attention/Kernels.h"

#include <functional>
#include <map>

namespace gpt2c::kernels {

struct AttentionSizes {
  int batch, seq, context;
  /// One per sequence, or empty: no pointer is passed. With pages -1: the sequence is nobody's.
  std::vector<int> past;
  bool hideRow = false; ///< the mask hides every key of the first sequence
  bool wide = false;    ///< scores lie far apart
  /// With pages: of every so many sequences each begins with pages of its set, all that are full up
  /// to so many; every other one with one page less of them; 0: all pages are a sequence's own.
  int sets = 0, sharedPages = 0;
};

/// A kernel of append_attention, as its test tells the driver of it.
template <typename Config> struct AttentionTest {
  std::string name; ///< attention_...
  KernelSource (*make)(llvm::StringRef, const Config &);
  /// For that many queries of each sequence, one with c.last.
  Grid (*grid)(const Config &c, const AttentionSizes &s, int queries);
  double tolerance = 4e-6; ///< of the sum of magnitudes
  bool maps = false;       ///< qkv and the state are read by tensor maps, on Hopper
};
/// The same in one configuration.
struct AttentionInstance {
  AttentionConfig c;
  std::string name, config;
  int splits = 1;
  bool cluster = false;
  std::function<KernelSource(llvm::StringRef)> make = {};
  /// With c.prefixes: what computes keys that sequences share, in tiles of so many of these.
  std::function<KernelSource(llvm::StringRef)> makePrefix = {};
  int members = 0;
  std::function<Grid(const AttentionSizes &s, int queries)> grid = {};
  double tolerance = 0;
  bool maps = false;
};
/// On tensor cores the probabilities are rounded to fp16, or to bf16.
constexpr double halfProbabilities = 6e-4, bfloatProbabilities = 8 * halfProbabilities;

/// Adds a kernel with a case for each of the sizes.
void attention(Suite &suite, const AttentionInstance &instance,
               const std::vector<AttentionSizes> &sizes);
template <typename Config>
void attention(Suite &suite, const AttentionTest<Config> &test, const Config &c,
               const std::vector<AttentionSizes> &sizes) {
  AttentionInstance instance{.c = c, .name = test.name, .config = nameOf(c)};
  if constexpr (requires { c.splits; })
    instance.splits = c.splits;
  if constexpr (requires { c.cluster; })
    instance.cluster = c.cluster;
  instance.make = [make = test.make, c](llvm::StringRef name) { return make(name, c); };
  instance.grid = [grid = test.grid, c](const AttentionSizes &s, int queries) {
    return grid(c, s, queries);
  };
  instance.tolerance = test.tolerance;
  instance.maps = test.maps;
  attention(suite, instance, sizes);
}

/// Causal, appending, without a mask.
template <typename Config> Config attentionConfig(Scalar x, Scalar kv, int headDim, int heads) {
  Config c;
  c.x = x;
  c.kv = kv;
  c.headDim = headDim;
  c.heads = heads;
  return c;
}
/// All that the tuner may take of a kernel, by its name, for sequences of that many queries.
template <typename Config>
std::vector<Config> attentionCandidateConfigs(const AttentionKernel &kernel, int64_t queries,
                                              const AttentionConfig &model) {
  std::map<std::string, Config> byName;
  for (int64_t sequences : {1, 8, 32, 128}) {
    AttentionProblem p{.config = model, .sequences = sequences, .queries = queries};
    p.target = Target::of({"sm_90a"});
    for (const AttentionCandidate &c : kernel.candidates(p))
      byName.try_emplace(c.name, *c.get<Config>());
  }
  std::vector<Config> configs;
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
