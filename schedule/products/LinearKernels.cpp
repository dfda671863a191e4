#include "schedule/products/LinearKernels.h"

namespace gpt2c {

std::vector<LinearCandidate> LinearFamily::candidates(const LinearProblem &p) const {
  if (!p.batchInvariant)
    return candidatesOf(kernels_, p.plain(), p);
  std::vector<LinearCandidate> list;
  for (const LinearKernel *k : kernels_)
    if (k->refusal(p).empty())
      llvm::append_range(list, k->orderedCandidates(p));
  // No model of tiles is fitted to a vocabulary: for so few rows the order of preference counts.
  if (p.isWide() && p.rows <= 256)
    for (LinearCandidate &c : list)
      c.microseconds.reset();
  return list;
}

const LinearKernel *LinearFamily::leader(const LinearProblem &p) const {
  if (!p.batchInvariant)
    return leaderOf(kernels_, p.plain(), p);
  auto it = llvm::find_if(kernels_, [&](const auto *k) { return k->refusal(p.plain()).empty(); });
  return it == kernels_.end() ? nullptr : *it;
}

bool LinearFamily::leaderComputes(const LinearProblem &p) const {
  const LinearKernel *taken = leader(p);
  return taken && taken->refusal(p).empty();
}

bool LinearFamily::computes(const LinearProblem &p) const {
  if (p.batchInvariant)
    return llvm::any_of(kernels_, [&](const auto *k) { return k->refusal(p).empty(); });
  const LinearProblem plain = p.plain();
  const LinearKernel *taken = leaderOf(kernels_, plain, p);
  return taken && (taken->refusal(p).empty() || llvm::any_of(kernels_, [&](const LinearKernel *k) {
                     return k != taken && k->rivals(plain, taken->name()) && k->refusal(p).empty();
                   }));
}

bool LinearFamily::wantsNormStatistics(const LinearProblem &p) const {
  LinearProblem known = p, unknown = p;
  known.fused.normParts = std::max(1, p.fused.normParts);
  unknown.fused.normParts = 0;
  const LinearKernel *taken = leader(p);
  return taken && p.hasNorm() && taken->refusal(known).empty() && !taken->refusal(unknown).empty();
}

/// Of the kernels that do all of it.
std::optional<double> LinearFamily::leastMicroseconds(const LinearProblem &p) const {
  std::optional<double> least;
  for (const LinearKernel *k : kernels_)
    if (k->refusal(p).empty())
      if (auto here = k->microseconds(p); here && (!least || *here < *least))
        least = here;
  return least;
}

bool LinearFamily::statisticsPay(const LinearProblem &p, const LinearProblem &before) const {
  LinearProblem known = p, unknown = p;
  known.fused.normParts = std::max(1, p.fused.normParts);
  unknown.fused.normParts = 0;
  const auto with = leastMicroseconds(known), without = leastMicroseconds(unknown),
             left = leastMicroseconds(before.with({.statistics = true})),
             notLeft = leastMicroseconds(before);
  return !with || !without || !left || !notLeft || *with + *left <= *without + *notLeft;
}

LinearProblem LinearFamily::fused(LinearProblem p, const LinearFusions &norm,
                                  const RowStatistics *statistics, ProductEndKind end) const {
  p.fused.end = end;
  if (norm.norm == NormKind::None)
    return p;
  p.fused.norm = norm.norm;
  p.fused.gain = norm.gain;
  p.fused.plainNorm = norm.plainNorm;
  p.fused.normSums = norm.normSums;
  if (statistics && wantsNormStatistics(p)) {
    p.fused.normParts = statistics->parts;
    p.fused.normWidth = statistics->width;
  }
  return p;
}

std::string LinearFamily::refusal(const LinearProblem &p) const {
  const LinearKernel *taken = leader(p);
  if (!taken)
    return "no kernel computes the product";
  return (taken->name() + ": " + taken->refusal(p)).str();
}

} // namespace gpt2c
