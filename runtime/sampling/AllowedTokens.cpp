#include "runtime/sampling/AllowedTokens.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace gpt2c::rt {

AllowedTokens::AllowedTokens(const SamplingParams &params, const AnswerBounds &bounds)
    : badWords_(params.badWords), ends_(bounds.ends), least_(bounds.minTokens),
      filter_(params.constraint ? params.constraint->begin() : nullptr),
      words_(wordsOfTokens(bounds.vocabulary)) {
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
  if (!filter_ || complete_ || refused_)
    return;
  refused_ = !filter_->accept(token);
  complete_ = !refused_ && filter_->complete();
}

void AllowedTokens::accept(int32_t token) {
  if (ahead_ < 0)
    return advance(token);
  assert(token == ahead_ && "what is carried is what was chosen");
  ahead_ = -1;
}

std::span<const uint32_t> AllowedTokens::allowedBehind(int32_t carried) {
  assert((carried < 0 || ahead_ < 0) && "one token is carried at a time");
  if (carried >= 0) {
    ahead_ = carried;
    advance(carried);
  }
  // Behind the end nothing is chosen, or for nobody.
  if (!restricts() || complete_ || refused_)
    return {};
  if (list_.empty())
    allowed_.assign(words_, ~uint32_t{0});
  else
    allowed_ = list_;
  if (filter_)
    filter_->restrict(allowed_);
  forbidBadWords();
  for (int32_t end : never_)
    forbid(end);
  if (int64_t(answer_.size()) < least_)
    for (int32_t end : ends_)
      forbid(end);
  return allowed_;
}

} // namespace gpt2c::rt
