// An answer as it grows, token by token: its text, and where it ends. Whatever makes the tokens, an
// engine or a session, this alone says what becomes of them.
#pragma once

#include "runtime/sampling/Sampler.h"
#include "runtime/text/Finish.h"
#include "runtime/text/TextStream.h"
#include "runtime/text/tokenizer/Tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpt2c::rt {

/// Where an answer ends, and which of its tokens are text.
struct AnswerRules {
  int64_t maxTokens = 16;   ///< new tokens at most
  int64_t minTokens = 0;    ///< so many have no stop token or string among them
  int64_t room = INT64_MAX; ///< tokens that the context has room for
  /// The answer ends with the first of these: the end of text, and what a caller names.
  std::vector<int32_t> stopTokens = {};
  /// The answer's text ends ahead of the first of these. They need a tokenizer.
  std::vector<std::string> stops = {};
  /// The text has the stop token or string that ended it, too.
  bool includeStop = false;
  /// Tokens that never add to the text, whether they end it or not: special ones.
  std::vector<int32_t> hiddenTokens = {};

  int64_t mostTokens() const { return std::min(maxTokens, room); }
};

/// New tokens behind a prompt that a context has room for: the last one needs none.
inline int64_t roomBehind(int64_t promptTokens, int64_t context) {
  return context - promptTokens + 1;
}

/// What became of an answer: a token, its end, or both.
struct AnswerPiece {
  std::optional<Choice> choice = {};
  /// What can be shown now: whole characters, no part of a stop string. All pieces of an answer
  /// together are its text, byte for byte.
  std::string text = {};
  std::optional<Finish> finish = {}; ///< of the last piece
  int32_t stopToken = -1;            ///< of Finish::Stop: the token that ended it, or else
  int32_t stopString = -1;           ///< which of AnswerRules::stops
};

class AnswerStream {
public:
  /// `tokenizer` outlives the stream; with null texts are empty, and stop strings never found.
  AnswerStream(AnswerRules rules, const Tokenizer *tokenizer);

  /// Takes the next token of an answer that has not ended.
  AnswerPiece push(Choice choice);
  /// Ends an answer that has not ended, for a reason that its tokens do not show.
  AnswerPiece end(Finish finish);

  bool ended() const { return ended_; }
  int64_t tokens() const { return tokens_; }

private:
  bool shows(int32_t token, bool ends) const;

  AnswerRules rules_;
  const Tokenizer *tokenizer_;
  TextStream text_;
  int64_t tokens_ = 0;
  bool ended_ = false;
};

} // namespace gpt2c::rt
