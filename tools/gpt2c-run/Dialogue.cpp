#include "tools/gpt2c-run/Dialogue.h"

namespace gpt2c {

namespace {

constexpr const char *kSystem = "system", *kUser = "user", *kAssistant = "assistant";

class TextDialogue : public Dialogue {
public:
  TextDialogue(const rt::Tokenizer &tokenizer, rt::AddBos addBos)
      : tokenizer_(tokenizer), addBos_(addBos) {}

  bool say(std::string_view text) override {
    if (text.empty() && text_.empty())
      return false;
    turnBegin_ = text_.size();
    if (!text_.empty() && !text.empty())
      text_ += "\n";
    text_ += text;
    answerBegin_ = text_.size();
    hasAnswer_ = false;
    return true;
  }
  rt::Result<rt::Tokens> prompt() const override {
    return tokenizer_.encode(text_, {.addBos = addBos_});
  }
  void answer(std::string_view text) override {
    text_ += text;
    hasAnswer_ = true;
  }
  void takeBack() override { text_.resize(turnBegin_); }
  bool reopen() override {
    if (!hasAnswer_)
      return false;
    text_.resize(answerBegin_);
    hasAnswer_ = false;
    return true;
  }
  void clear() override {
    text_.clear();
    hasAnswer_ = false;
  }
  rt::Status instruct(std::string_view) override {
    return {rt::Code::Usage, "a text has no system prompt; a chat has one, which --chat begins"};
  }

private:
  const rt::Tokenizer &tokenizer_;
  rt::AddBos addBos_;
  std::string text_;                       ///< all turns
  size_t turnBegin_ = 0, answerBegin_ = 0; ///< of the last turn and its answer
  bool hasAnswer_ = false;
};

class ChatDialogue : public Dialogue {
public:
  ChatDialogue(rt::Chat chat, std::string system)
      : chat_(std::move(chat)), system_(std::move(system)) {}

  bool say(std::string_view text) override {
    if (text.empty())
      return false;
    messages_.push_back({kUser, std::string(text)});
    return true;
  }
  rt::Result<rt::Tokens> prompt() const override {
    std::vector<rt::ChatMessage> all = messages_;
    if (!system_.empty())
      all.insert(all.begin(), {kSystem, system_});
    return chat_.tokens(all);
  }
  void answer(std::string_view text) override {
    messages_.push_back({kAssistant, std::string(text)});
  }
  void takeBack() override { messages_.pop_back(); }
  bool reopen() override {
    if (messages_.empty() || messages_.back().role != kAssistant)
      return false;
    messages_.pop_back();
    return true;
  }
  void clear() override { messages_.clear(); }
  rt::Status instruct(std::string_view system) override {
    system_ = system;
    return {};
  }

private:
  rt::Chat chat_;
  std::string system_;
  std::vector<rt::ChatMessage> messages_; ///< behind the system prompt
};

} // namespace

std::unique_ptr<Dialogue> textDialogue(const rt::Tokenizer &tokenizer, rt::AddBos addBos) {
  return std::make_unique<TextDialogue>(tokenizer, addBos);
}

std::unique_ptr<Dialogue> chatDialogue(rt::Chat chat, std::string system) {
  return std::make_unique<ChatDialogue>(std::move(chat), std::move(system));
}

std::vector<rt::ChatMessage> openingOf(const std::string &system, std::string_view turn) {
  std::vector<rt::ChatMessage> messages;
  if (!system.empty())
    messages.push_back({kSystem, system});
  messages.push_back({kUser, std::string(turn)});
  return messages;
}

} // namespace gpt2c
