// Steps of a tokenizer, and the files of other formats: what the `tokenizers`, `sentencepiece` and
// `tiktoken` packages give is compared at large by tests/tokenizers.
#include "runtime/text/tokenizer/Normalizer.h"
#include "runtime/text/tokenizer/Tokenizer.h"
#include "runtime/text/unicode/Regex.h"
#include "runtime/text/unicode/RegexSyntax.h"

#include "TokenizerToy.h"

#include <gtest/gtest.h>

namespace gpt2c::rt::test {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

/// A tokenizer of characters, tokens <0xNN> and merges, as Llama 2 has it.
Json spaced() {
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", unsigned(byte));
    vocab[name] = 3 + byte;
  }
  for (const char *name : {"▁", "a", "b", "c", "ab", "▁ab", "▁c"})
    vocab[name] = vocab.size();
  Json added = Json::array();
  for (const char *name : {"<unk>", "<s>", "</s>"})
    added.push_back({{"id", vocab[name]}, {"content", name}, {"special", true}});
  return {{"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "▁"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"added_tokens", added},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", {"a b", "▁ ab", "▁ c"}}}}};
}

class TokenizerKindsTest : public ::testing::Test {
protected:
  Tokenizer load(const Json &root) {
    folder.write("tokenizer.json", root.dump());
    return loadFolder();
  }
  Tokenizer loadFolder() {
    Result<Tokenizer> result = Tokenizer::fromFiles(folder.path());
    EXPECT_TRUE(result.ok()) << result.status().message();
    // Through a plan's form, too.
    const std::string blob = result->serialize();
    Result<Tokenizer> again =
        Tokenizer::fromBytes({reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()});
    EXPECT_TRUE(again.ok()) << again.status().message();
    return again.take();
  }
  TemporaryFolder folder;
};

TEST_F(TokenizerKindsTest, BytesStandForUnknownCharacters) {
  const Json root = spaced();
  const Tokenizer tokenizer = load(root);
  auto id = [&](const char *name) { return root["model"]["vocab"][name].get<int>(); };
  EXPECT_EQ(tokenizer.encode("ab c"), (Ids{id("▁ab"), id("▁c")}));
  EXPECT_EQ(tokenizer.encode("é"), (Ids{id("▁"), id("<0xC3>"), id("<0xA9>")}));
  EXPECT_EQ(tokenizer.encode("ab", {.addBos = AddBos::Auto}), (Ids{1, id("▁ab")}));
  EXPECT_EQ(tokenizer.encode("a</s>b"), (Ids{id("▁"), id("a"), 2, id("▁"), id("b")}));
  EXPECT_EQ(tokenizer.encode("\xFF"), (Ids{id("▁"), id("<0xFF>")}));
  EXPECT_EQ(tokenizer.eosToken(), 2);
  // A text of its own loses the space that marks its beginning; what continues one keeps it.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab c é")), "ab c é");
  EXPECT_EQ(tokenizer.tokenBytes(id("▁ab")), " ab");
  EXPECT_EQ(tokenizer.tokenBytes(id("<0xC3>")), "\xC3");
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(id("<0xC3>")), "");
  EXPECT_EQ(stream.push(id("<0xA9>")), "é");
}

TEST_F(TokenizerKindsTest, MetaspaceMarksTheFirstWordOnly) {
  Json root = spaced();
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  const Tokenizer tokenizer = load(root);
  auto id = [&](const char *name) { return root["model"]["vocab"][name].get<int>(); };
  EXPECT_EQ(tokenizer.encode("ab</s>ab"), (Ids{id("▁ab"), 2, id("ab")}));
}

TEST_F(TokenizerKindsTest, AddedTokensTakeSpaceAndStandAlone) {
  Json root = spaced();
  auto add = [&](const char *content, const char *flag) {
    root["added_tokens"].push_back(
        {{"id", 400 + int(root["added_tokens"].size())}, {"content", content}, {flag, true}});
    return root["added_tokens"].back()["id"].get<int>();
  };
  const int left = add("<l>", "lstrip"), right = add("<r>", "rstrip"),
            word = add("cab", "single_word");
  const Tokenizer tokenizer = load(root);
  EXPECT_EQ(tokenizer.encode(" <l><r>  "), (Ids{left, right}));
  EXPECT_EQ(tokenizer.encode("cab"), Ids{word});
  EXPECT_EQ(tokenizer.encode("cabs").size(), 3u);
}

TEST_F(TokenizerKindsTest, AddedTokensShareTheSpaceBetweenThem) {
  Json root = spaced();
  root["added_tokens"].push_back(
      {{"id", 400}, {"content", "  "}, {"lstrip", true}, {"rstrip", true}});
  // The first takes all four spaces; nothing is left of the second.
  EXPECT_EQ(load(root).encode("a    b"),
            (Ids{root["model"]["vocab"]["▁"], root["model"]["vocab"]["a"], 400,
                 root["model"]["vocab"]["▁"], root["model"]["vocab"]["b"]}));
}

