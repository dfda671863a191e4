#include "runtime/text/AnswerStream.h"

#include <cassert>
#include <utility>

namespace gpt2c::rt {

const char *nameOf(Finish finish) {
  switch (finish) {
  case Finish::Length:
    return "length";
  case Finish::Stop:
    return "stop";
  case Finish::Context:
    return "context";
  case Finish::Caller:
    return "cancelled";
  case Finish::Failed:
    break;
  }
  return "failed";
}

AnswerStream::AnswerStream(AnswerRules rules, const Tokenizer *tokenizer)
    : rules_(std::move(rules)), tokenizer_(tokenizer), text_(rules_.stops) {}

bool AnswerStream::shows(int32_t token, bool ends) const {
  return tokenizer_ && (!ends || rules_.includeStop) &&
         std::ranges::count(rules_.hiddenTokens, token) == 0;
}

AnswerPiece AnswerStream::push(Choice choice) {
  assert(!ended_ && "nothing follows the end of an answer");
  AnswerPiece piece;
  const int32_t token = choice.token;
  const bool completes = choice.completes;
  piece.choice = std::move(choice);
  ++tokens_;
  const bool ends = std::ranges::count(rules_.stopTokens, token) > 0;
  if (shows(token, ends))
    piece.text = text_.push(tokenizer_->tokenBytes(token), tokens_ > rules_.minTokens);
  if (text_.stopped()) {
    piece.stopString = text_.stopIndex();
    if (rules_.includeStop)
      piece.text += rules_.stops[size_t(piece.stopString)];
  } else if (ends) {
    piece.stopToken = token;
  }
  if (text_.stopped() || ends || completes)
    piece.finish = Finish::Stop;
  else if (tokens_ >= rules_.maxTokens)
    piece.finish = Finish::Length;
  else if (tokens_ >= rules_.room)
    piece.finish = Finish::Context;
  if (piece.finish)
    piece.text += end(*piece.finish).text;
  return piece;
}

AnswerPiece AnswerStream::end(Finish finish) {
  ended_ = true;
  return {.text = text_.finish(), .finish = finish};
}

} // namespace gpt2c::rt
