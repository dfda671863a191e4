// The tokens that may be next in one answer: what a list allows, a constraint, forbidden sequences
// and the least length leave.
#pragma once

#include "runtime/sampling/SampledChoice.h"
#include "runtime/sampling/Sampler.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace gpt2c::rt {

class AllowedTokens final : public TokenMask {
public:
  AllowedTokens(const SamplingParams &params, const AnswerBounds &bounds);

  /// Whether anything may be forbidden now or later.
  bool restricts() const;
  /// A token that was chosen where allowedBehind() has let it.
  void accept(int32_t token);
  /// Of the tokens accepted: nothing may follow them.
  bool complete() const { return complete_ && ahead_.empty(); }
  /// The same of those that are known, to be accepted later.
  bool completeAhead() const { return complete_; }
  /// A token was accepted that the constraint does not have: what chose it has seen no mask.
  bool refused() const { return refused_; }

  /// With `carried` the token is accepted later, or never.
  std::span<const uint32_t> allowedBehind(int32_t carried) override;
  /// The tokens that come next because no other may, at most `most`, where the mask that was asked
  /// for last is that of the next token. Each is accepted later, or never.
  std::vector<int32_t> force(int64_t most);

private:
  std::span<const uint32_t> makeMask();
  void findOnly();
  void advance(int32_t token);
  void forbid(int32_t token);
  /// Forbids what would end one of badWords.
  void forbidBadWords();

  std::vector<std::vector<int32_t>> badWords_;
  std::vector<int32_t> never_; ///< the constraint's ends that do not end the answer
  std::vector<int32_t> ends_;  ///< forbidden for `least_` tokens
  int64_t least_ = 0;
  std::unique_ptr<TokenFilter> filter_;
  std::vector<uint32_t> list_;    ///< of SamplingParams::allowedTokens; empty: all
  std::vector<uint32_t> allowed_; ///< behind the tokens so far
  std::vector<int32_t> answer_;   ///< the tokens so far, those ahead too
  size_t words_;
  int32_t vocabulary_;
  std::deque<int32_t> ahead_; ///< the last of these, which are not accepted yet
  int32_t only_ = -1;         ///< the token of the last mask, where that has one alone
  bool complete_ = false, refused_ = false;
};

} // namespace gpt2c::rt
