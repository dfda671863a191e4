#include "runtime/sampling/AllowedTokens.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <iterator>

namespace gpt2c::rt {

AllowedTokens::AllowedTokens(const SamplingParams &params, const AnswerBounds &bounds)
    : badWords_(params.badWords), ends_(bounds.ends), least_(bounds.minTokens),
      filter_(params.constraint ? params.constraint->begin() : nullptr),
      words_(wordsOfTokens(bounds.vocabulary)), vocabulary_(bounds.vocabulary) {
  if (params.constraint)
    std::ranges::copy_if(params.constraint->ends(), std::back_inserter(never_),
                         [&](int32_t end) { return !std::ranges::count(ends_, end); });
  if (params.allowedTokens.empty())
    return;
  list_.resize(words_);
  for (int32_t id : params.allowedTokens)
    list_[size_t(id / tokensOfWord)] |= 1U << (id % tokensOfWord);
}

bool AllowedTokens::restricts() const {
  return filter_ || !list_.empty() || !badWords_.empty() ||
         (!ends_.empty() && int64_t(answer_.size()) < least_);
}

void AllowedTokens::forbid(int32_t token) {
  if (token >= 0 && size_t(token / tokensOfWord) < words_)
    allowed_[size_t(token / tokensOfWord)] &= ~(1U << (token % tokensOfWord));
}

void AllowedTokens::forbidBadWords() {
  for (const std::vector<int32_t> &word : badWords_) {
    const std::span<const int32_t> head(word.data(), word.size() - 1);
    if (head.size() <= answer_.size() &&
        std::equal(head.begin(), head.end(), answer_.end() - std::ptrdiff_t(head.size())))
      forbid(word.back());
  }
}

void AllowedTokens::advance(int32_t token) {
  answer_.push_back(token);
  only_ = -1; // of the mask ahead of this token
  if (!filter_ || complete_ || refused_)
    return;
  refused_ = !filter_->accept(token);
  complete_ = !refused_ && filter_->complete();
}

void AllowedTokens::accept(int32_t token) {
  if (ahead_.empty())
    return advance(token);
  assert(token == ahead_.front() && "what is ahead is what was chosen");
  ahead_.pop_front();
}

std::span<const uint32_t> AllowedTokens::allowedBehind(int32_t carried) {
  assert((carried < 0 || ahead_.empty()) && "one token is carried at a time");
  if (carried >= 0) {
    ahead_.push_back(carried);
    advance(carried);
  }
  const std::span<const uint32_t> mask = makeMask();
  only_ = -1;
  if (!mask.empty())
    findOnly();
  return mask;
}

/// The token of allowed_, where it has one alone.
void AllowedTokens::findOnly() {
  const auto isSome = [](uint32_t word) { return word != 0; };
  const auto word = std::ranges::find_if(allowed_, isSome);
  if (word != allowed_.end() && std::has_single_bit(*word) &&
      std::none_of(word + 1, allowed_.end(), isSome))
    only_ = int32_t(word - allowed_.begin()) * tokensOfWord + std::countr_zero(*word);
}

std::vector<int32_t> AllowedTokens::force(int64_t most) {
  std::vector<int32_t> out;
  while (only_ >= 0 && int64_t(out.size()) < most) {
    out.push_back(only_);
    ahead_.push_back(only_);
    advance(only_);
    (void)allowedBehind(-1);
  }
  return out;
}

/// Behind the tokens so far.
std::span<const uint32_t> AllowedTokens::makeMask() {
  // Behind the end nothing is chosen, or for nobody.
  if (!restricts() || complete_ || refused_)
    return {};
  if (filter_) {
    allowed_.resize(words_);
    filter_->fill(allowed_);
    for (size_t i = 0; i < list_.size(); ++i)
      allowed_[i] &= list_[i];
  } else if (list_.empty()) {
    allowed_.assign(words_, ~uint32_t{0});
    if (words_ > 0) // bits behind the last token stand for none
      allowed_.back() = ~uint32_t{0} >> (words_ * tokensOfWord - size_t(vocabulary_));
  } else {
    allowed_ = list_;
  }
  forbidBadWords();
  for (int32_t end : never_)
    forbid(end);
  if (int64_t(answer_.size()) < least_)
    for (int32_t end : ends_)
      forbid(end);
  return allowed_;
}

} // namespace gpt2c::rt
