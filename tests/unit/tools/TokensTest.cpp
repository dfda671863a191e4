#include "tools/common/Tokens.h"

#include "gtest/gtest.h"

#include <cstdio>
#include <fstream>

namespace gpt2c {
namespace {

rt::Tokenizer sampleTokenizer() {
  return rt::Tokenizer::fromFiles(GPT2C_SOURCE_DIR "/examples/sample").take();
}

std::string written(const std::string &name, const std::string &text) {
  std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(Tokens, IdsStandBetweenCommasAndWhiteSpace) {
  EXPECT_EQ(*parseIds("1,2,3"), (rt::Tokens{1, 2, 3}));
  EXPECT_EQ(*parseIds(" 4\n 5\t6,\r\n7 "), (rt::Tokens{4, 5, 6, 7}));
  EXPECT_EQ(*parseIds(""), rt::Tokens());
  EXPECT_EQ(llvm::toString(parseIds("1,x2").takeError()), "'x2' is no token id");
  EXPECT_TRUE(llvm::errorToBool(parseIds("99999999999").takeError()));
}

TEST(Tokens, DocumentsAreSeparatedByOneToken) {
  rt::Tokenizer tokenizer = sampleTokenizer();
  std::string path = written("documents.txt", "The river<|endoftext|>The door");
  auto tokens = readTokens(path, &tokenizer);
  ASSERT_TRUE(bool(tokens));
  EXPECT_EQ(std::count(tokens->begin(), tokens->end(), tokenizer.eosToken()), 1);
  EXPECT_EQ(tokenizer.decode(*tokens), "The river<|endoftext|>The door");
  std::remove(path.c_str());
}

TEST(Tokens, TheNameSaysWhetherAFileHoldsIds) {
  std::string ids = written("some.ids", "5 6\n7"), text = written("some.txt", "5 6\n7");
  EXPECT_EQ(*readTokens(ids, nullptr), (rt::Tokens{5, 6, 7}));
  std::string message = llvm::toString(readTokens(text, nullptr).takeError());
  EXPECT_NE(message.find("give --tokenizer"), std::string::npos) << message;
  std::remove(ids.c_str());
  std::remove(text.c_str());
}

TEST(Tokens, AFileWithoutTokensIsAnError) {
  rt::Tokenizer tokenizer = sampleTokenizer();
  std::string path = written("empty.txt", "");
  EXPECT_EQ(llvm::toString(readTokens(path, &tokenizer).takeError()),
            "'" + path + "' has no tokens");
  std::remove(path.c_str());
}

} // namespace
} // namespace gpt2c
