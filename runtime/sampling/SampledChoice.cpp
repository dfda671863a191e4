#include "runtime/sampling/SampledChoice.h"

#include "runtime/sampling/Random.h"
#include "runtime/sampling/SampleMath.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

namespace gpt2c::rt {
namespace {

void adjust(const SampleRow &row, std::span<const Adjustment> adjustments,
            std::span<float> logits) {
  for (const Adjustment &a : adjustments) {
    if (a.id < 0 || size_t(a.id) >= logits.size())
      continue;
    double x = double(logits[a.id]) + a.bias;
    if (a.count >= 0)
      x = x > 0 ? x / row.repetition : x * row.repetition;
    if (a.count > 0)
      x = x - (row.frequency * double(a.count) + row.presence);
    logits[a.id] = float(x);
  }
}

void forbid(std::span<const uint32_t> allowed, std::span<float> logits) {
  for (size_t i = 0; i < logits.size() && !allowed.empty(); ++i)
    if (!(allowed[i / 32] >> (i % 32) & 1) && !std::isnan(logits[i]))
      logits[i] = -INFINITY;
}

/// The least logit of a candidate.
float leastOf(const SampleRow &row, std::span<const float> x, float highest) {
  const auto inverse = float(row.inverseTemperature);
  auto scaled = [&](float v) { return (v - highest) * inverse; };
  float least = -INFINITY;
  if (row.logMinP <= 0) {
    least = highest;
    for (float v : x)
      if (scaled(v) >= row.logMinP)
        least = std::min(least, v);
  }
  if (row.topK > 0 && size_t(row.topK) < x.size()) {
    std::vector<float> order(x.begin(), x.end());
    auto kth = order.begin() + (row.topK - 1);
    std::nth_element(order.begin(), kth, order.end(), std::greater<>());
    least = std::max(least, *kth);
  }
  if (row.topP >= 1)
    return least;
  std::vector<float> candidates;
  uint64_t total = 0, sum = 0;
  for (float v : x)
    if (v >= least) {
      candidates.push_back(v);
      total += sampling::weightOf(scaled(v));
    }
  std::sort(candidates.begin(), candidates.end(), std::greater<>());
  const double wanted = row.topP * double(total);
  for (float v : candidates) {
    sum += sampling::weightOf(scaled(v));
    if (double(sum) >= wanted)
      return v;
  }
  return least;
}

} // namespace

void addToken(std::span<Adjustment> adjustments, int32_t token) {
  auto it = std::ranges::find(adjustments, token, &Adjustment::id);
  if (it == adjustments.end())
    --it;
  it->id = token;
  it->count = std::max(it->count, 0) + 1;
}

int32_t chooseToken(const SampleRow &row, std::span<const Adjustment> adjustments,
                    std::span<const float> logits, int32_t greedy,
                    std::span<const uint32_t> allowed) {
  if (row.mode == SampleRow::Given)
    return greedy;
  std::vector<float> x(logits.begin(), logits.end());
  forbid(allowed, x);
  adjust(row, adjustments, x);
  if (std::ranges::any_of(x, [](float v) { return std::isnan(v); }))
    return choiceOfNaN;
  const auto largest = std::max_element(x.begin(), x.end());
  if (*largest == -INFINITY)
    return choiceOfNothing;
  auto choice = int32_t(largest - x.begin());
  if (row.mode == SampleRow::Largest)
    return choice;
  if (*largest == INFINITY)
    return choiceOfNaN;
  const float least = leastOf(row, x, *largest);
  UniformRow random(row.seed, row.position);
  double best = -INFINITY;
  uint64_t order = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(x[i] >= least) || x[i] == -INFINITY)
      continue;
    const double scaled = double(x[i]) * row.inverseTemperature;
    if (scaled + sampling::mostGumbel < best)
      continue;
    const double score = scaled + sampling::gumbelOf(random.word(int32_t(i)));
    if (const uint64_t o = sampling::scoreOrder(score); o > order) {
      best = score;
      order = o;
      choice = int32_t(i);
    }
  }
  return choice;
}

double logSumExp(std::span<const float> x) {
  double highest = *std::max_element(x.begin(), x.end()), sum = 0;
  for (float v : x)
    sum += std::exp(double(v) - highest);
  return highest + std::log(sum);
}

std::vector<TokenLogprob> mostProbable(std::span<const float> logits, double logSum,
                                       int32_t count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  auto end = ids.begin() + std::min<size_t>(size_t(count), ids.size());
  std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  std::vector<TokenLogprob> best;
  for (auto it = ids.begin(); it != end; ++it)
    best.push_back({*it, double(logits[*it]) - logSum});
  return best;
}

LogprobReport reportOf(const SampleRow &row, std::span<const float> logits, int32_t token) {
  LogprobReport report;
  const double logSum = logSumExp(logits);
  report.logprob = double(logits[token]) - logSum;
  const auto best = mostProbable(logits, logSum, std::clamp(row.report, 0, mostReported));
  report.count = int32_t(best.size());
  std::ranges::copy(best, report.best);
  return report;
}

} // namespace gpt2c::rt
