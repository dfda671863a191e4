// Grammars with the sample's tokenizer: what they let through, and what is refused.
#include "runtime/grammar/Grammar.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <random>
#include <regex>

namespace gpt2c::rt {
namespace {

using Kind = GrammarText::Kind;

const Tokenizer &sampleTokenizer() {
  static const Tokenizer tokenizer =
      Tokenizer::fromFiles(GPT2C_SOURCE_DIR "/examples/sample").take();
  return tokenizer;
}

class GrammarTest : public ::testing::Test {
protected:
  void SetUp() override {
    if (!hasGrammars())
      GTEST_SKIP() << "this build has no XGrammar: scripts/setup.sh --grammar";
  }

  Result<std::shared_ptr<const Constraint>> compile(const GrammarText &what) {
    return compiler_.compile(what);
  }
  std::string complaint(Kind kind, const std::string &text) {
    const auto made = compile({.kind = kind, .text = text});
    EXPECT_FALSE(made) << text;
    EXPECT_EQ(made.status().code(), Code::Usage) << text;
    return made.status().message();
  }

  /// A text of tokens drawn among those that may follow, to its end; empty where it has none within
  /// 400 tokens.
  std::string draw(const Constraint &constraint, unsigned seed) {
    std::mt19937 random(seed);
    const std::unique_ptr<TokenFilter> filter = constraint.begin();
    std::string text;
    std::vector<uint32_t> bits(wordsOfTokens(constraint.vocabulary()));
    for (int n = 0; n < 400; ++n) {
      if (filter->complete())
        return text;
      filter->fill(bits);
      std::vector<int32_t> may;
      for (int32_t id = 0; id < constraint.vocabulary(); ++id)
        if (bits[size_t(id) / 32] >> (id % 32) & 1)
          may.push_back(id);
      if (may.empty()) {
        ADD_FAILURE() << "nothing may follow " << text;
        return text;
      }
      // The end of a string or a list is one of very many tokens: it is preferred.
      int32_t token = may[random() % may.size()];
      for (const int32_t id : may)
        if (random() % 3 == 0 && (sampleTokenizer().tokenBytes(id) == "\"" || id == eos_))
          token = id;
      EXPECT_TRUE(filter->accept(token)) << text;
      if (token != eos_)
        text += sampleTokenizer().tokenBytes(token);
    }
    return {};
  }
  std::vector<std::string> drawn(const GrammarText &what, int count = 20) {
    std::vector<std::string> out;
    const auto made = compile(what);
    EXPECT_TRUE(made) << made.status().message();
    for (int i = 0; made && i < count; ++i)
      if (std::string text = draw(**made, unsigned(i)); !text.empty())
        out.push_back(std::move(text));
    EXPECT_FALSE(out.empty());
    return out;
  }

  int32_t eos_ = sampleTokenizer().eosToken();
  GrammarCompiler compiler_{&sampleTokenizer(), sampleTokenizer().vocabSize() + 7, {eos_}};
};

TEST_F(GrammarTest, TextsFitWhatIsAskedFor) {
  for (const std::string &text : drawn({.kind = Kind::Regex, .text = "[a-c]{2,5}(x|yz)+"}))
    EXPECT_TRUE(std::regex_match(text, std::regex("[a-c]{2,5}(x|yz)+"))) << text;
  const std::vector<std::string> choices = {"yes", "no", "per\"haps\\\n", "\xc3\xa9t\xc3\xa9"};
  for (const std::string &text : drawn({.kind = Kind::Choice, .choices = choices}))
    EXPECT_TRUE(std::ranges::count(choices, text)) << text;
  for (const std::string &text :
       drawn({.kind = Kind::Ebnf, .text = "root ::= \"(\" root? \")\" | \"x\"\n"})) {
    EXPECT_EQ(std::ranges::count(text, '('), std::ranges::count(text, ')')) << text;
  }
  for (const std::string &text : drawn({.kind = Kind::Json})) {
    try {
      EXPECT_TRUE(nlohmann::json::parse(text).is_object()) << text;
    } catch (const nlohmann::json::out_of_range &) {
      // A number that a double has no room for is JSON, too.
    }
  }
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer","maximum":999},
      "b":{"enum":["x","y"]}},"required":["a"]})";
  for (const std::string &text : drawn({.kind = Kind::Schema, .text = schema})) {
    const auto value = nlohmann::json::parse(text);
    EXPECT_TRUE(value.at("a").is_number() && value["a"] <= 999) << text;
    EXPECT_TRUE(!value.contains("b") || value["b"] == "x" || value["b"] == "y") << text;
  }
}

TEST_F(GrammarTest, CallsHaveTheirEnvelope) {
  const GrammarText calls{
      .kind = Kind::Call,
      .calls = {{"<call>{\"name\": \"f\", \"arguments\": ", R"({"type":"boolean"})", "}</call>"},
                {"<call>{\"name\": \"g\", \"arguments\": ", R"({"const":7})", "}</call>"}}};
  for (const std::string &text : drawn(calls, 6))
    EXPECT_TRUE(text == "<call>{\"name\": \"f\", \"arguments\": true}</call>" ||
                text == "<call>{\"name\": \"f\", \"arguments\": false}</call>" ||
                text == "<call>{\"name\": \"g\", \"arguments\": 7}</call>")
        << text;
}

