// What an engine knows of a request. Only the engine's own files include this.
#pragma once

#include "runtime/engine/Engine.h"

namespace gpt2c::rt {

struct Engine::Sequence {
  Sequence(RequestId number, Request asked)
      : id(number), request(std::move(asked)), tokens(request.prompt),
        prompt(int32_t(request.prompt.size())), text(request.stops) {
    if (request.sampling.needsLogits())
      sampler.emplace(request.sampling, request.prompt);
  }

  int32_t newTokens() const { return int32_t(tokens.size()) - prompt; }
  bool isPrompt() const { return begun < prompt; }

  RequestId id;
  Request request;
  Tokens tokens; ///< the prompt and the new tokens that are known
  int32_t prompt;
  /// Tokens whose keys and values the calls begun so far put into the pages. One of them may not be
  /// known yet.
  int32_t begun = 0;
  int32_t pending = 0; ///< choices of calls not collected: 0 or 1, for a moment 2
  int32_t segment = 0; ///< the number of its segment in the newest call
  std::vector<int32_t> pages;
  int32_t reserved = 0;           ///< pages promised beside these
  int32_t published = 0;          ///< of pages, from the first on: full, and entries of the pool
  int32_t cached = 0;             ///< prompt tokens found in the prefix cache
  std::optional<Sampler> sampler; ///< none: the device's greedy choice
  TextStream text;
};

} // namespace gpt2c::rt
