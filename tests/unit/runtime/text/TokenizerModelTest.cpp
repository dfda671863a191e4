#include "runtime/text/tokenizer/TokenizerModel.h"
#include "runtime/text/tokenizer/Tokenizer.h"

#include "TokenizerToy.h"

#include <gtest/gtest.h>

namespace gpt2c::rt::test {
namespace {

using ::testing::IsSubstring;

std::span<const std::uint8_t> bytesOf(const std::string &blob) {
  return {reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()};
}

TokenizerModel toyModel() {
  TemporaryFolder folder;
  Toy().writeVocabAndMerges(folder);
  Result<TokenizerModel> model = TokenizerModel::read(folder.path());
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.take();
}

void expectCorrupt(const std::string &blob, const std::string &message) {
  Result<TokenizerModel> model = TokenizerModel::parse(bytesOf(blob));
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), Code::Corrupt);
  EXPECT_PRED_FORMAT2(IsSubstring, message, model.status().message());
}

TEST(TokenizerModelTest, BlobHoldsTheWholeModel) {
  TokenizerModel model = toyModel();
  std::string blob = model.serialize();
  Result<TokenizerModel> read = TokenizerModel::parse(bytesOf(blob));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, model);
  EXPECT_EQ(read->serialize(), blob);
  EXPECT_LT(blob.size(), 2000u);
}

TEST(TokenizerModelTest, BlobHoldsWhatTheFolderSaysOfTexts) {
  TokenizerModel model = toyModel();
  model.texts = {{5, 700},
                 SamplingAdvice{true, 0.7, 0.9, 0.1, 1.1, 40},
                 {{"default", "{{ x }}"}},
                 {{"bos_token", "<s>"}}};
  const std::string blob = model.serialize();
  Result<Tokenizer> tokenizer = Tokenizer::fromBytes(bytesOf(blob));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->texts(), model.texts);
  EXPECT_EQ(tokenizer->eosToken(), 5);
  tokenizer->setTexts({});
  EXPECT_EQ(tokenizer->eosToken(), -1);
}

TEST(TokenizerModelTest, TokenizerFromBlobEncodesAlike) {
  TemporaryFolder folder;
  Toy().writeVocabAndMerges(folder);
  Result<Tokenizer> files = Tokenizer::fromFiles(folder.path());
  ASSERT_TRUE(files.ok()) << files.status().message();
  std::string blob = files->serialize();
  Result<Tokenizer> plan = Tokenizer::fromBytes(bytesOf(blob));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  for (const char *text : {"hello hello", "abcabc<|endoftext|>", "\xC3 \xA9"})
    EXPECT_EQ(plan->encode(text), files->encode(text));
  EXPECT_EQ(plan->serialize(), blob);
  EXPECT_EQ(plan->eosToken(), files->eosToken());
}

TEST(TokenizerModelTest, EveryTruncationIsCorrupt) {
  std::string blob = toyModel().serialize();
  for (std::size_t size = 0; size < blob.size(); ++size)
    expectCorrupt(blob.substr(0, size), "tokenizer blob, byte ");
  expectCorrupt(blob + '\0', "has bytes after its end");
}

// Whatever a damaged blob still is, it is never half-read: accepted only as the model it spells.
TEST(TokenizerModelTest, DamagedBytesAreCorruptOrAnotherModel) {
  std::string blob = toyModel().serialize();
  int refused = 0;
  for (std::size_t at = 0; at < blob.size(); ++at)
    for (int flip : {0x01, 0x08, 0x80, 0xFF}) {
      std::string damaged = blob;
      damaged[at] ^= flip;
      Result<TokenizerModel> model = TokenizerModel::parse(bytesOf(damaged));
      refused += !model.ok();
      if (model.ok() && damaged[4] != 1) {
        ASSERT_EQ(model->serialize(), damaged);
        ASSERT_TRUE(model->check().ok());
      }
    }
  EXPECT_GT(refused, int(blob.size()));
}

TEST(TokenizerModelTest, HeaderAndCounts) {
  expectCorrupt("", "does not begin with G2CT");
  expectCorrupt("GGUF\x01", "does not begin with G2CT");
  expectCorrupt("G2CT", "byte 4: ends inside the version");
  expectCorrupt(std::string("G2CT\x82\x00", 6), "malformed number"); // not the shortest form
  // Promises of two billion tokens, or a token of two billion bytes, cost no memory.
  const std::string head("G2CT\x02\0\0\0\0\0\0\0\0", 13); // up to the number of tokens
  expectCorrupt(head + "\xFF\xFF\xFF\xFF\x07", "ends inside a token's flags");
  expectCorrupt(head + std::string("\x01\x00\xFF\xFF\xFF\xFF\x07", 7), "ends inside a token");
  expectCorrupt(head + "\xFF\xFF\xFF\xFF\x08", "malformed number"); // 2^31 and more
  expectCorrupt(std::string("G2CT\x02\x00\x02", 7), "malformed number for whether words are bytes");

  Result<TokenizerModel> newer = TokenizerModel::parse(bytesOf("G2CT\x03"));
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(newer.status().code(), Code::Incompatible);
  EXPECT_PRED_FORMAT2(IsSubstring, "version 3; this runtime reads 1 to 2",
                      newer.status().message());
}

