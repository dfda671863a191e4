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

LinearProblem LinearFamily::fused(LinearProblem p, const ProductSite &site,
                                  ProductEndKind end) const {
  p.fused.end = end;
  if (end != ProductEndKind::None && site.form->stores)
    p.y = site.form->stores(*site.end);
  if (end == ProductEndKind::Receive || end == ProductEndKind::Scatter)
    p.fused.statistics = site.statisticsOfEnd;
  if (!site.norm)
    return p;
  p.fused.norm = site.normed.norm;
  p.fused.gain = site.normed.gain;
  p.fused.plainNorm = site.normed.plainNorm;
  p.fused.normSums = site.normed.normSums;
  if (site.statistics && wantsNormStatistics(p)) {
    p.fused.normParts = site.statistics->parts;
    p.fused.normWidth = site.statistics->width;
  }
  return p;
}

bool LinearFamily::isNormDearer(const LinearProblem &normed) const {
  if (normed.batchInvariant || leaderComputes(normed))
    return false;
  LinearProblem apart = normed;
  apart.fused.norm = NormKind::None;
  const LinearKernel *taken = leader(apart);
  // Estimates are no better than a tenth.
  constexpr double launch = 1.8, certain = 1.1;
  const auto with = leastMicroseconds(normed),
             without = taken ? taken->microseconds(apart) : std::nullopt;
  return with && without && certain * (*without + launch * normed.target.rates.launches()) < *with;
}

void LinearFamily::takeNorm(ProductSite &site, ProductForm &form) const {
  const LinearProblem normed = fused(site.own, site, ProductEndKind::None),
                      ended = site.normOfEnd ? fused(site.own, site, site.form->kind) : normed;
  const bool withEnd = computes(ended), can = withEnd || computes(normed);
  if (can && !isNormDearer(withEnd ? ended : normed)) {
    form.problem = normed;
    return;
  }
  form.misses.push_back(
      {"norm", can ? "the product and a launch of the norm are faster" : refusal(normed)});
  site.norm = nullptr;
}

bool LinearFamily::isEndDearer(const LinearProblem &p, const LinearProblem &ended,
                               const ProductSite &site) const {
  const std::vector<LinearCandidate> with = candidates(ended), without = candidates(p);
  if (without.empty() || !with.front().microseconds || !without.front().microseconds)
    return site.form->saves && !without.empty(); // what cannot be compared stays apart
  const double more = *with.front().microseconds - *without.front().microseconds;
  if (site.form->saves)
    return more > site.form->saves(ended, *site.end, *with.front().microseconds);
  // A launch by itself reads what the product has written; a rotation writes as much, a gate half
  // of it, and its product the other half.
  const TargetRates &rates = p.target.rates;
  const double launch = 2 * rates.launches(), bytesPerMicrosecond = 3e6 / rates.reads();
  const double traffic = double(p.rows) * double(p.n) * scalarBytes(p.y) * 2 / bytesPerMicrosecond;
  return more > launch + traffic;
}

void LinearFamily::takeEnd(ProductSite &site, ProductForm &form) const {
  const LinearProblem whole = fused(site.own, site, site.form->kind);
  LinearProblem p = form.problem, ended = whole;
  if (!computes(p) && !computes(ended))
    for (LinearProblem *each : {&p, &ended}) // int8 weights that become floats first
      static_cast<LinearShape &>(*each) = each->widened();
  const bool none = candidates(ended).empty();
  if (!none && !isEndDearer(p, ended, site)) {
    form.problem = whole;
    return;
  }
  if (site.form->otherwise) {
    site.form = site.form->otherwise;
    return takeEnd(site, form);
  }
  const ProductEndInfo &info = infoOf(site.form->kind);
  form.misses.push_back(
      {info.word.str(),
       none ? refusal(ended)
            : ("the product and a launch of the " + info.noun + " are faster").str()});
  site.end = nullptr;
}

void LinearFamily::addWishes(LinearProblem &p, const ProductSite &site,
                             std::vector<NearMiss> &misses) const {
  if (site.end)
    return;
  LinearProblem statistics = p.plain(), largest = p.plain();
  statistics.fused.statistics = largest.fused.best = true;
  // For any rows a vocabulary alone leaves something, its largest elements, which changes no sum.
  if (!p.batchInvariant && site.statisticsWished) {
    p.fused.statistics = leaderComputes(statistics);
    if (!p.fused.statistics)
      misses.push_back({"statistics", refusal(statistics)});
  }
  if (site.choice)
    p.fused.best = p.batchInvariant ? p.rows <= 256 && computes(largest) : leaderComputes(largest);
}

ProductForm LinearFamily::form(ProductSite &site, bool whole) const {
  ProductForm form{.problem = site.own};
  if (site.norm)
    takeNorm(site, form);
  if (site.end)
    takeEnd(site, form);
  if (whole) {
    addWishes(form.problem, site, form.misses);
    form.candidates = candidates(form.problem);
  }
  return form;
}

std::string LinearFamily::refusal(const LinearProblem &p) const {
  const LinearKernel *taken = leader(p);
  if (!taken)
    return "no kernel computes the product";
  return (taken->name() + ": " + taken->refusal(p)).str();
}

} // namespace gpt2c
