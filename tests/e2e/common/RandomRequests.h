// Random requests for an engine that has few pages: greedy and sampled, with common prefixes.
#pragma once

#include "runtime/engine/Engine.h"
#include "tests/e2e/common/Program.h"

#include <algorithm>
#include <random>

namespace gpt2c::e2e {

class RandomRequests {
public:
  /// Ends the program where the session has no rows.
  RandomRequests(rt::Session &session, unsigned seed)
      : random_(seed), paged_(session.backend().pagedState()),
        vocabulary_(session.plan().meta().vocab_size) {
    if (paged_.pageTokens == 0)
      fail(session.backend().allocatePages(0).message(), int(rt::Code::Unsupported));
    context_ = std::min<int32_t>(session.plan().meta().kv->max_context, 4 * paged_.pageTokens + 20);
    for (int i = 0; i < 3; ++i)
      prefixes_.push_back(tokens(context_ / 2));
  }

  /// Room for some three of the largest requests: the others wait.
  uint64_t kvBytes() const {
    return paged_.pageBytes * uint64_t(3 * (context_ / paged_.pageTokens + 1));
  }
  /// Room for any one of them with up to so many new tokens.
  uint64_t kvBytesOfOne(int maxTokens) const {
    return paged_.pageBytes * uint64_t((context_ + maxTokens) / paged_.pageTokens + 1);
  }
  int32_t mostRows() const { return paged_.maxRows; }
  /// Whether prompts are long enough for some to have pages in common.
  bool sharePages() const { return context_ > 2 * paged_.pageTokens; }
  int32_t vocabulary() const { return vocabulary_; }

  int below(int n) { return n > 0 ? int(random_() % unsigned(n)) : 0; }

  /// Of up to `maxTokens` new tokens; one of `sampledOf` is sampled.
  rt::Request make(int maxTokens, int sampledOf) {
    rt::Request r;
    r.maxTokens = 1 + below(maxTokens);
    if (below(3)) {
      r.prompt = prefixes_[size_t(below(3))];
      r.prompt.resize(size_t(below(int(r.prompt.size()))) + 1);
    }
    for (int32_t t : tokens(1 + below(context_ / 2 - 20)))
      r.prompt.push_back(t);
    if (below(sampledOf) == 0)
      r.sampling = sampling();
    if (below(4) == 0)
      r.sampling.logprobs = below(4);
    return r;
  }

private:
  rt::SamplingParams sampling() {
    rt::SamplingParams p{.temperature = 0.8, .seed = random_()};
    const int kind = below(4); // temperature alone is one of them
    if (kind == 1)
      p.topK = 20;
    if (kind == 1 || kind == 2)
      p.topP = 0.9;
    if (kind == 3) {
      p.minP = 0.02;
      p.repetitionPenalty = 1.2;
      p.presencePenalty = 0.3;
      p.logitBias = {{below(vocabulary_), 2.0}};
    }
    return p;
  }

  rt::Tokens tokens(int count) {
    rt::Tokens out;
    for (int i = 0; i < count; ++i)
      out.push_back(below(vocabulary_));
    return out;
  }

  std::mt19937 random_;
  rt::PagedState paged_;
  int32_t vocabulary_, context_ = 0;
  std::vector<rt::Tokens> prefixes_;
};

} // namespace gpt2c::e2e
