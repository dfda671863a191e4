#include "runtime/text/tokenizer/Tokenizer.h"

#include "TokenizerToy.h"

#include <gtest/gtest.h>

namespace gpt2c::rt::test {
namespace {

using ::testing::IsSubstring;
using Ids = std::vector<std::int32_t>;

/// Loads what the test has written and expects an error that names the place.
class TokenizerFilesTest : public ::testing::Test {
protected:
  void expectError(Code code, const std::string &message, const std::string &file = "") {
    Result<Tokenizer> result = Tokenizer::fromFiles(folder.path(file));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), code);
    EXPECT_PRED_FORMAT2(IsSubstring, message, result.status().message());
    EXPECT_PRED_FORMAT2(IsSubstring, folder.path(), result.status().message());
  }
  void expectJsonError(Code code, const std::string &message) {
    folder.write("tokenizer.json", root.dump());
    expectError(code, message);
  }

  Toy toy;
  TemporaryFolder folder;
  nlohmann::json root = toy.tokenizerJson();
};

TEST_F(TokenizerFilesTest, BothFormsAreOneTokenizer) {
  toy.writeVocabAndMerges(folder);
  Result<Tokenizer> fromVocab = Tokenizer::fromFiles(folder.path());
  ASSERT_TRUE(fromVocab.ok()) << fromVocab.status().message();
  for (bool pairs : {false, true}) {
    if (pairs) {
      root["model"]["merges"] = nlohmann::json::array();
      for (const auto &[left, right] : toy.merges)
        root["model"]["merges"].push_back({left, right});
    }
    folder.write("own.json", root.dump());
    Result<Tokenizer> fromJson = Tokenizer::fromFiles(folder.path("own.json"));
    ASSERT_TRUE(fromJson.ok()) << fromJson.status().message();
    EXPECT_EQ(fromJson->serialize(), fromVocab->serialize());
  }
}

TEST_F(TokenizerFilesTest, TokenizerJsonComesFirst) {
  toy.writeVocabAndMerges(folder);
  root["model"]["merges"].erase(root["model"]["merges"].begin()); // without "l l"
  folder.write("tokenizer.json", root.dump());
  Result<Tokenizer> tokenizer = Tokenizer::fromFiles(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("ll"), (Ids{'l', 'l'}));
}

TEST_F(TokenizerFilesTest, WindowsLineEnds) {
  toy.writeVocabAndMerges(folder);
  std::string merges;
  for (char c : toy.mergesText())
    merges += c == '\n' ? std::string("\r\n") : std::string(1, c);
  folder.write("merges.txt", merges);
  Result<Tokenizer> tokenizer = Tokenizer::fromFiles(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("hello"), Ids{toy.id("hello")});
}

TEST_F(TokenizerFilesTest, AddedTokens) {
  const int user = toy.vocab.size();
  auto longer = toy.addedToken("<user>>", false);
  longer["id"] = user + 3; // ids may leave gaps
  root["added_tokens"].push_back(toy.addedToken("<user>", false));
  root["added_tokens"].push_back(longer);
  folder.write("tokenizer.json", root.dump());
  Result<Tokenizer> tokenizer = Tokenizer::fromFiles(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->vocabSize(), user + 4);
  // Added tokens that are not special are always found; the longest wins.
  EXPECT_EQ(tokenizer->encode("a<user>b", {.allowSpecial = false}), (Ids{'a', user, 'b'}));
  EXPECT_EQ(tokenizer->encode("<user>>>"), (Ids{user + 3, '>'}));
  EXPECT_EQ(tokenizer->decode(Ids{user, user + 1, user + 3}), "<user><user>>");
}

TEST_F(TokenizerFilesTest, MissingFiles) {
  expectError(Code::Io, "has neither tokenizer.json nor both vocab.json and merges.txt");
  expectError(Code::Io, "no such tokenizer folder", "absent");
  toy.writeVocabAndMerges(folder);
  std::filesystem::remove(folder.path("merges.txt"));
  expectError(Code::Io, "has neither");
}

