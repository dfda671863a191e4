#include "runtime/text/Chat.h"

#include <nlohmann/json.hpp>

namespace gpt2c::rt {

using Json = nlohmann::ordered_json;

constexpr const char *kUsual = "default", *kForTools = "tool_use";

Result<Chat> Chat::of(const Tokenizer &tokenizer, std::string_view source) {
  Chat chat(tokenizer);
  auto add = [&](const std::string &name, std::string_view text) -> Status {
    Result<ChatTemplate> parsed = ChatTemplate::parse(text);
    if (parsed)
      chat.templates_.emplace(name, parsed.take());
    return parsed.status();
  };
  if (!source.empty()) {
    if (Status s = add(kUsual, source); !s.ok())
      return s;
    return chat;
  }
  for (const NamedText &known : tokenizer.texts().chatTemplates)
    if (Status s = add(known.name, known.text); !s.ok())
      return s;
  if (chat.templates_.empty())
    return {Code::Unsupported,
            "the plan has no chat template: beside its model was none, in tokenizer_config.json or "
            "chat_template.jinja. Give one (gpt2c-run --chat-template=FILE), or have a text "
            "continued instead"};
  return chat;
}

/// The context of a template. Error: `more` is no JSON object.
static Result<Json> contextOf(const ModelTexts &texts, std::span<const ChatMessage> messages,
                              std::string_view more) {
  Json list = Json::array();
  for (const ChatMessage &m : messages)
    list.push_back({{"role", m.role}, {"content", m.content}});
  Json context{{"messages", std::move(list)},
               {"tools", nullptr},
               {"documents", nullptr},
               {"add_generation_prompt", true}};
  for (const NamedText &token : texts.specialTokens)
    context[token.name] = token.text;
  if (!more.empty()) {
    const Json given = Json::parse(more, nullptr, false);
    if (!given.is_object())
      return {Code::Usage, "what a chat template is given beside messages is no JSON object"};
    context.update(given);
  }
  if (!context["messages"].is_array() || context["messages"].empty())
    return {Code::Usage, "a conversation has no message"};
  return context;
}

Result<std::string> Chat::text(std::span<const ChatMessage> messages, std::string_view more) const {
  Result<Json> context = contextOf(tokenizer_->texts(), messages, more);
  if (!context)
    return context.status();
  auto known = templates_.end();
  if (!(*context)["tools"].is_null())
    known = templates_.find(kForTools);
  if (known == templates_.end())
    known = templates_.find(kUsual);
  if (known == templates_.end())
    known = templates_.begin();
  return known->second.render(*context);
}

Result<std::vector<std::int32_t>> Chat::tokens(std::span<const ChatMessage> messages,
                                               std::string_view more) const {
  const Result<std::string> prompt = text(messages, more);
  if (!prompt)
    return prompt.status();
  return tokenizer_->encode(*prompt, {.allowSpecial = true, .addBos = AddBos::No});
}

} // namespace gpt2c::rt
