// The record of a step in clusters of a head each: clusters.cuh, and batch.cuh of several sequences.
#include "templates/decode_step/common/DecodeKernels.h"

namespace gpt2c {

using namespace persistent;

namespace decode_clusters {

struct Config {};
static std::string nameOf(const Config &) { return "decode_clusters"; }

static std::string refusal(const DecodeProblem &p) {
  if (!p.shape)
    return "it is no chain of layers";
  const DecoderShape &s = *p.shape;
  const int64_t rows = p.rows, heads = s.heads;
  return !suitPages(p)                                       ? "a state in other pages"
         : rows > clusterBlocks && rows != 2 * clusterBlocks ? "so many sequences"
         : s.headDim != clusterHeadDim                       ? "heads that are not of 64"
         : heads * s.headDim != s.width ? "heads that are not as wide as the rest"
         : s.hidden != 4 * s.width      ? "an MLP that is not four times as wide"
         : heads < 12 || heads > p.target.clusters(clusterBlocks)
             ? "fewer than 12 heads, or more than 15"
         : s.width % 256 != 0                              ? "a width that is no multiple of 256"
         : s.context == 0                                  ? "a context that is no constant"
         : s.context > clusterKeys * clusterBlocks * heads ? "so long a context"
         // A step's weights are more than the ring holds, so a key is read long after it was
         // written.
         : s.vocabulary < unitRows * heads * clusterBlocks * clusterSlots(p) ? "so few logits"
                                                                             : "";
}

static std::vector<Config> configs(const DecodeProblem &) { return {{}}; }
static llvm::Error emit(DecodeLaunch &l, const Config &) {
  return l.builder.emitClusters(std::nullopt);
}

} // namespace decode_clusters

const DecodeKernel &decodeClustersKernel() {
  using namespace decode_clusters;
  static const DecodeKernelOf<Config> kernel({
      .name = "decode_clusters",
      .summary = "a step of 12 to 15 heads of 64 on Hopper: a cluster for each head",
      .needs = stepClusters,
      .can = {DecodeAbility::Pages},
      .refusal = refusal,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
