#include "runtime/text/TokenizerModel.h"
#include "runtime/text/Tokenizer.h"

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
      if (model.ok()) {
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
  // Promises of two billion tokens, or a token of two billion bytes, cost no memory.
  expectCorrupt("G2CT\x01\xFF\xFF\xFF\xFF\x07", "ends inside a token's flags");
  expectCorrupt(std::string("G2CT\x01\x01\x00\xFF\xFF\xFF\xFF\x07", 12), "ends inside a token");
  expectCorrupt("G2CT\x01\xFF\xFF\xFF\xFF\x08", "malformed number"); // 2^31 and more
  expectCorrupt(std::string("G2CT\x81\x00", 6), "malformed number"); // not the shortest form
  expectCorrupt("G2CT\x01\x01\x08", "unknown flags");

  Result<TokenizerModel> newer = TokenizerModel::parse(bytesOf("G2CT\x02"));
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(newer.status().code(), Code::Incompatible);
  EXPECT_PRED_FORMAT2(IsSubstring, "version 2; this runtime reads version 1",
                      newer.status().message());
}

TEST(TokenizerModelTest, RulesHoldForBlobs) {
  const TokenizerModel good = toyModel();
  auto expectBroken = [&](auto &&change, const std::string &message) {
    TokenizerModel model = good;
    change(model);
    expectCorrupt(model.serialize(), message);
  };
  const int count = good.tokens.size();
  expectBroken([&](auto &m) { m.byteTokens[65] = 66; }, "byte 65 has no token");
  expectBroken([&](auto &m) { m.byteTokens[65] = count; }, "byte 65 has no token");
  expectBroken([&](auto &m) { m.merges[2].left = count; }, "merge 2 names a token");
  expectBroken([&](auto &m) { m.merges[2].right = 1 << 30; }, "merge 2 names a token");
  expectBroken([&](auto &m) { m.merges[2].result = 'a'; }, "merge 2 does not join");
  expectBroken([&](auto &m) { m.merges[3] = m.merges[2]; }, "two merges join the same pair");
  expectBroken([&](auto &m) { m.eos = count; }, "the end-of-text token does not exist");
  expectBroken([&](auto &m) { m.tokens.push_back({"", TokenizerModel::Added}); }, "flags");
  expectBroken([&](auto &m) { m.tokens[5].flags = TokenizerModel::Special; }, "token 5 has");
}

} // namespace
} // namespace gpt2c::rt::test
