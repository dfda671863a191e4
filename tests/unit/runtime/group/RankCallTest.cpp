// Calls and answers as bytes: what is written is read, and nothing else is taken for one.
#include "runtime/group/RankCall.h"

#include <gtest/gtest.h>

#include <random>

namespace gpt2c::rt {
namespace {

RankCall filled(RankCall::Kind kind) {
  RankCall call{.kind = kind};
  call.sequences = {{1, 2, 3}, {4}};
  call.past = {0, 7};
  call.pages = {{0, 5}, {2}};
  call.wantLogits = true;
  HostTensor t(plan::DType::F32, {2, 1});
  t.values<float>()[1] = 2.5f;
  call.tensors = {t};
  call.symbols = {3, 4};
  return call;
}

TEST(RankCall, SurvivesTheWay) {
  RankCall call = filled(RankCall::Extend);
  const Result<RankCall> read = decodeCall(encode(call));
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_EQ(read->kind, RankCall::Extend);
  EXPECT_EQ(read->sequences, call.sequences);
  EXPECT_EQ(read->past, call.past);
  EXPECT_EQ(read->pages, call.pages);
  EXPECT_TRUE(read->wantLogits);
  EXPECT_EQ(read->symbols, call.symbols);
  ASSERT_EQ(read->tensors.size(), 1u);
  EXPECT_EQ(read->tensors[0].shape, call.tensors[0].shape);
  EXPECT_EQ(read->tensors[0].data, call.tensors[0].data);
}

TEST(RankCall, AnswersSurviveTheWay) {
  RankReply reply;
  reply.tensors.emplace_back(plan::DType::F16, std::vector<int64_t>{3});
  const Result<RankReply> read = decodeReply(encode(Result<RankReply>(reply)));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->tensors[0].shape, reply.tensors[0].shape);
  const Result<RankReply> failed =
      decodeReply(encode(Result<RankReply>(Code::OutOfMemory, "no room")));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.status().code(), Code::OutOfMemory);
  EXPECT_EQ(failed.status().message(), "no room");
}

TEST(RankCall, RefusesWhatIsNone) {
  RankCall call = filled(RankCall::Extend);
  call.pages.pop_back();
  EXPECT_FALSE(decodeCall(encode(call))) << "segments without pages";
  EXPECT_FALSE(decodeCall(encode(filled(RankCall::Decode)))) << "no number of steps";
  RankCall moves = filled(RankCall::MovePages);
  moves.numbers = {1, 2, 1, 3, 4, 0};
  EXPECT_TRUE(decodeCall(encode(moves)));
  moves.numbers.pop_back();
  EXPECT_FALSE(decodeCall(encode(moves))) << "a copy without its way";
  EXPECT_FALSE(decodeCall({}));
  std::mt19937 random(7);
  const std::vector<std::byte> bytes = encode(filled(RankCall::Extend));
  for (size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(decodeCall(std::span(bytes).first(cut))) << cut;
  for (int i = 0; i < 2000; ++i) { // may be another call, but reads no further than it has
    std::vector<std::byte> damaged = bytes;
    damaged[random() % bytes.size()] = std::byte(random());
    (void)decodeCall(damaged).ok();
    (void)decodeReply(damaged).ok();
  }
}

} // namespace
} // namespace gpt2c::rt
