// What gpt2c-run -i keeps between turns: one text that grows, or a chat.
#pragma once

#include "runtime/device/Rows.h"
#include "runtime/text/Chat.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c {

/// Turns of the user's and answers of the model's, one after the other.
class Dialogue {
public:
  virtual ~Dialogue() = default;

  /// Adds what the user says. False where there is nothing to answer yet.
  virtual bool say(std::string_view text) = 0;
  /// What the model goes on with. Usage where it cannot, because of what was said.
  virtual rt::Result<rt::Tokens> prompt() const = 0;
  /// Adds the model's answer.
  virtual void answer(std::string_view text) = 0;
  /// Takes back the last turn that has no answer.
  virtual void takeBack() = 0;
  /// Takes back the last answer; false where the last turn has none.
  virtual bool reopen() = 0;
  virtual void clear() = 0;
  /// The system prompt from now on, empty: none. Usage where there is no place for one.
  virtual rt::Status instruct(std::string_view system) = 0;
};

/// A text; `tokenizer` outlives it.
std::unique_ptr<Dialogue> textDialogue(const rt::Tokenizer &tokenizer, rt::AddBos addBos);
std::unique_ptr<Dialogue> chatDialogue(rt::Chat chat, std::string system);

/// The chat of a system prompt, where it is not empty, and a first turn.
std::vector<rt::ChatMessage> openingOf(const std::string &system, std::string_view turn);

} // namespace gpt2c