TEST_F(TokenizerKindsTest, TokensThatAreNotListedAreText) {
  Json root = Toy().tokenizerJson();
  const int end = Toy().id("<|endoftext|>");
  EXPECT_EQ(load(root).encode("a<|endoftext|>"), (Ids{'a', end}));
  root["added_tokens"] = Json::array();
  const Tokenizer tokenizer = load(root);
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>").size(), 1 + std::string("<|endoftext|>").size());
  EXPECT_EQ(tokenizer.eosToken(), end);
}

TEST_F(TokenizerKindsTest, WhatJoinsCharactersIsOfAWord) {
  Json root = spaced();
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = {{"type", "Whitespace"}};
  root["model"]["byte_fallback"] = false;
  const Tokenizer tokenizer = load(root);
  // Unknown characters of a word are one: "\u200d" is a word, "☃" before it and behind are others.
  EXPECT_EQ(tokenizer.encode("☃\u200d☃"), (Ids{0, 0, 0}));
  EXPECT_EQ(tokenizer.encode("é\u200d\u200cé"), Ids{0});
}

TEST_F(TokenizerKindsTest, NumbersOfLatin1AreOfAWordByItselfAlone) {
  // Of Oniguruma's \w, which differs inside a class.
  auto cut = [](const std::string &regex, const std::string &text) {
    Result<Regex> made = Regex::compile(regex);
    EXPECT_TRUE(made.ok()) << made.status().message();
    Regex::Scratch scratch;
    return replaceAll(*made, text, "#", scratch);
  };
  EXPECT_EQ(cut(R"(\w+)", "a²b ¾"), "# #");
  EXPECT_EQ(cut(R"([\w]+)", "a²b ¾"), "#²# ¾");
  EXPECT_EQ(cut(R"(\W)", "²-½"), "²#½");
  EXPECT_EQ(cut(R"(b\b)", "b² b-"), "b² #-");
}

TEST_F(TokenizerKindsTest, IgnoredMergesFindAWordWithoutItsSuffix) {
  Json root = spaced();
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  Json &model = root["model"];
  model["end_of_word_suffix"] = "</w>";
  model["byte_fallback"] = false;
  const int suffixed = int(model["vocab"].size());
  model["vocab"]["b</w>"] = suffixed;
  auto id = [&](const char *name) { return model["vocab"][name].get<int>(); };
  EXPECT_EQ(load(root).encode("b cb"), (Ids{suffixed, id("c"), suffixed}));
  model["ignore_merges"] = true;
  EXPECT_EQ(load(root).encode("b cb"), (Ids{id("b"), id("c"), suffixed}));
}

TEST_F(TokenizerKindsTest, BytesAreCharactersToWhatFollows) {
  Json root = spaced();
  root["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "ByteFallback"}},
                       {{"type", "Replace"}, {"pattern", {{"String", "é"}}}, {"content", "e"}}}}};
  const Tokenizer tokenizer = load(root);
  auto id = [&](const char *name) { return root["model"]["vocab"][name].get<int>(); };
  EXPECT_EQ(tokenizer.decode(Ids{id("a"), id("<0xC3>"), id("<0xA9>"), id("b")}), "aeb");
}

TEST_F(TokenizerKindsTest, WordPieceDecodesAsWritten) {
  Json root = spaced();
  Json &vocab = root["model"]["vocab"];
  for (const char *name : {"##s", ".", "n't", "do not"})
    vocab[name] = int(vocab.size());
  auto id = [&](const char *name) { return vocab[name].get<int>(); };
  const Ids ids = {id("a"), id("##s"), id("b"), id("n't"), id("do not"), id(".")};
  root["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}};
  EXPECT_EQ(load(root).decode(ids), "as b n't do not .");
  root["decoder"]["cleanup"] = true;
  EXPECT_EQ(load(root).decode(ids), "as bn't don't.");
}

TEST_F(TokenizerKindsTest, UnigramTakesTheBestSum) {
  Json root = spaced();
  Json vocab = Json::array();
  auto add = [&](const char *text, double score) { vocab.push_back(Json::array({text, score})); };
  for (const char *text : {"<unk>", "<s>", "</s>"})
    add(text, 0);
  add("▁", -2);
  add("a", -3);
  add("b", -3);
  add("ab", -5);
  add("▁a", -4.5);
  add("ba", -2);
  root["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
  const Tokenizer tokenizer = load(root);
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{3, 6}));  // -7 against -7.5
  EXPECT_EQ(tokenizer.encode("aba"), (Ids{7, 8})); // -6.5
  EXPECT_EQ(tokenizer.encode("éé"), (Ids{3, 0}));  // characters without a token are one
}

