#include "runtime/Sampler.h"

#include "runtime/Random.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpt2c::rt {
namespace {

/// The lowest id among the largest.
template <typename T> int32_t largest(std::span<const T> values) {
  return int32_t(std::max_element(values.begin(), values.end()) - values.begin());
}

/// Reports of log probabilities need all logits; only the best are sorted.
std::vector<TokenLogprob> bestOf(std::span<const float> logits, double logSum, int32_t count) {
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

/// log(sum(exp(x))).
double logSumExp(std::span<const float> x) {
  double highest = *std::max_element(x.begin(), x.end()), sum = 0;
  for (float v : x)
    sum += std::exp(double(v) - highest);
  return highest + std::log(sum);
}

Status outOfRange(const char *field, double value, const char *range) {
  std::string text = std::to_string(value);
  return {Code::Usage, std::string(field) + " is " + text + "; it takes " + range};
}

} // namespace

bool SamplingParams::isGreedy() const {
  return temperature == 0 && repetitionPenalty == 1 && frequencyPenalty == 0 &&
         presencePenalty == 0 && logitBias.empty();
}

Status checkSampling(const SamplingParams &p, int32_t vocabulary) {
  auto finite = [](double v) { return std::isfinite(v); };
  if (!finite(p.temperature) || p.temperature < 0)
    return outOfRange("temperature", p.temperature, "a number of at least 0");
  if (p.topK < 0)
    return outOfRange("top_k", p.topK, "a number of at least 0 (0: all)");
  if (!(p.topP > 0 && p.topP <= 1))
    return outOfRange("top_p", p.topP, "a number above 0, at most 1");
  if (!(p.minP >= 0 && p.minP <= 1))
    return outOfRange("min_p", p.minP, "a number from 0 to 1");
  if (!finite(p.repetitionPenalty) || p.repetitionPenalty <= 0)
    return outOfRange("repetition_penalty", p.repetitionPenalty, "a number above 0");
  if (!finite(p.frequencyPenalty) || std::abs(p.frequencyPenalty) > 2)
    return outOfRange("frequency_penalty", p.frequencyPenalty, "a number from -2 to 2");
  if (!finite(p.presencePenalty) || std::abs(p.presencePenalty) > 2)
    return outOfRange("presence_penalty", p.presencePenalty, "a number from -2 to 2");
  if (p.logprobs < -1)
    return outOfRange("logprobs", p.logprobs, "a number of at least 0");
  for (auto [id, bias] : p.logitBias) {
    if (id < 0 || (vocabulary > 0 && id >= vocabulary))
      return {Code::Usage, "logit_bias names token " + std::to_string(id) +
                               "; the model's ids go from 0 to " + std::to_string(vocabulary - 1)};
    if (std::isnan(bias) || bias == INFINITY)
      return outOfRange("logit_bias", bias, "finite numbers and minus infinity");
  }
  return {};
}

Sampler::Sampler(SamplingParams params, std::span<const int32_t> prompt)
    : params_(std::move(params)), position_(int64_t(prompt.size())) {
  for (int32_t token : prompt)
    seen_.try_emplace(token);
}

void Sampler::penalise(std::vector<double> &logits) const {
  for (auto [id, bias] : params_.logitBias)
    if (size_t(id) < logits.size())
      logits[id] += bias;
  for (auto [id, count] : seen_) {
    if (id < 0 || size_t(id) >= logits.size())
      continue;
    double &logit = logits[id];
    double factor = params_.repetitionPenalty;
    logit = logit > 0 ? logit / factor : logit * factor;
    if (count.inAnswer > 0)
      logit -= params_.frequencyPenalty * count.inAnswer + params_.presencePenalty;
  }
}

std::vector<int32_t> Sampler::candidates(const std::vector<double> &logits) const {
  double least = -INFINITY;
  if (params_.minP > 0)
    least = *std::max_element(logits.begin(), logits.end()) + std::log(params_.minP);
  if (params_.topK > 0 && size_t(params_.topK) < logits.size()) {
    std::vector<double> order(logits);
    auto kth = order.begin() + (params_.topK - 1);
    std::nth_element(order.begin(), kth, order.end(), std::greater<>());
    least = std::max(least, *kth);
  }
  std::vector<int32_t> ids;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= least && logits[i] > -INFINITY)
      ids.push_back(int32_t(i));
  if (params_.topP >= 1)
    return ids;
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<double> weights;
  for (int32_t id : ids)
    weights.push_back(std::exp(logits[id] - logits[ids[0]]));
  double wanted = params_.topP * std::accumulate(weights.begin(), weights.end(), 0.0), sum = 0;
  size_t kept = 0;
  while (kept < ids.size() && sum < wanted)
    sum += weights[kept++];
  ids.resize(kept);
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<Choice> Sampler::choose(std::span<const float> logits) {
  auto bad = std::find_if(logits.begin(), logits.end(), [](float v) { return std::isnan(v); });
  if (bad != logits.end())
    return Status(Code::Quality, "the logits after " + std::to_string(position_) +
                                     " tokens hold a NaN, for id " +
                                     std::to_string(bad - logits.begin()));
  std::vector<double> adjusted(logits.begin(), logits.end());
  penalise(adjusted);
  Choice out;
  out.token = largest<double>(adjusted);
  if (adjusted[out.token] == -INFINITY)
    return Status(Code::Quality,
                  "after " + std::to_string(position_) + " tokens every logit is minus infinity");
  if (params_.temperature > 0) {
    for (double &logit : adjusted)
      logit /= params_.temperature;
    UniformRow uniform(params_.seed, position_);
    double best = -INFINITY;
    for (int32_t id : candidates(adjusted)) {
      double score = adjusted[id] - std::log(-std::log(uniform(id)));
      if (score > best) {
        best = score;
        out.token = id;
      }
    }
  }
  if (params_.logprobs >= 0) {
    double logSum = logSumExp(logits);
    out.logprob = double(logits[out.token]) - logSum;
    out.top = bestOf(logits, logSum, params_.logprobs);
  }
  ++seen_[out.token].inAnswer;
  ++position_;
  return out;
}

} // namespace gpt2c::rt
