// What an engine knows of a request. Only the engine's own files include this.
#pragma once

#include "runtime/engine/Engine.h"

namespace gpt2c::rt {

struct Engine::Sequence {
  /// `samples`: the device does. `tokenizer`: of texts, or null.
  Sequence(RequestId number, Request asked, int32_t vocabulary, bool samples,
           const Tokenizer *tokenizer)
      : id(number), request(std::move(asked)), tokens(request.prompt),
        prompt(int32_t(request.prompt.size())), inPieces(prompt), answer(request, tokenizer) {
    const AnswerBounds bounds{vocabulary, request.minTokens, request.stopTokens};
    if (Sampler::isNeeded(request.sampling, bounds))
      sampler.emplace(request.sampling, request.prompt, bounds);
    onDevice = samples && request.sampling.logprobs <= mostReported &&
               mostAdjustments() <= SampledChoice::mostAdjustments;
  }

  int32_t newTokens() const { return int32_t(tokens.size()) - prompt; }
  bool isPrompt() const { return begun < inPieces; }
  bool runs() const { return turn == Running; }
  /// Whether its tokens are chosen on the host, from logits.
  bool onHost() const { return sampler && !onDevice; }
  bool scores() const { return request.promptLogprobs >= 0; }
  int64_t mostAdjustments() const {
    const SamplingParams &p = request.sampling;
    return int64_t(p.logitBias.size()) + (p.penalises() ? prompt + request.mostTokens() : 0);
  }

  RequestId id;
  Request request;
  Tokens tokens; ///< the prompt and the new tokens that are known
  int32_t prompt;
  /// Tokens that are computed in pieces: the prompt, and what is known when all is computed again.
  int32_t inPieces;
  /// Tokens whose keys and values the calls begun so far put into the pages. One of them may not be
  /// known yet.
  int32_t begun = 0;
  int32_t pending = 0; ///< choices of calls not collected: 0 or 1, for a moment 2
  int32_t segment = 0; ///< the number of its segment in the newest call
  std::vector<int32_t> pages;
  int32_t readFirst = 0; ///< of pages, of a turn: not pinned, but read where they are
  /// Has no rows without one. Coming: its pages are on their way to the device.
  enum Turn : uint8_t { Resting, Coming, Running } turn = Running;
  std::vector<int32_t> frames;    ///< of its pages, in the newest call
  PageEntry root = 0;             ///< what its first page is behind
  int32_t reserved = 0;           ///< pages promised beside these
  int32_t published = 0;          ///< of pages, from the first on: full, and entries of the pool
  int32_t cached = 0;             ///< prompt tokens found in the prefix cache
  std::optional<Sampler> sampler; ///< none: the device's greedy choice
  bool onDevice = false;          ///< the device chooses as the sampler says
  AnswerStream answer;
  /// What is known to follow `tokens`, since nothing else may.
  std::vector<int32_t> forced;
  /// Of these, from the first on, those that the call begun last has as rows, or behind which
  /// nothing follows.
  int32_t forcedRows = 0;
  std::vector<Choice> scored; ///< tokens of the prompt, from the second on
  Adjustment wanted;          ///< makes the choice of the device the prompt's next token
  std::chrono::steady_clock::time_point admitted = {};
};

} // namespace gpt2c::rt