TEST_F(TokenizerKindsTest, ScoresAreThoseThatThePackageReads) {
  Json root = spaced();
  Json vocab = Json::array();
  for (auto [text, score] : {std::pair("<unk>", -20.0),
                             {"<s>", 0.0},
                             {"</s>", 0.0},
                             {"▁", 0.0},
                             {"a", 0.0},
                             {"b", -19.0},
                             {"ab", -7.6152956589828},
                             {"ba", -7.6152956589828005}})
    vocab.push_back(Json::array({text, score}));
  root["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
  // tokenizers 0.23 reads the two scores as one number, and takes the path that comes first.
  EXPECT_EQ(load(root).encode("aba"), (Ids{3, 4, 7}));
}

TEST_F(TokenizerKindsTest, NormalFormsAndSteps) {
  Json root = Toy().tokenizerJson();
  root["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "NFC"}},
                          {{"type", "Lowercase"}},
                          {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}}}};
  const Tokenizer tokenizer = load(root);
  const Toy toy;
  EXPECT_EQ(tokenizer.encode(" E\u0301 "), Ids{toy.id("Ã©")});
  EXPECT_EQ(tokenizer.encode("HELLO"), Ids{toy.id("hello")});
  // Marks in any order, and very many of them, are put in order in no time.
  std::string marks = "a";
  for (int i = 0; i < 200000; ++i)
    marks += i % 2 ? "\u0301" : "\u0323";
  EXPECT_GT(tokenizer.encode(marks).size(), 100000u);
}

TEST_F(TokenizerKindsTest, Tiktoken) {
  folder.write("tokenizer.model", "YQ== 0\nYg== 1\nYw== 2\nIA== 3\nYWI= 4\nYWJj 5\nIGE= 6\n");
  folder.write("tokenizer_config.json",
               R"({"added_tokens_decoder": {"7": {"content": "<e>", "special": true}},
                   "eos_token": "<e>"})");
  const Tokenizer tokenizer = loadFolder();
  EXPECT_EQ(tokenizer.encode("abc a<e>"), (Ids{5, 6, 7}));
  EXPECT_EQ(tokenizer.decode(Ids{5, 6, 7}), "abc a<e>");
  EXPECT_EQ(tokenizer.eosToken(), 7);
  folder.write("tokenizer.model", "YQ== 0\nYg==\n");
  EXPECT_FALSE(Tokenizer::fromFiles(folder.path()).ok());
}

/// A field of a message: its number and bytes.
std::string field(int number, const std::string &bytes) {
  return std::string{char(number << 3 | 2), char(bytes.size())} + bytes;
}
std::string piece(const std::string &text, float score, int type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return field(1, field(1, text) + std::string(1, char(2 << 3 | 5)) + bits +
                      std::string{char(3 << 3), char(type)});
}

TEST_F(TokenizerKindsTest, SentencePiece) {
  std::string model = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3);
  model += piece("<x>", 0, 4);
  float score = 0;
  for (const char *text : {"▁a", "ab", "a", "b", "▁"})
    model += piece(text, score--, 1);
  model += field(2, {char(3 << 3), 2}); // BPE
  folder.write("tokenizer.model", model);
  const Tokenizer tokenizer = loadFolder();
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{4, 7}));          // "▁a" has the better score
  EXPECT_EQ(tokenizer.encode("b  ab"), (Ids{8, 7, 4, 7})); // spaces are one
  EXPECT_EQ(tokenizer.encode("b ▁▁"), (Ids{8, 7}));        // so are their marks at the end
  EXPECT_EQ(tokenizer.encode("<x>", {.allowSpecial = false}), (Ids{8, 3}));
  EXPECT_EQ(tokenizer.encode("b", {.addBos = AddBos::Auto}), (Ids{1, 8, 7}));
  EXPECT_EQ(tokenizer.decode(Ids{4, 7, 4}), "ab a");
  folder.write("tokenizer.model", model.substr(0, model.size() - 3));
  EXPECT_FALSE(Tokenizer::fromFiles(folder.path()).ok());
}

TEST_F(TokenizerKindsTest, HostileTextsTakeLinearishTime) {
  const Tokenizer tokenizer = load(spaced());
  for (const char *unit : {"a", "ab c", " ", "é", "<s", "\xFF"}) {
    std::string text;
    while (text.size() < 300000)
      text += unit;
    EXPECT_GT(tokenizer.encode(text).size(), 10000u);
  }
}

TEST(RegexSyntaxTest, WhatTheTwoDifferIn) {
  auto syntax = [](const char *pattern) {
    Result<std::string> out = pcre2Syntax(pattern);
    return out ? *out : out.status().message();
  };
  EXPECT_EQ(syntax("a{2,3}+b"), "(?:a{2,3})+b");
  EXPECT_EQ(syntax("a++b{,4}"), "a++b{0,4}");
  EXPECT_EQ(syntax("[a-c&&[^b]]"), "(?:(?=[a-c])(?:[^b]))");
  EXPECT_EQ(syntax("[a[bc]]"), "(?:(?:[a]|[bc]))");
  EXPECT_EQ(syntax("(?m:.)"), "(?s:.)");
  EXPECT_EQ(syntax("(a(?i)b|c)d"), "(a(?i:b|c))d");
  EXPECT_EQ(syntax("\\h"), "[0-9a-fA-F]");
  for (const char *broken : {"(", ")", "*a", "[a", "a\\", "(?~a)", "[b-a]", "\\x{110000}", "(?y)"})
    EXPECT_FALSE(pcre2Syntax(broken).ok()) << broken;
}

} // namespace
} // namespace gpt2c::rt::test
