// The choice of the next token from the logits behind the last one.
#pragma once

#include "runtime/Status.h"
#include "runtime/sampling/Constraint.h"
#include "runtime/sampling/SampledChoice.h"

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpt2c::rt {

/// The fields, and the order in which they act, are vLLM's SamplingParams: bias and penalties
/// change the logits, temperature divides them, then min-p, top-k and top-p in turn take candidates
/// away.
struct SamplingParams {
  double temperature = 0; ///< 0: the largest logit, the lowest id of equals
  /// Candidates at least as large as the k-th largest; 0: all. 1 is the choice of temperature 0,
  /// among equals, too.
  int32_t topK = 0;
  /// The fewest of the most probable candidates whose probabilities sum to at least this, and those
  /// as probable as the last of them.
  double topP = 1;
  double minP = 0; ///< candidates at least this times as probable as the most probable one
  /// Of every token in prompt or answer: a logit above 0 is divided by this, another multiplied.
  double repetitionPenalty = 1;
  double frequencyPenalty = 0; ///< taken off a logit for each time the answer has the token
  double presencePenalty = 0;  ///< taken off a logit once if the answer has the token
  std::vector<std::pair<int32_t, double>> logitBias = {}; ///< added to the logit of an id
  /// The only tokens that may be chosen; empty: any.
  std::vector<int32_t> allowedTokens = {};
  /// Sequences that the answer does not have: their last token is not chosen behind the others.
  std::vector<std::vector<int32_t>> badWords = {};
  /// What the answer is a text of; it ends where that is complete. Null: anything.
  std::shared_ptr<const Constraint> constraint = {};
  uint64_t seed = 0;
  /// How many of the most probable tokens are reported with their log probabilities, beside the
  /// chosen one; -1: none, and not the chosen one's either.
  int32_t logprobs = -1;

  /// True when chance decides between candidates.
  bool draws() const { return temperature > 0 && topK != 1; }
  /// True when the choice is that of the largest logit as the model gives it.
  bool isGreedy() const;
  /// True when tokens of the text change the logits.
  bool penalises() const {
    return repetitionPenalty != 1 || frequencyPenalty != 0 || presencePenalty != 0;
  }
  /// True when some tokens may not be chosen.
  bool restricts() const { return !allowedTokens.empty() || !badWords.empty() || constraint; }
  /// True when nothing but the greedy choice is asked for, which a device makes by itself.
  bool needsLogits() const { return !isGreedy() || logprobs >= 0; }
};

/// Usage, with the field, its value and its range, when a field is outside of it.
Status checkSampling(const SamplingParams &params, int32_t vocabulary);

struct Choice {
  int32_t token = -1;
  /// log softmax of the logits as the model gives them, before anything of SamplingParams acts.
  double logprob = 0;
  std::vector<TokenLogprob> top = {}; ///< best first, the lower id first of equals
  bool completes = false; ///< the answer is what SamplingParams::constraint asks for: it ends
};

/// What a sampler knows of the answer beside its parameters.
struct AnswerBounds {
  int32_t vocabulary = 0;         ///< ids are below; 0: not known, of parameters without a mask
  int64_t minTokens = 0;          ///< tokens before the first of `ends`
  std::vector<int32_t> ends = {}; ///< tokens that end the answer

  bool restricts() const { return minTokens > 0 && !ends.empty(); }
};

class AllowedTokens;

/// Chooses the tokens of one sequence. The choice is a function of parameters, tokens so far and
/// logits alone: candidates compete by logit / temperature - log(-log(u)) (the Gumbel maximum,
/// whose winner is distributed as the softmax of the candidates) with u = uniformAt(seed, position,
/// id), `position` counting the tokens before. So it depends neither on other sequences nor on how
/// the tokens before came about. chooseToken() has the arithmetic.
class Sampler {
public:
  Sampler(SamplingParams params, std::span<const int32_t> prompt, const AnswerBounds &bounds = {});
  Sampler(Sampler &&) noexcept;
  Sampler &operator=(Sampler &&) noexcept;
  ~Sampler();

  /// Whether there is anything to do for a sampler: else the device's greedy choice is the one.
  static bool isNeeded(const SamplingParams &params, const AnswerBounds &bounds) {
    return params.needsLogits() || bounds.restricts();
  }

  /// Quality when the logits hold a NaN, or nothing above minus infinity that may be chosen.
  Result<Choice> choose(std::span<const float> logits);

  /// What a device needs for the choice behind `position` tokens; those of the answer that are not
  /// accepted yet are not among the adjustments. These live until the next choice is accepted, the
  /// mask as long as the sampler.
  SampledChoice choiceAt(int64_t position) const;
  /// Takes a token that was chosen elsewhere as the next of the answer. Corrupt where it may not
  /// be.
  Status accept(int32_t token);
  /// Whether nothing may follow the tokens accepted.
  bool complete() const;
  /// Tokens that come next whatever the logits are, at most `most`, where the mask of choiceAt()
  /// was asked for last for the first of them: accept() follows for each, or the sampler is not
  /// used any more. None where something else than the tokens is asked for of each choice.
  std::vector<int32_t> force(int64_t most);
  /// Whether nothing may follow the tokens that force() gave.
  bool completeBehindForced() const;
  /// The error that a choice which is no token stands for.
  Status failure(int32_t choice) const;

private:
  SamplingParams params_;
  SampleRow row_;
  /// Of ids with a bias and, where penalties act on them, of all tokens so far.
  std::vector<Adjustment> adjustments_;
  std::unordered_map<int32_t, size_t> places_; ///< in adjustments_
  std::unique_ptr<AllowedTokens> allowed_;     ///< null: any token may be chosen
  int64_t position_;
};

} // namespace gpt2c::rt
