// Session::generate with texts: answers as they grow, ended by stop strings and the end of text.
#pragma once

#include "runtime/session/Session.h"
#include "runtime/text/AnswerStream.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// One answer to one prompt.
struct TextAnswer {
  Tokens tokens;    ///< with the token that ended it
  std::string text; ///< of the tokens, cut where a stop string begins; without a token that ends it
  std::vector<Choice> choices; ///< of each token, where log probabilities were asked for
  Finish finish = Finish::Length;
  int stop = -1;         ///< which of TextOptions::stops ended it (finish is Stop), -1: none
  bool complete = false; ///< a constraint ended it (finish is Stop)
  /// Until its first and its last token were there, from the call of generateText on: a prompt that
  /// waits for a place in the batch counts that.
  double firstTokenSeconds = 0, lastTokenSeconds = 0;

  /// Tokens behind the first one, per second; none without such tokens.
  std::optional<double> tokensPerSecond() const;
  /// Takes the next piece, `seconds` after the answer was asked for.
  void add(const AnswerPiece &piece, double seconds, bool wantsLogprobs);
};

struct TextOptions {
  GenerateOptions generate; ///< without onToken; stopTokens beside the end of text
  std::vector<std::string> stops;
  bool ignoreEos = false; ///< the end of text is a token like any other
  /// Called for every new token with what can be shown behind it, which may be nothing: whole
  /// characters, no part of a stop string. False ends the answer.
  std::function<bool(size_t sequence, const Choice &choice, std::string_view text)> onToken;
  /// Called once for each answer with the text that was held back until then: behind the token that
  /// ends it, whatever else runs; or at the end of all where generate.goesOn said so, and without a
  /// KV state.
  std::function<void(size_t sequence, Finish finish, std::string_view rest)> onEnd;
};

struct TextGenerated {
  std::vector<TextAnswer> answers; ///< of each prompt
  Generated generated;             ///< times and steps
};

/// The tokens that end an answer, as a plan (its eos_token) and the tokenizer (null: there is none)
/// say.
std::vector<int32_t> endsOfText(int32_t eosToken, const Tokenizer *tokenizer);
inline std::vector<int32_t> endsOfText(const Session &session, const Tokenizer *tokenizer) {
  return endsOfText(session.eosToken(), tokenizer);
}

/// SamplingParams::badWords of texts: their tokens, alone and behind a space.
std::vector<Tokens> badWordsOf(const Tokenizer &tokenizer, std::span<const std::string> words);

/// What the model's makers advise: greedy where they do not sample, but for penalties.
SamplingParams advisedSampling(const SamplingAdvice &advice);

/// Continues each prompt. What onToken and onEnd are given for a sequence is, one piece after the
/// other, the text of its answer, byte for byte. Without a tokenizer texts are empty, and stop
/// strings a Usage error.
Result<TextGenerated> generateText(Session &session, const Tokenizer *tokenizer,
                                   std::span<const Tokens> prompts, const TextOptions &options);

} // namespace gpt2c::rt
