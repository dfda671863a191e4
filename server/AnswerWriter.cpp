#include "server/AnswerWriter.h"

#include "runtime/text/unicode/Utf8.h"
#include "server/http/RandomId.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace gpt2c::serve {

int64_t charactersOf(std::string_view text) {
  int64_t n = 0;
  for (size_t at = 0; at < text.size(); ++n)
    at += std::max<size_t>(1, rt::utf8SequenceLength(text.substr(at)));
  return n;
}

AnswerWriter::AnswerWriter(const Model &model, GenerationRequest asked, int32_t streamInterval)
    : model_(model), asked_(std::move(asked)), interval_(streamInterval),
      id_(randomId(asked_.chat ? "chatcmpl-" : "cmpl-")), created_(std::time(nullptr)),
      eventHead_(headOf(true)), choices_(asked_.choices()) {
  for (Choice &c : choices_)
    c.tools = ToolStream(asked_.tools);
}

//===-- what comes --------------------------------------------------------------------------===//

void AnswerWriter::take(size_t choice, const rt::Update &update) {
  Choice &c = choices_[choice];
  if (!c.begun) {
    c.begun = true;
    if (asked_.echo)
      c.text = promptOf(choice).text;
    if (asked_.common.promptLogprobs >= 0) {
      std::vector<Token> prompt{{{.token = promptOf(choice).tokens[0]}, false}};
      for (const rt::Choice &token : update.prompt)
        prompt.push_back({token});
      if (asked_.echo && asked_.logprobs())
        c.tokens = prompt;
      if (asked_.promptLogprobs)
        c.prompt = std::move(prompt);
    }
  }
  if (update.ending)
    c.ending = update.ending;
  if (asked_.dropsAnswer)
    return;
  if (update.choice) {
    ++c.newTokens;
    ++c.unwritten;
    if (asked_.logprobs())
      c.tokens.push_back({*update.choice});
    if (asked_.tokenIds)
      c.ids.push_back(update.choice->token);
  }
  auto add = [&](ToolStream::Piece piece) {
    c.text += piece.content;
    std::ranges::move(piece.calls, std::back_inserter(c.calls));
  };
  add(c.tools.push(update.text));
  if (update.ending)
    add(c.tools.finish());
  c.called = c.called || !c.calls.empty();
}

int64_t AnswerWriter::promptTokens() const {
  int64_t all = 0;
  for (const Prompt &prompt : asked_.prompts)
    all += int64_t(prompt.tokens.size());
  return all;
}

int64_t AnswerWriter::newTokens() const {
  int64_t all = 0;
  for (const Choice &c : choices_)
    all += c.ending && !asked_.dropsAnswer ? c.ending->newTokens : 0;
  return all;
}

/// Of each prompt once: its choices share what the first has.
int64_t AnswerWriter::cachedTokens() const {
  int64_t all = 0;
  for (size_t i = 0; i < choices_.size(); i += size_t(asked_.n))
    all += choices_[i].ending ? choices_[i].ending->cachedTokens : 0;
  return all;
}

//===-- parts of an answer ------------------------------------------------------------------===//

std::string AnswerWriter::finishReason(const Choice &c) const {
  if (c.called && c.ending->reason == rt::Finish::Stop)
    return "tool_calls";
  switch (c.ending->reason) {
  case rt::Finish::Length:
  case rt::Finish::Context:
    return "length";
  case rt::Finish::Stop:
    return asked_.dropsAnswer ? "length" : "stop";
  case rt::Finish::Caller:
    return "abort";
  case rt::Finish::Failed:
    break;
  }
  return "error";
}

void AnswerWriter::writeEnding(JsonWriter &w, const Choice &c) const {
  if (!c.ending) {
    w.key("finish_reason").null();
    return;
  }
  w.key("finish_reason").text(finishReason(c)).key("stop_reason");
  const rt::Ending &e = *c.ending;
  if (e.stopString >= 0)
    w.text(asked_.common.stops[size_t(e.stopString)]);
  else if (e.stopToken >= 0 && !std::ranges::count(asked_.ends, e.stopToken) && !asked_.dropsAnswer)
    w.integer(e.stopToken);
  else
    w.null();
}

void AnswerWriter::writeUsage(JsonWriter &w, int64_t promptTokens, int64_t newTokens) {
  w.key("usage").object();
  w.key("prompt_tokens").integer(promptTokens);
  w.key("completion_tokens").integer(newTokens);
  w.key("total_tokens").integer(promptTokens + newTokens);
}

void AnswerWriter::writeUsage(JsonWriter &w) const {
  writeUsage(w, promptTokens(), newTokens());
  w.key("prompt_tokens_details").object().key("cached_tokens").integer(cachedTokens()).end().end();
}

