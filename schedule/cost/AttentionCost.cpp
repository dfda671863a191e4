#include "schedule/cost/AttentionCost.h"

#include "schedule/cost/StepCost.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace gpt2c {

namespace {
/// What an attention reads and computes.
struct AttentionWork {
  int64_t sequences, queries, keys; ///< of each sequence
  int64_t heads, keyHeads, headDim;
  double keyBytes; ///< of an element of the state

  /// Microseconds of few queries, which read keys and values once, by as many multiprocessors as
  /// have a block. Lanes have powers of two of a key's elements.
  double ofFew(double processors, const TargetRates &rates) const {
    const double bytes = 2.0 * double(sequences * keys * keyHeads * headDim) * keyBytes,
                 blocks = std::min(double(sequences * keyHeads * queries) * mostSplits, processors),
                 lanes = double(headDim) / double(llvm::alignTo(headDim, 64));
    return few * rates.launches() + bytes / (blocks * processor * lanes) * rates.reads();
  }
  /// Of prompts, whose queries see half of their keys.
  double ofPrompt(const TargetRates &rates) const {
    const double flops = 2.0 * double(sequences * queries * keys * heads * headDim);
    return many * rates.launches() + flops / products * rates.multiplies();
  }

  static constexpr double mostSplits = 8, few = 2.2, processor = 25e3;
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