TEST_F(TokenizerFilesTest, SmallFilesAreReadTogether) {
  toy.vocab["</s>"] = toy.vocab.size();
  toy.vocab["<pad>"] = toy.vocab.size();
  toy.writeVocabAndMerges(folder);
  const int end = toy.id("</s>"), pad = toy.id("<pad>");
  folder.write("added_tokens.json", nlohmann::json{{"<user>", pad + 1}}.dump());
  folder.write("special_tokens_map.json",
               R"({"bos_token": "</s>", "eos_token": {"content": "</s>"}, "pad_token": "<pad>"})");
  folder.write("tokenizer_config.json",
               R"({"add_bos_token": true, "tokenizer_class": "GPT2Tokenizer"})");
  Result<Tokenizer> tokenizer = Tokenizer::fromFiles(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("a</s><pad>b<user>"), (Ids{'a', end, pad, 'b', pad + 1}));
  EXPECT_EQ(tokenizer->bosToken(), end);
  EXPECT_EQ(tokenizer->eosToken(), end);
  EXPECT_EQ(tokenizer->encode("a", {.addBos = AddBos::Auto}), (Ids{end, 'a'}));
  EXPECT_EQ(tokenizer->encode("a", {.addBos = AddBos::No}), Ids{'a'});
  folder.write("tokenizer_config.json", "{\"eos_token\": \"<pad>\"}");
  tokenizer = Tokenizer::fromFiles(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->eosToken(), pad);
  EXPECT_EQ(tokenizer->encode("a", {.addBos = AddBos::Auto}), Ids{'a'});
  EXPECT_EQ(tokenizer->encode("a", {.addBos = AddBos::Yes}), (Ids{end, 'a'}));
  folder.write("tokenizer_config.json", "{\"tokenizer_class\": \"XTokenizer\"}");
  expectError(Code::Unsupported, "of the class XTokenizer");
}

TEST_F(TokenizerFilesTest, BadJson) {
  toy.writeVocabAndMerges(folder);
  folder.write("vocab.json", "{\"a\": 0,\n \"b\": }");
  expectError(Code::Io, "vocab.json: parse error at line 2, column 7");
  folder.write("vocab.json", "");
  expectError(Code::Io, "vocab.json: parse error at line 1");
  folder.write("vocab.json", "{\"\xFF\": 1}");
  expectError(Code::Io, "vocab.json: parse error at line 1");
  folder.write("vocab.json", "[]");
  expectError(Code::Io, "not an object");
  folder.write("tokenizer.json", "{}");
  expectError(Code::Io, "tokenizer.json: there is no object \"model\"");
  folder.write("tokenizer.json", std::string(200000, '['));
  expectError(Code::Io, "tokenizer.json: parse error");
}

TEST_F(TokenizerFilesTest, BadVocabulary) {
  toy.writeVocabAndMerges(folder);
  folder.write("vocab.json", "{\"a\": 0, \"b\": 1, \"a\": 2}");
  expectError(Code::Io, "the key \"a\" occurs twice");

  auto write = [&](const char *name, const nlohmann::json &id) {
    nlohmann::json vocab = toy.vocab;
    vocab[name] = id;
    folder.write("vocab.json", vocab.dump());
  };
  write("new", 7);
  expectError(Code::Io, "two tokens have id 7");
  for (const char *id : {"-1", "1.5", "\"1\"", "null", "4194304", "18446744073709551615"}) {
    write("new", nlohmann::json::parse(id));
    expectError(Code::Io, "the token \"new\" has id " + std::string(id));
  }
  write("", 500);
  expectError(Code::Io, "token 500 is empty");
}

