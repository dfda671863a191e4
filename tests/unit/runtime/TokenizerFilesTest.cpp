#include "runtime/text/Tokenizer.h"

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

TEST_F(TokenizerFilesTest, AddedTokensJsonIsRefused) {
  toy.writeVocabAndMerges(folder);
  folder.write("added_tokens.json", "{\"<user>\": 300}");
  expectError(Code::Unsupported, "added_tokens.json");
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
  nlohmann::json vocab = toy.vocab;
  vocab.erase("Ġ");
  folder.write("vocab.json", vocab.dump());
  expectError(Code::Io, "no token for byte 32 (\"Ġ\")");
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
        Case{"xx y", "needs the token \"xx\""},
        Case{"l l", "line 11: the merge of \"l\" and \"l\" occurs twice"},
        Case{"l", "line 11: expected two tokens"}, Case{"l l l", "line 11: expected two tokens"},
        Case{" l", "line 11: expected two tokens"}, Case{"l ", "line 11: expected two tokens"}}) {
    folder.write("merges.txt", good + c.line + "\n");
    expectError(Code::Io, "merges.txt: ");
    expectError(Code::Io, c.message);
  }
  for (const char *merge : {"1", "[\"l\"]", "[\"l\",\"l\",\"l\"]", "[1,2]", "\"l\"", "null"}) {
    root["model"]["merges"] = nlohmann::json::array({nlohmann::json::parse(merge)});
    expectJsonError(Code::Io, "model.merges[0]: expected");
  }
  root["model"]["merges"] = nlohmann::json::array({"l l", "x y"});
  expectJsonError(Code::Io, "model.merges[1]: the merge of \"x\" and \"y\" needs the token \"xy\"");
  root["model"]["merges"] = "l l";
  expectJsonError(Code::Io, "model.merges is not an array");
}

TEST_F(TokenizerFilesTest, OtherTokenizersAreRefused) {
  struct Case {
    const char *pointer, *value, *message;
  };
  const Case cases[] = {
      {"/model/type", "\"WordPiece\"", "model.type is \"WordPiece\""},
      {"/model/dropout", "0.1", "model.dropout is 0.1"},
      {"/model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix"},
      {"/model/byte_fallback", "true", "model.byte_fallback is true"},
      {"/model/ignore_merges", "true", "model.ignore_merges is true"},
      {"/normalizer", "{\"type\": \"NFC\"}", "normalizer, {\"type\":\"NFC\"}"},
      {"/pre_tokenizer", "null", "pre_tokenizer is null"},
      {"/pre_tokenizer", "{\"type\": \"Whitespace\"}", "pre_tokenizer is"},
      {"/pre_tokenizer/add_prefix_space", "true", "add_prefix_space"},
      {"/pre_tokenizer/use_regex", "false", "use_regex"},
      {"/post_processor", "{\"type\": \"TemplateProcessing\"}", "post_processor is"},
      {"/decoder", "{\"type\": \"WordPiece\"}", "decoder is"},
      {"/added_tokens/0/lstrip", "true", "\"<|endoftext|>\" has lstrip"},
      {"/added_tokens/0/rstrip", "true", "has rstrip"},
      {"/added_tokens/0/single_word", "true", "has single_word"},
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
  root["added_tokens"].push_back(root["added_tokens"][0]);
  expectJsonError(Code::Io, "the added token \"<|endoftext|>\" occurs twice");
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
