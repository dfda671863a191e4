// Conversations as prompts: which template, what it sees, which tokens come of it.
#include "runtime/text/Chat.h"
#include "tests/unit/runtime/engine/RandomModel.h"

#include <gtest/gtest.h>

namespace gpt2c::rt {
namespace {

Tokenizer tokenizerWith(std::vector<NamedText> templates) {
  Tokenizer tokenizer = test::randomTokenizer();
  ModelTexts texts = tokenizer.texts();
  texts.chatTemplates = std::move(templates);
  texts.specialTokens = {{"bos_token", "<s>"}, {"eos_token", "<|endoftext|>"}};
  tokenizer.setTexts(std::move(texts));
  return tokenizer;
}

std::string rendered(const Tokenizer &tokenizer, std::vector<ChatMessage> messages,
                     std::string_view more = {}, std::string_view source = {}) {
  Result<Chat> chat = Chat::of(tokenizer, source);
  if (!chat)
    return "! " + chat.status().message();
  Result<std::string> text = chat->text(messages, more);
  return text ? *text : "! " + text.status().message();
}

constexpr const char *kPlain = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
                               "{% endfor %}{% if add_generation_prompt %}>{% endif %}";

TEST(ChatTest, TheTemplateSeesTheConversation) {
  const Tokenizer t = tokenizerWith({{"default", kPlain}});
  EXPECT_EQ(rendered(t, {{"system", "S"}, {"user", "é\"\n"}}), "<s>[system]S[user]é\"\n>");
  EXPECT_EQ(rendered(t, {{"user", "a"}}, R"({"add_generation_prompt": false})"), "<s>[user]a");
  EXPECT_EQ(rendered(t, {}, R"({"messages": [{"role": "x", "content": "y"}]})"), "<s>[x]y>");
  EXPECT_EQ(rendered(t, {{"user", "a"}}, "", "{{ tools is none }} {{ eos_token }}"),
            "True <|endoftext|>");
  EXPECT_EQ(rendered(t, {{"user", "bytes \xff"}}), "<s>[user]bytes \xff>");
}

TEST(ChatTest, ToolsHaveATemplateOfTheirOwn) {
  const Tokenizer t = tokenizerWith({{"tool_use", "{{ tools | length }} tools"}, {"default", "-"}});
  EXPECT_EQ(rendered(t, {{"user", "a"}}), "-");
  EXPECT_EQ(rendered(t, {{"user", "a"}}, R"({"tools": [{}, {}]})"), "2 tools");
  EXPECT_EQ(rendered(tokenizerWith({{"rag", "only one"}}), {{"user", "a"}}), "only one");
}

TEST(ChatTest, RefusalsSayWhy) {
  using ::testing::IsSubstring;
  const Tokenizer t = tokenizerWith({{"default", "{{ raise_exception('odd roles') }}"}});
  EXPECT_PRED_FORMAT2(IsSubstring, "odd roles", rendered(t, {{"user", "a"}}));
  EXPECT_PRED_FORMAT2(IsSubstring, "no message", rendered(t, {}));
  EXPECT_PRED_FORMAT2(IsSubstring, "no message", rendered(t, {}, R"({"messages": 3})"));
  for (const char *more : {"[]", "{", "3"})
    EXPECT_PRED_FORMAT2(IsSubstring, "no JSON object", rendered(t, {{"user", "a"}}, more)) << more;
  const Result<Chat> none = Chat::of(tokenizerWith({}));
  EXPECT_EQ(none.status().code(), Code::Unsupported);
  EXPECT_PRED_FORMAT2(IsSubstring, "--chat-template", none.status().message());
  EXPECT_EQ(Chat::of(t, "{% for %}").status().code(), Code::Unsupported);
}

TEST(ChatTest, SpecialTokensAreTokensAndNothingIsAdded) {
  const Tokenizer t = tokenizerWith({{"default", "{{ messages[0].content }}{{ eos_token }}"}});
  Result<Chat> chat = Chat::of(t);
  ASSERT_TRUE(chat);
  const std::vector<ChatMessage> messages{{"user", "ab"}};
  Result<Tokens> tokens = chat->tokens(messages);
  ASSERT_TRUE(tokens) << tokens.status().message();
  EXPECT_EQ(*tokens, (Tokens{t.find("ab"), test::kRandomEos}));
}

} // namespace
} // namespace gpt2c::rt
