// A conversation as the prompt that the model's own chat template makes of it.
#pragma once

#include "runtime/text/ChatTemplate.h"
#include "runtime/text/tokenizer/Tokenizer.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

struct ChatMessage {
  std::string role; ///< "system", "user", "assistant", or what else the template knows
  std::string content;
  bool operator==(const ChatMessage &) const = default;
};

/// All const methods are thread-safe.
class Chat {
public:
  /// By the templates that the tokenizer came with, or by `source` where that is not empty.
  /// `tokenizer` outlives the chat. Errors: Unsupported where there is no template, and for a
  /// source that cannot be read.
  static Result<Chat> of(const Tokenizer &tokenizer, std::string_view source = {});

  /// The prompt whose continuation is the next message. The template sees "messages",
  /// "add_generation_prompt" (true), "tools" and "documents" (none) and the model's special tokens;
  /// `more`, a JSON object or empty, has what else it reads, or replaces these. With "tools" a
  /// template named "tool_use" is taken, where there is one. Errors: Usage, for `more`, for no
  /// message, and where the template refuses the conversation.
  Result<std::string> text(std::span<const ChatMessage> messages, std::string_view more = {}) const;

  /// The tokens of text(): names of special tokens are those tokens, also within messages, and
  /// nothing is added around it.
  Result<std::vector<std::int32_t>> tokens(std::span<const ChatMessage> messages,
                                           std::string_view more = {}) const;

private:
  explicit Chat(const Tokenizer &tokenizer) : tokenizer_(&tokenizer) {}

  const Tokenizer *tokenizer_;
  std::map<std::string, ChatTemplate, std::less<>> templates_; ///< by name, one at least
};

} // namespace gpt2c::rt
