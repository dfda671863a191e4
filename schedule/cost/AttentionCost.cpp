#include "schedule/cost/AttentionCost.h"

#include "schedule/cost/StepCost.h"

#include <algorithm>
#include <cmath>

namespace gpt2c {

namespace {
/// What an attention reads and computes.
struct AttentionWork {
  int64_t sequences, queries, keys; ///< of each sequence
  int64_t heads, keyHeads, headDim;
  double keyBytes; ///< of an element of the state

  /// Microseconds of few queries, which read keys and values once. Keys are split over blocks until
  /// there are three for two multiprocessors; a block has some bytes of its rows on their way, a
  /// multiprocessor those of three.
  double ofFew(double processors, const TargetRates &rates) const {
    const double bytes = 2.0 * double(sequences * keys * keyHeads * headDim) * keyBytes;
    auto blocks = double(sequences * keyHeads * queries);
    for (int splits = 1; splits < mostSplits && 2 * blocks < 3 * processors; splits *= 2)
      blocks *= 2;
    const double each = std::min(std::ceil(blocks / processors), mostBlocks),
                 rate = std::min(processor, each * ofElement * double(headDim));
    return few * rates.launches() + bytes / (std::min(blocks, processors) * rate) * rates.reads();
  }
  /// Of prompts, whose queries see half of their keys.
  double ofPrompt(const TargetRates &rates) const {
    const double flops = 2.0 * double(sequences * queries * keys * heads * headDim);
    return many * rates.launches() + flops / products * rates.multiplies();
  }

  static constexpr int mostSplits = 8;
  static constexpr double few = 2.2, mostBlocks = 3, processor = 25e3, ofElement = 110;
  static constexpr double many = 4.5, products = 230e6;
};
} // namespace

double attentionMicroseconds(const AttentionProblem &p, const TargetRates &rates) {
  const AttentionConfig &c = p.config;
  const bool isFew = c.last || p.queries <= fewQueries;
  const int64_t queries = c.last ? 1 : p.queries,
                keys = isFew ? std::min(p.context, usualKeys) : std::min(p.context, p.queries);
  const AttentionWork work = {p.sequences,
                              queries,
                              keys,
                              c.heads,
                              c.kvHeads ? c.kvHeads : c.heads,
                              c.headDim,
                              double(scalarBytes(c.kv))};
  return isFew ? work.ofFew(double(p.target.multiprocessors), rates) : work.ofPrompt(rates);
}

double attentionMicroseconds(const PagedProblem &p, const TargetRates &rates) {
  const PagedConfig &c = p.config;
  const int64_t sequences = std::min(p.pieces, p.rows), queries = p.rows / sequences;
  const bool isFew = !p.prompts && queries <= fewQueries;
  const AttentionWork work = {sequences, queries,   isFew ? usualKeys : queries, c.heads,
                              c.kvHeads, c.headDim, double(scalarBytes(c.kv()))};
  return isFew ? work.ofFew(double(p.target.multiprocessors), rates) : work.ofPrompt(rates);
}

} // namespace gpt2c
