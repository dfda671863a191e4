// Answers in OpenAI's forms, whole or as events of a stream, from what the engine tells of each
// choice.
#pragma once

#include "server/http/Json.h"
#include "server/requests/GenerationRequest.h"

#include <optional>
#include <string>
#include <vector>

namespace gpt2c::serve {

class AnswerWriter {
public:
  AnswerWriter(const Model &model, GenerationRequest asked, int32_t streamInterval);

  const GenerationRequest &asked() const { return asked_; }

  /// Takes the next of a choice.
  void take(size_t choice, const rt::Update &update);

  /// The whole answer, behind the last update of each choice.
  std::string whole() const;
  /// The events of what came since the last call, which may be none.
  std::string events();
  /// What ends a stream.
  std::string lastEvents() const;
  /// The same where the answer failed.
  static std::string failedEvents(const ApiError &error);

  int64_t promptTokens() const;
  int64_t newTokens() const;
  int64_t cachedTokens() const;

private:
  struct Token {
    rt::Choice choice; ///< a token without a logprob where it is the first of a prompt
    bool hasLogprob = true;
  };
  /// Of a choice: what has come and, of a stream, was not written yet.
  struct Choice {
    std::string text;
    std::vector<ToolCall> calls;
    std::vector<Token> tokens; ///< with log probabilities where these are asked for
    std::vector<int32_t> ids;  ///< where token ids are asked for
    std::vector<Token> prompt; ///< where its log probabilities are asked for
    std::optional<rt::Ending> ending;
    ToolStream tools{ToolFormat::None};
    int64_t newTokens = 0; ///< so far
    int32_t unwritten = 0; ///< of these
    int64_t textOffset = 0;
    int32_t callsWritten = 0; ///< of earlier events
    bool begun = false, called = false;
    bool written = false, ended = false; ///< the first event was, the last one was
  };

  const Prompt &promptOf(size_t choice) const { return asked_.prompts[choice / size_t(asked_.n)]; }
  bool isDue(const Choice &c) const;
  std::string finishReason(const Choice &c) const;
  JsonWriter headOf(bool event) const;
  void writeEnding(JsonWriter &w, const Choice &c) const;
  static void writeUsage(JsonWriter &w, int64_t promptTokens, int64_t newTokens);
  void writeUsage(JsonWriter &w) const;
  void writeTokenText(JsonWriter &w, int32_t token) const;
  void writeTop(JsonWriter &w, const Token &token) const;
  int64_t writeCompletionLogprobs(JsonWriter &w, const Choice &c) const;
  void writeChatLogprobs(JsonWriter &w, const Choice &c) const;
  void writeChatToken(JsonWriter &w, int32_t token, double logprob) const;
  void writePromptLogprobs(JsonWriter &w, const Choice &c) const;
  void writeCalls(JsonWriter &w, const Choice &c, bool event) const;
  static void writeTokenIds(JsonWriter &w, const Choice &c);
  void writeCompletion(JsonWriter &w, size_t index, Choice &c) const;
  void writeMessage(JsonWriter &w, size_t index, const Choice &c) const;
  std::string event(size_t index, Choice &c);

  const Model &model_;
  const GenerationRequest asked_;
  const int32_t interval_;
  const std::string id_;
  const int64_t created_;
  const JsonWriter eventHead_; ///< what all events begin with
  std::vector<Choice> choices_;
};

/// Characters of a text, a byte that is no UTF-8 being one.
int64_t charactersOf(std::string_view text);

} // namespace gpt2c::serve