TEST_F(GrammarTest, WhatIsWrongIsToldWithItsPlace) {
  std::string manyRules = "root ::= \"a\"\n";
  for (int i = 0; i < 256; ++i)
    manyRules += "r" + std::to_string(i) + " ::= root\n";
  const std::pair<Kind, std::pair<std::string, std::string>> cases[] = {
      {Kind::Schema, {"{\"type\": ", "column"}},
      {Kind::Schema, {"[1]", "must be an object"}},
      {Kind::Schema, {R"({"type":"strang"})", "strang"}},
      {Kind::Schema, {R"({"properties":{"a":{"not":{}}}})", "/properties/a has the keyword 'not'"}},
      {Kind::Schema, {R"({"type":"array","uniqueItems":true})", "uniqueItems"}},
      {Kind::Schema, {R"({"$ref":"http://x/y"})", "begin with '#'"}},
      {Kind::Schema, {R"({"$ref":"#/$defs/x"})", "x"}},
      {Kind::Schema, {R"({"anyOf":[{}],"type":"object"})", "'type' beside 'anyOf'"}},
      {Kind::Schema, {R"({"type":"number","multipleOf":0.5})", "multipleOf"}},
      {Kind::Schema, {R"({"type":"string","minLength":100000})", "minLength"}},
      {Kind::Schema, {R"({"type":"string","pattern":"(a"})", ""}},
      {Kind::Regex, {"", "empty"}},
      {Kind::Regex, {"(a", ""}},
      {Kind::Regex, {"a{3,2}", ""}},
      {Kind::Regex, {"a{100000}", "byte 1 repeats more than"}},
      {Kind::Regex, {"((a{1000}){1000})", "written out"}},
      {Kind::Regex, {"a(?=b)", ""}},
      {Kind::Ebnf, {"root ::= (", ""}},
      {Kind::Ebnf, {"start ::= \"a\"", "root"}},
      {Kind::Ebnf, {"root ::= other", "other"}},
      {Kind::Ebnf, {manyRules, "more than 256 rules"}}};
  for (const auto &[kind, what] : cases)
    EXPECT_NE(complaint(kind, what.first).find(what.second), std::string::npos)
        << what.first << ": " << complaint(kind, what.first);
  std::string deep;
  for (int i = 0; i < 40; ++i)
    deep += R"({"items":)";
  EXPECT_NE(complaint(Kind::Schema, deep + "{}" + std::string(40, '}')).find("deeper"),
            std::string::npos);
  EXPECT_NE(complaint(Kind::Regex, std::string(70'000, 'a')).find("bytes"), std::string::npos);
  EXPECT_FALSE(compile({.kind = Kind::Choice}));
  EXPECT_FALSE(compile({.kind = Kind::Choice, .choices = {"a", ""}}));
}

TEST_F(GrammarTest, OneTextIsCompiledOnce) {
  const GrammarText what{.kind = Kind::Schema, .text = R"({"type":"integer"})"};
  const auto first = compile(what), second = compile(what);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
  GrammarCompiler small(&sampleTokenizer(), sampleTokenizer().vocabSize(), {eos_},
                        {.cacheBytes = 1});
  const auto held = small.compile(what);
  ASSERT_TRUE(small.compile({.kind = Kind::Regex, .text = "a+"}));
  EXPECT_NE(*small.compile(what), *held); // it was forgotten
}

TEST_F(GrammarTest, WhatTakesTooMuchIsRefusedAndRemembered) {
  const GrammarText what{.kind = Kind::Schema, .text = R"({"type":"integer"})"};
  for (const auto &[limits, said] : std::initializer_list<std::pair<GrammarLimits, const char *>>{
           {{.compileSeconds = 0}, "to compile it takes"},
           {{.grammarBytes = 1}, "compiled it has"},
           {{.maskSeconds = 0}, "to find what may follow takes"}}) {
    GrammarCompiler small(&sampleTokenizer(), sampleTokenizer().vocabSize(), {eos_}, limits);
    const auto first = small.compile(what), second = small.compile(what);
    ASSERT_FALSE(first);
    ASSERT_FALSE(second);
    EXPECT_EQ(first.status().code(), Code::Usage);
    EXPECT_NE(first.status().message().find(said), std::string::npos) << first.status().message();
    EXPECT_EQ(first.status().message(), second.status().message()) << "it was not tried again";
  }
}

TEST(GrammarWithoutTokenizer, IsRefused) {
  GrammarCompiler none(nullptr, 10, {});
  const auto made = none.compile({.kind = Kind::Json});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.status().code(), hasGrammars() ? Code::Usage : Code::Unsupported);
}

} // namespace
} // namespace gpt2c::rt