// The 256 bytes, "ab" of a merge, and the end of a text.
TEST(TokenizerModelTest, FirstVersionIsRead) {
  std::string blob("G2CT\x01\x82\x02", 7);
  auto number = [&](int value) {
    if (value >= 128)
      blob += char(value % 128 + 128);
    blob += char(value >= 128 ? value / 128 : value);
  };
  for (int byte = 0; byte < 256; ++byte)
    blob += std::string{0, 1, char(byte)};
  blob += std::string("\x01\x02", 2) + "ab" + std::string("\x06\x03", 2) + "<e>";
  for (int byte = 0; byte < 256; ++byte)
    number(byte);
  number(1);
  for (int id : {int('a'), int('b'), 256, 258})
    number(id);
  Result<Tokenizer> tokenizer = Tokenizer::fromBytes(bytesOf(blob));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("ab a<e>"), (std::vector<std::int32_t>{256, ' ', 'a', 257}));
  EXPECT_EQ(tokenizer->eosToken(), 257);
  for (std::size_t size = 6; size < blob.size(); ++size)
    expectCorrupt(blob.substr(0, size), "tokenizer blob, byte ");
}

TEST(TokenizerModelTest, RulesHoldForBlobs) {
  using Kind = TokenizerStep::Kind;
  const TokenizerModel good = toyModel();
  auto expectBroken = [&](auto &&change, const std::string &message) {
    TokenizerModel model = good;
    change(model);
    expectCorrupt(model.serialize(), message);
  };
  const int count = good.tokens.size();
  expectBroken([&](auto &m) { m.merges[2].left = count; }, "merge 2 names a token");
  expectBroken([&](auto &m) { m.merges[2].right = 1 << 30; }, "merge 2 names a token");
  expectBroken([&](auto &m) { m.merges[2].result = 'a'; }, "merge 2 does not join");
  expectBroken([&](auto &m) { m.merges[3] = m.merges[2]; }, "two merges join the same pair");
  expectBroken([&](auto &m) { m.texts.ends = {-1}; }, "ends answers does not exist");
  expectBroken([&](auto &m) { m.texts.sampling = SamplingAdvice{.topP = 2}; }, "how to sample");
  expectBroken([&](auto &m) { m.before = {count}; }, "which has a task, does not exist");
  expectBroken([&](auto &m) { m.unknown = count; }, "which has a task, does not exist");
  expectBroken([&](auto &m) { m.tokens.push_back({"", 1}); }, "contradictory flags");
  expectBroken([&](auto &m) { m.tokens[5].flags = 3; }, "token 5 has");
  expectBroken([&](auto &m) { m.added.push_back(m.added[0]); }, "added token");
  expectBroken([&](auto &m) { m.added[0].content.clear(); }, "added token");
  expectBroken([&](auto &m) { m.scores = {1.0}; }, "neither merges nor scores");
  expectBroken([&](auto &m) { m.kind = TokenizerModel::Kind::Unigram; }, "neither merges nor");
  expectBroken([&](auto &m) { m.normalizers = {{Kind::SplitDigits, 1, {}, {}}}; }, "normalizers");
  expectBroken([&](auto &m) { m.preTokenizers = {{Kind::Nfc, 0, {}, {}}}; }, "pre-tokenizers");
  expectBroken([&](auto &m) { m.preTokenizers = {{Kind::SplitDigits, 5, {}, {}}}; }, "pre-tok");
  expectBroken([&](auto &m) { m.decoders = {{Kind::Strip, 1, {}, {}}}; }, "decoders");
}

// What can only be seen when it is used.
TEST(TokenizerModelTest, StepsThatCannotBeUsedAreCorrupt) {
  TokenizerModel model = toyModel();
  model.preTokenizers[0].text = "(a";
  const std::string blob = model.serialize();
  Result<Tokenizer> tokenizer = Tokenizer::fromBytes(bytesOf(blob));
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), Code::Corrupt);
}

} // namespace
} // namespace gpt2c::rt::test