/// What all that is told of an answer begins with.
JsonWriter AnswerWriter::headOf(bool event) const {
  JsonWriter w;
  w.object().key("id").text(id_).key("object");
  if (asked_.chat)
    w.text(event ? "chat.completion.chunk" : "chat.completion");
  else
    w.text("text_completion");
  w.key("created").integer(created_).key("model").text(asked_.model);
  w.key("system_fingerprint").text(model_.fingerprint());
  return w;
}

/// Its text; of bytes that are none, bytes:\xe2\x80 as OpenAI has it; without a tokenizer its id.
void AnswerWriter::writeTokenText(JsonWriter &w, int32_t token) const {
  if (!model_.tokenizer()) {
    w.text("token_id:" + std::to_string(token));
    return;
  }
  const std::string_view bytes = model_.tokenizer()->tokenBytes(token);
  if (rt::isUtf8(bytes)) {
    w.text(bytes);
    return;
  }
  static constexpr char digits[] = "0123456789abcdef";
  std::string text = "bytes:";
  for (const char c : bytes) {
    text += "\\x";
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[c & 15];
  }
  w.text(text);
}

/// JSON has no minus infinity.
static double bounded(double logprob) { return std::max(logprob, -9999.0); }

/// The most probable tokens by their texts, and the token itself.
void AnswerWriter::writeTop(JsonWriter &w, const Token &token) const {
  if (!token.hasLogprob) {
    w.null();
    return;
  }
  const auto most = size_t(asked_.common.sampling.logprobs);
  std::vector<rt::TokenLogprob> top = token.choice.top;
  top.resize(std::min(top.size(), most));
  if (!std::ranges::count(top, token.choice.token, &rt::TokenLogprob::token))
    top.push_back({token.choice.token, token.choice.logprob});
  w.object();
  for (const rt::TokenLogprob &t : top) {
    JsonWriter name;
    writeTokenText(name, t.token);
    w.key(std::string_view(name.str()).substr(1, name.str().size() - 2));
    w.number(bounded(t.logprob));
  }
  w.end();
}

/// Returns where the next token's text begins, in characters.
int64_t AnswerWriter::writeCompletionLogprobs(JsonWriter &w, const Choice &c) const {
  w.object().key("tokens").array();
  for (const Token &t : c.tokens)
    writeTokenText(w, t.choice.token);
  w.end().key("token_logprobs").array();
  for (const Token &t : c.tokens)
    t.hasLogprob ? w.number(bounded(t.choice.logprob)) : w.null();
  w.end().key("top_logprobs").array();
  for (const Token &t : c.tokens)
    writeTop(w, t);
  w.end().key("text_offset").array();
  int64_t offset = c.textOffset;
  for (const Token &t : c.tokens) {
    w.integer(offset);
    if (model_.tokenizer())
      offset += charactersOf(model_.tokenizer()->tokenBytes(t.choice.token));
  }
  w.end().end();
  return offset;
}

void AnswerWriter::writeChatToken(JsonWriter &w, int32_t token, double logprob) const {
  w.key("token");
  writeTokenText(w, token);
  w.key("logprob").number(bounded(logprob)).key("bytes").array();
  for (const char byte : model_.tokenizer()->tokenBytes(token))
    w.integer(static_cast<unsigned char>(byte));
  w.end();
}

void AnswerWriter::writeChatLogprobs(JsonWriter &w, const Choice &c) const {
  w.object().key("content").array();
  for (const Token &t : c.tokens) {
    w.object();
    writeChatToken(w, t.choice.token, t.choice.logprob);
    w.key("top_logprobs").array();
    for (const rt::TokenLogprob &top : t.choice.top) {
      w.object();
      writeChatToken(w, top.token, top.logprob);
      w.end();
    }
    w.end().end();
  }
  w.end().key("refusal").null().end();
}

/// As vLLM tells them: of each token an object by ids.
void AnswerWriter::writePromptLogprobs(JsonWriter &w, const Choice &c) const {
  auto write = [&](int32_t token, double logprob) {
    w.key(std::to_string(token)).object().key("logprob").number(bounded(logprob));
    w.key("decoded_token");
    writeTokenText(w, token);
    w.end();
  };
  w.key("prompt_logprobs").array();
  for (const Token &t : c.prompt) {
    if (!t.hasLogprob) {
      w.null();
      continue;
    }
    w.object();
    write(t.choice.token, t.choice.logprob);
    for (const rt::TokenLogprob &top : t.choice.top)
      if (top.token != t.choice.token)
        write(top.token, top.logprob);
    w.end();
  }
  w.end();
}

