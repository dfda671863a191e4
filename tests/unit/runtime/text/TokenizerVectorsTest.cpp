// GPT-2's own vocabulary against other implementations. The files are in GPT2C_SHARED_DIR; a test
// whose files are absent is skipped.
#include "runtime/text/tokenizer/Tokenizer.h"

#include "tests/unit/SharedDir.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

namespace gpt2c::rt {
namespace {

using Ids = std::vector<std::int32_t>;

std::string sharedFile(const std::string &file) { return sharedDir() + "/" + file; }

std::string readText(const std::string &file) {
  std::ifstream in(sharedFile(file), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Ids parseIds(std::string text) {
  for (char &c : text)
    if (c == ',')
      c = ' ';
  std::istringstream in(text);
  return {std::istream_iterator<std::int32_t>(in), {}};
}

class TokenizerVectorsTest : public ::testing::Test {
protected:
  /// The tokenizer of a shared folder, read once; null when the folder is absent.
  static const Tokenizer *tokenizer(const std::string &folder) {
    static std::map<std::string, Tokenizer> loaded;
    if (!std::filesystem::exists(sharedFile(folder + "/vocab.json")))
      return nullptr;
    if (auto found = loaded.find(folder); found != loaded.end())
      return &found->second;
    Result<Tokenizer> result = Tokenizer::fromFiles(sharedFile(folder));
    if (!result.ok()) {
      ADD_FAILURE() << result.status().message();
      return nullptr;
    }
    return &loaded.emplace(folder, result.take()).first->second;
  }
};

#define SKIP_WITHOUT(file)                                                                         \
  if (!std::filesystem::exists(sharedFile(file)))                                                  \
  GTEST_SKIP() << sharedFile(file) << " is absent"

TEST_F(TokenizerVectorsTest, Vocabulary) {
  SKIP_WITHOUT("tokenizer/vocab.json");
  const Tokenizer *gpt2 = tokenizer("tokenizer");
  ASSERT_TRUE(gpt2);
  EXPECT_EQ(gpt2->vocabSize(), 50257);
  EXPECT_EQ(gpt2->eosToken(), 50256);
  EXPECT_EQ(gpt2->encode("Hello world<|endoftext|>"), (Ids{15496, 995, 50256}));
  EXPECT_EQ(gpt2->decode(Ids{15496, 995}), "Hello world");
  // A blob is smaller than the files, reads back the same, and so do all tokens.
  std::string blob = gpt2->serialize();
  EXPECT_LT(blob.size(), 800000u);
  Result<Tokenizer> copy =
      Tokenizer::fromBytes({reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()});
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_EQ(copy->serialize(), blob);
  for (int id = 0; id < gpt2->vocabSize(); ++id)
    ASSERT_EQ(copy->tokenBytes(id), gpt2->tokenBytes(id));
}

TEST_F(TokenizerVectorsTest, Ggml) {
  const std::string base = "tokenizer/vectors/ggml-vocab-gpt-2.gguf";
  SKIP_WITHOUT(base + ".inp");
  const Tokenizer *gpt2 = tokenizer("tokenizer");
  ASSERT_TRUE(gpt2);
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string inputs = readText(base + ".inp");
  std::istringstream outputs(readText(base + ".out"));
  int count = 0;
  for (std::size_t at = 0; at < inputs.size(); ++count) {
    std::size_t end = inputs.find(separator, at);
    ASSERT_NE(end, inputs.npos);
    std::string text = inputs.substr(at, end - at), line;
    ASSERT_TRUE(std::getline(outputs, line));
    EXPECT_EQ(gpt2->encode(text), parseIds(line)) << text;
    EXPECT_EQ(gpt2->decode(parseIds(line)), text);
    at = end + separator.size();
  }
  EXPECT_EQ(count, 46);
}

TEST_F(TokenizerVectorsTest, GptTokenizerTestPlans) {
  SKIP_WITHOUT("tokenizer/vectors/gpt-tokenizer_TestPlans.txt");
  const Tokenizer *gpt2 = tokenizer("tokenizer");
  ASSERT_TRUE(gpt2);
  std::istringstream plans(readText("tokenizer/vectors/gpt-tokenizer_TestPlans.txt"));
  std::string line, encoding, sample;
  int count = 0;
  auto value = [&](std::string_view key) { return line.substr(key.size()); };
  while (std::getline(plans, line)) {
    if (line.starts_with("EncodingName: "))
      encoding = value("EncodingName: ");
    else if (line.starts_with("Sample: "))
      sample = value("Sample: ");
    else if (line.starts_with("Encoded: [") && encoding == "r50k_base") { // GPT-2's vocabulary
      Ids expected = parseIds(value("Encoded: ["));
      EXPECT_EQ(gpt2->encode(sample), expected) << sample;
      EXPECT_EQ(gpt2->decode(expected), sample);
      ++count;
    }
  }
  EXPECT_EQ(count, 64);
}

// Counts and hashes (XXH3 of the little-endian int32 ids) come from the `tokenizers` package,
// version 0.23.3.
TEST_F(TokenizerVectorsTest, WholeTexts) {
  struct Case {
    const char *folder, *text;
    std::size_t count;
    std::uint64_t hash;
  };
  const Case cases[] = {
      {"tokenizer", "calibration.txt", 432258, 0xCA5565F7C20E017D},
      {"tokenizer", "heldout.txt", 220055, 0x7FBB759230BCEA9C},
      {"tokenizer", "wiki.test.raw", 286221, 0xE1CB78B3E71B4E8E},
      {"models/ours/sample", "calibration.txt", 569290, 0xC4078718D3D5C3C7},
      {"models/ours/sample", "heldout.txt", 279530, 0x457BC464DFC0CCF8},
      {"models/ours/sample", "wiki.test.raw", 442013, 0x46CD58AE8056A0F7},
  };
  SKIP_WITHOUT("text/heldout.txt");
  for (const Case &c : cases) {
    SCOPED_TRACE(std::string(c.folder) + ", " + c.text);
    const Tokenizer *own = tokenizer(c.folder);
    ASSERT_TRUE(own);
    std::string text = readText("text/" + std::string(c.text));
    Ids ids = own->encode(text);
    EXPECT_EQ(ids.size(), c.count);
    EXPECT_EQ(XXH3_64bits(ids.data(), ids.size() * sizeof(ids[0])), c.hash);
    EXPECT_EQ(own->decode(ids), text);
  }
}

} // namespace
} // namespace gpt2c::rt