TEST_F(TokenizerFilesTest, BadMerges) {
  toy.writeVocabAndMerges(folder);
  const std::string good = toy.mergesText(); // 10 lines
  struct Case {
    const char *line, *message;
  };
  for (const Case &c :
       {Case{"x yy", "line 11: the merge of \"x\" and \"yy\" needs the token \"yy\""},
        Case{"x y", "line 11: the merge of \"x\" and \"y\" needs the token \"xy\""},
        Case{"xx y", "needs the token \"xx\""}, Case{"l", "line 11: expected two tokens"},
        Case{"l l l", "line 11: expected two tokens"}, Case{" l", "line 11: expected two tokens"},
        Case{"l ", "line 11: expected two tokens"}}) {
    folder.write("merges.txt", good + c.line + "\n");
    expectError(Code::Io, "merges.txt: ");
    expectError(Code::Io, c.message);
  }
  for (const char *merge :
       {"1", "[\"l\"]", "[\"l\",\"l\",\"l\"]", "[1,2]", "\"l\"", "null", "\"l \""}) {
    root["model"]["merges"] = nlohmann::json::array({nlohmann::json::parse(merge)});
    expectJsonError(Code::Io, "model.merges[0]: expected");
  }
  root["model"]["merges"] = nlohmann::json::array({"l l", "x y"});
  expectJsonError(Code::Io, "model.merges[1]: the merge of \"x\" and \"y\" needs the token \"xy\"");
  root["model"]["merges"] = "l l";
  expectJsonError(Code::Io, "model.merges is not an array");
}

TEST_F(TokenizerFilesTest, TheLastOfEqualMergesCounts) {
  toy.writeVocabAndMerges(folder);
  EXPECT_EQ(Tokenizer::fromFiles(folder.path())->encode("abc"), Ids{toy.id("abc")});
  folder.write("merges.txt", toy.mergesText() + "a b\n"); // behind "b c", which now comes first
  Result<Tokenizer> tokenizer = Tokenizer::fromFiles(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{'a', toy.id("bc")}));
}

TEST_F(TokenizerFilesTest, WhatIsNotKnownIsRefused) {
  struct Case {
    const char *pointer, *value, *message;
  };
  const Case cases[] = {
      {"/model/type", "\"WordPiece\"", "model.type is \"WordPiece\""},
      {"/model/dropout", "0.1", "model.dropout is 0.1"},
      {"/normalizer", R"({"type": "New"})", R"(the normalizer {"type":"New"} is not known)"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "BertNormalizer"}]})",
       "BertNormalizer"},
      {"/pre_tokenizer", R"({"type": "UnicodeScripts"})", "the pre_tokenizer"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways"})",
       "Sideways"},
      {"/pre_tokenizer",
       R"x({"type": "Split", "pattern": {"Regex": "(?~a)"}, "behavior": "Isolated"})x",
       "the regular expression has"},
      {"/post_processor", R"({"type": "Other"})", "the post_processor"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [], "special_tokens": {}})",
       "the post_processor"},
      {"/decoder", R"({"type": "CTC"})", "the decoder"},
  };
  for (const Case &c : cases) {
    root = toy.tokenizerJson();
    root[nlohmann::json::json_pointer(c.pointer)] = nlohmann::json::parse(c.value);
    expectJsonError(Code::Unsupported, c.message);
  }
}

TEST_F(TokenizerFilesTest, BadAddedTokens) {
  root["added_tokens"][0]["id"] = 5;
  expectJsonError(Code::Io,
                  "the added token \"<|endoftext|>\" has id 5, but the vocabulary gives it");
  root = toy.tokenizerJson();
  root["added_tokens"] = nlohmann::json::array({toy.addedToken("<user>", false)});
  root["added_tokens"][0]["id"] = 7;
  expectJsonError(Code::Io, "two tokens have id 7");
  root["added_tokens"] = nlohmann::json::array({toy.addedToken("", false)});
  expectJsonError(Code::Io, "an added token is empty");
  root["added_tokens"] = nlohmann::json::array({1});
  expectJsonError(Code::Io, "no \"content\"");
  root["added_tokens"] = 1;
  expectJsonError(Code::Io, "added_tokens is not an array");
}

} // namespace
} // namespace gpt2c::rt::test
