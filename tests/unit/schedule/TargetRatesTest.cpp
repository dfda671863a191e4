// What a machine's measurements do to estimates, and the files that hold them.
#include "schedule/Target.h"
#include "schedule/cost/StepCost.h"

#include "ir/Error.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

/// A Llama of 16 layers of 2048.
DecoderShape shape() {
  DecoderShape s;
  s.layers.resize(16);
  s.type = s.weights = s.lastWeights = DType::F16;
  s.width = 2048;
  s.hidden = 8192;
  s.vocabulary = 128256;
  s.heads = 32;
  s.keyHeads = 8;
  s.headDim = 64;
  s.rotary = 32;
  s.gated = true;
  return s;
}

TEST(TargetRates, AFileHoldsThem) {
  TargetRates rates;
  rates.multiprocessors = 114;
  rates.launch = 0.625;
  rates.memory = 1.75e6;
  rates.hop = 1.25;
  rates.products = 3.5e6;
  auto read = TargetRates::parse(rates.print("some GPU"));
  ASSERT_TRUE(bool(read)) << llvm::toString(read.takeError());
  EXPECT_EQ(*read, rates);
}

TEST(TargetRates, WhatIsMissingOrNoNumberIsNamed) {
  auto why = [](llvm::StringRef text) {
    auto rates = TargetRates::parse(text);
    return rates ? std::string() : llvm::toString(rates.takeError());
  };
  const std::string good = R"({"multiprocessors": 132, "launch_us": 1, "memory_gbps": 1,
                              "hop_us": 1, "products_gflops": 1)";
  EXPECT_EQ(why(good + "}"), "");
  EXPECT_NE(why("{").find("no JSON"), std::string::npos);
  EXPECT_NE(why("[]").find("an object"), std::string::npos);
  EXPECT_NE(why("{}").find("'launch_us'"), std::string::npos);
  EXPECT_NE(why(good + R"(, "hop_us": 0})").find("'hop_us'"), std::string::npos);
  EXPECT_NE(why(good + R"(, "hop_us": "1"})").find("'hop_us'"), std::string::npos);
  EXPECT_NE(why(good + R"(, "multiprocessors": 0})").find("'multiprocessors'"), std::string::npos);
}

TEST(TargetRates, EstimatesAreInProportion) {
  const DecoderShape s = shape();
  TargetRates slow;
  slow.launch *= 2;
  slow.memory /= 2;
  slow.hop *= 2;
  EXPECT_NEAR(graphStepMicroseconds(s, 1, slow), 2 * graphStepMicroseconds(s, 1), 1e-6);
  const BlockWork work{.weightBytes = 1e6, .keyBytes = 1e4, .heads = 2};
  EXPECT_NEAR(clusterStepMicroseconds(s, work, true, slow),
              2 * clusterStepMicroseconds(s, work, true), 1e-6);
  // Where launches are dear, one kernel is worth more.
  TargetRates dear;
  dear.launch *= 3;
  EXPECT_EQ(clusterStepMicroseconds(s, work, true, dear), clusterStepMicroseconds(s, work, true));
  EXPECT_GT(graphStepMicroseconds(s, 1, dear), graphStepMicroseconds(s, 1));
}

TEST(TargetRates, TargetsHaveThem) {
  const std::optional<TargetRates> h100 = TargetRates::named("h100");
  ASSERT_TRUE(h100);
  EXPECT_GT(h100->reads(), 1.3);
  EXPECT_EQ(TargetRates::named("h200"), TargetRates());
  EXPECT_EQ(TargetRates::named("H200"), std::nullopt);
  TargetRates fewer = *h100;
  fewer.multiprocessors = 114;
  const std::vector<TargetGroup> groups = targetGroups({"sm_90a"}, fewer);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].target.multiprocessors, 114);
  EXPECT_EQ(groups[0].target.rates, fewer);
  EXPECT_EQ(targetGroups({"sm_90a"})[0].target.multiprocessors, 132);
}

} // namespace
