#include "runtime/text/ChatTemplate.h"

#include <gtest/gtest.h>

namespace gpt2c::rt {
namespace {

using ::testing::IsSubstring;

std::string rendered(std::string_view source, std::string_view context = "{}") {
  Result<ChatTemplate> chat = ChatTemplate::parse(source);
  if (!chat)
    return "! " + chat.status().message();
  Result<std::string> text = chat->render(context, 1'700'000'000);
  return text ? *text : "! " + text.status().message();
}

TEST(ChatTemplateTest, ChatMl) {
  const char *source = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m.content + "
                       "'<|im_end|>\n' }}{% endfor %}"
                       "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  EXPECT_EQ(rendered(source, R"({"messages": [{"role": "user", "content": "Hi é"}],
                                 "add_generation_prompt": true})"),
            "<|im_start|>user\nHi é<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplateTest, WhiteSpaceOfBlocks) {
  EXPECT_EQ(rendered("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(rendered("a\n  {%- if true -%}\n  b\n  {%- endif +%}\nc"), "a"
                                                                       "b\nc");
  EXPECT_EQ(rendered("{# x #}\n{{ 'y' }}\n {{- 'z' -}} \n!"), "y"
                                                              "z!");
  EXPECT_EQ(rendered("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
}

TEST(ChatTemplateTest, ValuesPrintAsInPython) {
  EXPECT_EQ(rendered("{{ [1, 1.0, true, none, 'a', \"it's\", {'b': (1,)}] }}"),
            "[1, 1.0, True, None, 'a', \"it's\", {'b': (1,)}]");
  EXPECT_EQ(rendered("{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 7 / 2 }}"),
            "0.30000000000000004 1e+16 -4 2 3.5");
  EXPECT_EQ(rendered("{{ x | tojson }}", R"({"x": {"b": "é\n\"<", "a": [1.5, null]}})"),
            R"({"b": "é\n\"<", "a": [1.5, null]})");
  EXPECT_EQ(rendered("{{ {'a': [1, {}]} | tojson(indent=2) }}"),
            "{\n  \"a\": [\n    1,\n    {}\n  ]\n}");
  EXPECT_EQ(rendered("{{ strftime_now('%Y') }}"), "2023");
}

TEST(ChatTemplateTest, ErrorsNameTheLine) {
  EXPECT_EQ(rendered("a\n{{ raise_exception('No system') }}"),
            "! the chat template, line 2: No system");
  EXPECT_PRED_FORMAT2(IsSubstring, "line 3: the filter nope is not known",
                      rendered("\n\n{{ 1 | nope }}"));
  EXPECT_PRED_FORMAT2(IsSubstring, "has no \"b\"", rendered("{{ a.b }}"));
  for (const char *value : {"'ab'", "1.5", "none", "[1]", "range"})
    EXPECT_PRED_FORMAT2(IsSubstring, "has no items",
                        rendered(std::string("{{ ") + value + " | items }}"));
  for (const char *broken :
       {"{% if x %}", "{{ 1 + }}", "{% endif %}", "{{ 'a }}", "{% include 'x' %}",
        "{% for x %}{% endfor %}", "{{ (1 }}", "{# x", "{% break %}"})
    EXPECT_FALSE(ChatTemplate::parse(broken).ok()) << broken;
  EXPECT_EQ(rendered("x", "[]"), "! what a chat template is given is no JSON object");
  EXPECT_PRED_FORMAT2(IsSubstring, "is no JSON", rendered("x", "{"));
}

TEST(ChatTemplateTest, NothingBeyondDataIsSeen) {
  for (const char *name : {"__class__", "__init__", "append", "format", "mro"})
    EXPECT_EQ(rendered(std::string("{{ 'a'.") + name + " is defined }}"), "False") << name;
  EXPECT_PRED_FORMAT2(IsSubstring, "cannot be called", rendered("{{ [].append(1) }}"));
}

// Each would go on for ever, or fill the memory.
TEST(ChatTemplateTest, WorkIsBounded) {
  const char *const costly[] = {
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 99999999999 }}",
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}"
      "{% endfor %}",
      "{{ range(1000000000) }}",
      "{{ 2 ** 3 ** 9 ** 9 }}",
      "{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}",
  };
  for (const char *source : costly)
    EXPECT_TRUE(rendered(source).starts_with("! ")) << source;
  EXPECT_FALSE(ChatTemplate::parse("{{ " + std::string(5000, '(')).ok());
  EXPECT_FALSE(ChatTemplate::parse("{{ " + std::string(5000, '-') + "1 }}").ok());
  std::string deep;
  for (int i = 0; i < 5000; ++i)
    deep += "{% if 1 %}";
  EXPECT_FALSE(ChatTemplate::parse(deep).ok());
}

} // namespace
} // namespace gpt2c::rt
