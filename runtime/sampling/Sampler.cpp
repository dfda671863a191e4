#include "runtime/sampling/Sampler.h"

#include "runtime/sampling/AllowedTokens.h"

#include <algorithm>
#include <cmath>

namespace gpt2c::rt {
namespace {

Status outOfRange(const char *field, double value, const char *range) {
  std::string text = std::to_string(value);
  return {Code::Usage, std::string(field) + " is " + text + "; it takes " + range};
}

} // namespace

bool SamplingParams::isGreedy() const {
  return !draws() && repetitionPenalty == 1 && frequencyPenalty == 0 && presencePenalty == 0 &&
         logitBias.empty() && !restricts();
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
  auto check = [&](const char *field, std::span<const int32_t> ids) -> Status {
    for (int32_t id : ids)
      if (id < 0 || (vocabulary > 0 && id >= vocabulary))
        return {Code::Usage, std::string(field) + " names token " + std::to_string(id) +
                                 "; the model's ids go from 0 to " +
                                 std::to_string(vocabulary - 1)};
    return {};
  };
  if (Status s = check("allowed_token_ids", p.allowedTokens); !s.ok())
    return s;
  for (const std::vector<int32_t> &word : p.badWords) {
    if (word.empty())
      return {Code::Usage, "one of bad_words has no token"};
    if (Status s = check("bad_words", word); !s.ok())
      return s;
  }
  if (p.constraint && vocabulary > 0 && p.constraint->vocabulary() != vocabulary)
    return {Code::Usage, "the grammar was compiled for " +
                             std::to_string(p.constraint->vocabulary()) +
                             " tokens, and the model has " + std::to_string(vocabulary)};
  return {};
}

static SampleRow rowOf(const SamplingParams &p, const AnswerBounds &bounds) {
  SampleRow row;
  row.mode = !Sampler::isNeeded(p, bounds) ? SampleRow::Given
             : p.draws()                   ? SampleRow::Sampled
                                           : SampleRow::Largest;
  // Less heat than this makes no difference, and single precision has no larger numbers.
  row.inverseTemperature = p.temperature > 0 ? std::min(1 / p.temperature, 1e30) : 1;
  row.topP = p.topP;
  row.repetition = p.repetitionPenalty;
  row.frequency = p.frequencyPenalty;
  row.presence = p.presencePenalty;
  row.logMinP = p.minP > 0 ? float(std::log(p.minP)) : 1;
  row.topK = p.topK;
  row.seed = p.seed;
  row.report = p.logprobs;
  return row;
}

Sampler::Sampler(SamplingParams params, std::span<const int32_t> prompt, const AnswerBounds &bounds)
    : params_(std::move(params)), row_(rowOf(params_, bounds)), position_(int64_t(prompt.size())) {
  if (params_.restricts() || bounds.restricts())
    allowed_ = std::make_unique<AllowedTokens>(params_, bounds);
  auto at = [&](int32_t id) -> Adjustment & {
    auto [place, isNew] = places_.emplace(id, adjustments_.size());
    if (isNew)
      adjustments_.push_back({.id = id});
    return adjustments_[place->second];
  };
  for (auto [id, bias] : params_.logitBias)
    at(id).bias += bias;
  if (params_.penalises())
    for (int32_t token : prompt)
      at(token).count = 0;
}

Sampler::Sampler(Sampler &&) noexcept = default;
Sampler &Sampler::operator=(Sampler &&) noexcept = default;
Sampler::~Sampler() = default;

SampledChoice Sampler::choiceAt(int64_t position) const {
  SampledChoice choice{row_, adjustments_, params_.penalises()};
  if (allowed_ && allowed_->restricts())
    choice.mask = allowed_.get();
  choice.row.position = position;
  return choice;
}

bool Sampler::complete() const { return allowed_ && allowed_->complete(); }

std::vector<int32_t> Sampler::force(int64_t most) {
  if (!allowed_ || params_.penalises() || params_.logprobs >= 0)
    return {};
  return allowed_->force(most);
}

bool Sampler::completeBehindForced() const { return allowed_ && allowed_->completeAhead(); }

Status Sampler::accept(int32_t token) {
  ++position_;
  if (allowed_)
    allowed_->accept(token);
  if (allowed_ && allowed_->refused())
    return {Code::Corrupt,
            "token " + std::to_string(token) + " was chosen, which the grammar does not allow"};
  if (!params_.penalises())
    return {};
  auto [place, isNew] = places_.emplace(token, adjustments_.size());
  if (isNew)
    adjustments_.push_back({.id = token});
  Adjustment &a = adjustments_[place->second];
  a.count = std::max(a.count, 0) + 1;
  return {};
}

Status Sampler::failure(int32_t choice) const {
  const std::string after = std::to_string(position_) + " tokens";
  if (choice == choiceOfNothing)
    return {Code::Quality,
            "after " + after +
                (allowed_ ? " no token is possible that may be chosen: what is asked "
                            "for forbids the others"
                          : " every logit is minus infinity")};
  return {Code::Quality, "the logits after " + after +
                             " hold a NaN or infinity: an overflow, in fp16 most likely; compile "
                             "with --precision=fp32"};
}

Result<Choice> Sampler::choose(std::span<const float> logits) {
  const auto greedy = [&] {
    if (std::ranges::any_of(logits, [](float v) { return std::isnan(v); }))
      return choiceOfNaN;
    const auto largest = std::ranges::max_element(logits);
    return *largest == -INFINITY ? choiceOfNothing : int32_t(largest - logits.begin());
  };
  const SampledChoice how = choiceAt(position_);
  Choice out;
  out.token = row_.mode == SampleRow::Given ? greedy()
                                            : chooseToken(how.row, how.adjustments, logits, -1,
                                                          how.mask ? how.mask->allowedBehind(-1)
                                                                   : std::span<const uint32_t>());
  if (out.token < 0)
    return failure(out.token);
  if (params_.logprobs >= 0) {
    double logSum = logSumExp(logits);
    out.logprob = double(logits[out.token]) - logSum;
    out.top = mostProbable(logits, logSum, params_.logprobs);
  }
  if (Status s = accept(out.token); !s.ok())
    return s;
  out.completes = complete();
  return out;
}

} // namespace gpt2c::rt
