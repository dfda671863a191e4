#include "server/requests/ToolCalls.h"

#include <gtest/gtest.h>

#include <random>

namespace gpt2c::serve {
namespace {

/// Content and calls as one text.
std::string parted(ToolFormat format, std::string_view text, std::mt19937 *random = nullptr) {
  ToolStream stream(format);
  std::string content, calls;
  auto add = [&](const ToolStream::Piece &piece) {
    content += piece.content;
    for (const ToolCall &call : piece.calls)
      calls += "|" + call.name + call.arguments;
  };
  while (!text.empty()) {
    const size_t n = random ? 1 + (*random)() % 3 : text.size();
    add(stream.push(text.substr(0, n)));
    text.remove_prefix(std::min(n, text.size()));
  }
  add(stream.finish());
  return content + calls;
}

struct Case {
  ToolFormat format;
  const char *text, *parts;
};
const Case kCases[] = {
    {ToolFormat::None, "<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>"},
    {ToolFormat::Hermes, "no <tool of mine <", "no <tool of mine <"},
    {ToolFormat::Hermes,
     "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, 0.5], \"y\": \"}\"}}\n"
     "</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\n",
     "I look.\n|f{\"x\":[1,0.5],\"y\":\"}\"}|g{}"},
    {ToolFormat::Hermes, "<tool_call>{\"name\": 3}</tool_call>!",
     "<tool_call>{\"name\": 3}</tool_call>!"},
    {ToolFormat::Hermes, "<tool_call>{\"name\": \"f\", \"argu",
     "<tool_call>{\"name\": \"f\", \"argu"},
    {ToolFormat::Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}", "|f{}"},
    {ToolFormat::Llama3, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "|f{\"a\":\"b\"}"},
    {ToolFormat::Llama3,
     "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
     "|f{}|g{}"},
    {ToolFormat::Llama3, "{\"a\": 1}", "{\"a\": 1}"},
    {ToolFormat::Llama3, "Here: {\"name\": \"f\", \"parameters\": {}}",
     "Here: {\"name\": \"f\", \"parameters\": {}}"},
    {ToolFormat::Llama3, " <|py", " <|py"},
    {ToolFormat::Mistral,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": "
     "\"g\", \"arguments\": {}}]",
     "|f{\"a\":1}|g{}"},
    {ToolFormat::Mistral, "[TOOL_CALLS]f[ARGS]{\"a\": {\"b\": 2}}[TOOL_CALLS]g{}",
     "|f{\"a\": {\"b\": 2}}|g{}"},
    {ToolFormat::Mistral, "a [TOOL_", "a [TOOL_"},
    {ToolFormat::Mistral, "[TOOL_CALLS] nothing", "[TOOL_CALLS] nothing"},
};

TEST(ToolCalls, AreToldFromContent) {
  for (const Case &c : kCases)
    EXPECT_EQ(parted(c.format, c.text), c.parts);
}

TEST(ToolCalls, AnyPiecesGiveTheSame) {
  std::mt19937 random(5);
  for (const Case &c : kCases)
    for (int i = 0; i < 50; ++i)
      ASSERT_EQ(parted(c.format, c.text, &random), c.parts);
}

// What is no call is content, byte for byte.
TEST(ToolCalls, NothingIsLost) {
  std::mt19937 random(6);
  const char *words[] = {
      "<tool_call>", "</tool_call>",  "[TOOL_CALLS]", "{\"name\":", "{", "}", "[", "\"", " ",
      "f",           "<|python_tag|>"};
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (int n = int(random() % 8); n > 0; --n)
      text += words[random() % std::size(words)];
    for (ToolFormat f : {ToolFormat::Hermes, ToolFormat::Llama3, ToolFormat::Mistral}) {
      const std::string parts = parted(f, text, &random);
      EXPECT_EQ(parts, parted(f, text));
      EXPECT_EQ(parts, text) << "none of these is a call";
    }
  }
}

TEST(ToolCalls, TheTemplateSaysTheForm) {
  EXPECT_EQ(toolFormatOf("{{ '<tool_call>' }}"), ToolFormat::Hermes);
  EXPECT_EQ(toolFormatOf("[TOOL_CALLS]"), ToolFormat::Mistral);
  EXPECT_EQ(toolFormatOf("{{ '<|python_tag|>' }}"), ToolFormat::Llama3);
  EXPECT_EQ(toolFormatOf("{{ messages }}"), ToolFormat::None);
}

} // namespace
} // namespace gpt2c::serve