void AnswerWriter::writeCalls(JsonWriter &w, const Choice &c, bool event) const {
  w.key("tool_calls").array();
  for (size_t i = 0; i < c.calls.size(); ++i) {
    w.object();
    if (event)
      w.key("index").integer(c.callsWritten + int64_t(i));
    w.key("id").text(randomId("call_")).key("type").text("function").key("function").object();
    w.key("name").text(c.calls[i].name).key("arguments").text(c.calls[i].arguments).end().end();
  }
  w.end();
}

//===-- whole answers -----------------------------------------------------------------------===//

void AnswerWriter::writeTokenIds(JsonWriter &w, const Choice &c) {
  w.key("token_ids").array();
  for (const int32_t id : c.ids)
    w.integer(id);
  w.end();
}

void AnswerWriter::writeCompletion(JsonWriter &w, size_t index, Choice &c) const {
  w.object().key("index").integer(int64_t(index)).key("text").text(c.text).key("logprobs");
  if (asked_.logprobs())
    c.textOffset = writeCompletionLogprobs(w, c);
  else
    w.null();
  writeEnding(w, c);
  if (!c.prompt.empty())
    writePromptLogprobs(w, c);
  if (asked_.tokenIds)
    writeTokenIds(w, c);
  w.end();
}

void AnswerWriter::writeMessage(JsonWriter &w, size_t index, const Choice &c) const {
  w.object().key("index").integer(int64_t(index)).key("message").object();
  w.key("role").text("assistant").key("content");
  if (c.text.empty() && !c.calls.empty())
    w.null();
  else
    w.text(c.text);
  w.key("refusal").null();
  if (!c.calls.empty())
    writeCalls(w, c, false);
  w.end().key("logprobs");
  if (asked_.logprobs())
    writeChatLogprobs(w, c);
  else
    w.null();
  writeEnding(w, c);
  if (asked_.tokenIds)
    writeTokenIds(w, c);
  w.end();
}

std::string AnswerWriter::whole() const {
  JsonWriter w = headOf(false);
  w.key("choices").array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice c = choices_[i];
    if (asked_.chat)
      writeMessage(w, i, c);
    else
      writeCompletion(w, i, c);
  }
  w.end();
  if (asked_.chat && !choices_[0].prompt.empty())
    writePromptLogprobs(w, choices_[0]);
  if (asked_.tokenIds) {
    w.key("prompt_token_ids").array();
    for (const int32_t id : asked_.prompts[0].tokens)
      w.integer(id);
    w.end();
  }
  writeUsage(w);
  w.end();
  return w.take();
}

//===-- streams -----------------------------------------------------------------------------===//

bool AnswerWriter::isDue(const Choice &c) const {
  if (c.ended || !c.begun)
    return false;
  if (c.ending)
    return true;
  const bool shows = !c.text.empty() || !c.calls.empty() || !c.tokens.empty() || !c.ids.empty();
  return shows && (c.unwritten >= interval_ || !c.written);
}

std::string AnswerWriter::event(size_t index, Choice &c) {
  JsonWriter w = eventHead_;
  w.key("choices").array();
  if (asked_.chat) {
    w.object().key("index").integer(int64_t(index)).key("delta").object();
    if (!c.written)
      w.key("role").text("assistant");
    if (!c.text.empty() || c.calls.empty())
      w.key("content").text(c.text);
    if (!c.calls.empty())
      writeCalls(w, c, true);
    w.end().key("logprobs");
    if (asked_.logprobs())
      writeChatLogprobs(w, c);
    else
      w.null();
    writeEnding(w, c);
    w.end();
  } else {
    writeCompletion(w, index, c);
  }
  w.end();
  if (asked_.eachHasUsage) {
    writeUsage(w, int64_t(promptOf(index).tokens.size()), c.newTokens);
    w.end();
  } else if (asked_.includeUsage) {
    w.key("usage").null();
  }
  w.end();
  c.written = true;
  c.callsWritten += int32_t(c.calls.size());
  c.text.clear();
  c.calls.clear();
  c.tokens.clear();
  c.ids.clear();
  c.prompt.clear();
  c.unwritten = 0;
  c.ended = c.ending.has_value();
  return "data: " + w.take() + "\n\n";
}

std::string AnswerWriter::events() {
  std::string out;
  for (size_t i = 0; i < choices_.size(); ++i)
    if (isDue(choices_[i]))
      out += event(i, choices_[i]);
  return out;
}

std::string AnswerWriter::lastEvents() const {
  std::string out;
  if (asked_.includeUsage) {
    JsonWriter w = eventHead_;
    w.key("choices").array().end();
    writeUsage(w);
    w.end();
    out = "data: " + w.take() + "\n\n";
  }
  return out + "data: [DONE]\n\n";
}

std::string AnswerWriter::failedEvents(const ApiError &error) {
  return "data: " + bodyOf(error) + "\n\ndata: [DONE]\n\n";
}

} // namespace gpt2c::serve
