#include "ServiceToy.h"

#include "server/AnswerWriter.h"
#include "server/http/Fields.h"

namespace gpt2c::serve {
namespace {

namespace json = boost::json;

constexpr std::string_view kAnswer =
    "I look.<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>\n"
    "<tool_call>{\"name\": \"g\"}</tool_call>";

GenerationRequest chat(const Model &model, ToolFormat tools) {
  GenerationRequest r;
  r.chat = true;
  r.stream = true;
  r.prompts = {{{1, 2}, "ab"}};
  r.tools = tools;
  r.model = model.names().front();
  return r;
}

/// An answer in pieces of so many bytes; the last update has the ending.
std::vector<rt::Update> updates(std::string_view text, size_t piece) {
  std::vector<rt::Update> out;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size())))
    out.push_back({.choice = rt::Choice{.token = 1}, .text = std::string(text.substr(0, piece))});
  out.back().ending = rt::Ending{.reason = rt::Finish::Stop, .newTokens = int32_t(out.size())};
  return out;
}

void expectCall(const json::value &call, const char *name, const char *arguments) {
  EXPECT_TRUE(textOf(call.at("id")).starts_with("call_"));
  EXPECT_EQ(textOf(call.at("type")), "function");
  EXPECT_EQ(textOf(call.at("function").at("name")), name);
  EXPECT_EQ(textOf(call.at("function").at("arguments")), arguments);
}

TEST(AnswerWriter, CallsOfToolsAreTold) {
  const auto model = toy::model();
  AnswerWriter writer(*model, chat(*model, ToolFormat::Hermes), 1);
  for (const rt::Update &update : updates(kAnswer, 5))
    writer.take(0, update);
  const json::value choice = json::parse(writer.whole()).at("choices").at(0);
  EXPECT_EQ(textOf(choice.at("finish_reason")), "tool_calls");
  EXPECT_EQ(textOf(choice.at("message").at("content")), "I look.");
  ASSERT_EQ(choice.at("message").at("tool_calls").get_array().size(), 2u);
  expectCall(choice.at("message").at("tool_calls").at(0), "f", "{\"x\":1}");
  expectCall(choice.at("message").at("tool_calls").at(1), "g", "{}");
}

TEST(AnswerWriter, CallsAreEventsOnceTheyAreWhole) {
  const auto model = toy::model();
  AnswerWriter writer(*model, chat(*model, ToolFormat::Hermes), 1);
  std::string body, content;
  for (const rt::Update &update : updates(kAnswer, 3)) {
    writer.take(0, update);
    body += writer.events();
  }
  body += writer.lastEvents();
  std::vector<json::value> calls;
  std::string reason;
  for (const json::value &event : toy::eventsOf(body)) {
    const json::value &choice = event.at("choices").at(0);
    const json::object &delta = choice.at("delta").get_object();
    if (delta.contains("content"))
      content += textOf(delta.at("content"));
    if (delta.contains("tool_calls"))
      for (const json::value &call : delta.at("tool_calls").get_array())
        calls.push_back(call);
    if (choice.at("finish_reason").is_string())
      reason = textOf(choice.at("finish_reason"));
  }
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(reason, "tool_calls");
  ASSERT_EQ(calls.size(), 2u);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(calls[size_t(i)].at("index").to_number<int>(), i);
  expectCall(calls[0], "f", "{\"x\":1}");
  expectCall(calls[1], "g", "{}");
}

TEST(AnswerWriter, WithoutToolsACallIsText) {
  const auto model = toy::model();
  AnswerWriter writer(*model, chat(*model, ToolFormat::None), 1);
  for (const rt::Update &update : updates(kAnswer, 7))
    writer.take(0, update);
  const json::value choice = json::parse(writer.whole()).at("choices").at(0);
  EXPECT_EQ(textOf(choice.at("message").at("content")), kAnswer);
  EXPECT_EQ(textOf(choice.at("finish_reason")), "stop");
  EXPECT_FALSE(choice.at("message").get_object().contains("tool_calls"));
}

TEST(AnswerWriter, CharactersAreCounted) {
  EXPECT_EQ(charactersOf(""), 0);
  EXPECT_EQ(charactersOf("a\xC3\xA9\xE2\x82\xAC"), 3);
  EXPECT_EQ(charactersOf("\xE2\x82"), 2);
}

} // namespace
} // namespace gpt2c::serve
