#include "schedule/cost/ParallelCost.h"

#include "ir/Error.h"
#include "ir/HeadDeal.h"
#include "schedule/cost/StepCost.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace gpt2c {

llvm::Expected<DecoderShape> shapeOfRank(const DecoderShape &shape, int64_t tensor) {
  DecoderShape rank = shape;
  if (tensor == 1)
    return rank;
  const HeadDeal deal = dealHeads(shape.heads, shape.keyHeads, tensor);
  if (idleRank(deal) >= 0)
    return llvm::createStringError(std::to_string(shape.heads) + " heads are too few for " +
                                   std::to_string(tensor) + " ranks");
  rank.heads = deal.queriesOfRank();
  rank.keyHeads = deal.keysOfRank();
  rank.hidden = llvm::divideCeil(shape.hidden, tensor);
  rank.vocabulary = llvm::divideCeil(shape.vocabulary, tensor);
  rank.ranks = tensor;
  return rank;
}

double slowestStage(const DecoderShape &shape, int64_t stages) {
  const double layer = double(layerWeightBytes(shape)), last = double(vocabularyBytes(shape)),
               all = layer * double(shape.layers.size()) + last;
  // The last stage has `n` layers beside the vocabulary, the others share the rest.
  double best = all;
  const auto layers = int64_t(shape.layers.size());
  for (int64_t n = 0; n <= layers && stages > 1; ++n)
    best = std::min(best, std::max(layer * double(n) + last,
                                   layer * double(llvm::divideCeil(layers - n, stages - 1))));
  return best / all;
}

/// Microseconds of a step as one kernel or as launches, whichever is taken.
static double stepOf(const DecodeProblem &step, llvm::ArrayRef<const DecodeKernel *> kernels,
                     const LinkRates &link) {
  const TargetRates &rates = step.target.rates;
  const double graph = graphStepMicroseconds(*step.shape, step.rows, rates) +
                       exchangeMicroseconds(*step.shape, step.rows, rates, link);
  if (step.rows > persistentRows[std::size(persistentRows) - 1])
    return graph;
  if (const DecodeKernel *taken = leaderOf(kernels, step, step)) {
    const auto candidates = taken->candidates(step);
    if (!candidates.empty() && candidates.front().microseconds)
      return std::min(graph, *candidates.front().microseconds);
  }
  return graph;
}

double stepMicroseconds(const DecoderShape &shape, const Division &division, int64_t rows,
                        DecodeProblem step, llvm::ArrayRef<const DecodeKernel *> kernels,
                        const LinkRates &link) {
  // Each stage has a group of the sequences at any time.
  step.rows = llvm::divideCeil(rows, division.stages);
  step.shape = &shape;
  step.ranks = division.tensor;
  const double all = stepOf(step, kernels, link);
  if (division.stages == 1)
    return all;
  // A sequence passes all stages, and comes back to the first one.
  const double handed = link.handOver(step.rows * shape.width), stages = double(division.stages);
  return rows < division.stages ? all + stages * handed
                                : stages * (all * slowestStage(shape, division.stages) + handed);
}

} // namespace gpt2c
