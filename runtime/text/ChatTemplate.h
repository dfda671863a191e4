// A chat as a prompt, by the model's template: Jinja as templates of chats have it, read and run by
// an interpreter of our own. Templates are untrusted: they see the data that they are given and
// nothing else, and their steps, their depth and the length of their text are bounded.
#pragma once

#include "runtime/Status.h"

#include <nlohmann/json_fwd.hpp>

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

namespace gpt2c::rt {

/// Of the language: text, {{ }}, {# #}, if, for with its loop, else, break and continue, set,
/// macro, call, filter, raw and generation blocks; Jinja's expressions, filters and tests; the
/// methods of Python's texts, lists and dicts that change nothing; range, dict, namespace,
/// raise_exception, strftime_now. Line ends and white space as with trim_blocks and lstrip_blocks.
class ChatTemplate {
public:
  /// Error: Unsupported, with the line.
  static Result<ChatTemplate> parse(std::string_view source);

  ChatTemplate(ChatTemplate &&) noexcept;
  ChatTemplate &operator=(ChatTemplate &&) noexcept;
  ~ChatTemplate();

  /// The text for `context`, a JSON object with what the template names: "messages", "tools",
  /// "add_generation_prompt", "bos_token". `now` is what strftime_now tells. Errors: Usage for a
  /// context that is no JSON object, and where the template refuses it or fails. Thread-safe.
  Result<std::string> render(std::string_view context, std::time_t now = std::time(nullptr)) const;
  /// The same for a context that is JSON already; its texts may be any bytes.
  Result<std::string> render(const nlohmann::ordered_json &context,
                             std::time_t now = std::time(nullptr)) const;

private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

} // namespace gpt2c::rt
