// The exported graph by way of a session, whose backend is a toy.
#include "SessionToy.h"

namespace gpt2c::rt::sessions {
namespace {

TEST_F(SessionTest, ForwardBindsShapesAndConverts) {
  Session &s = open();
  std::vector<HostTensor> inputs{integers({2, 3}, {1, 2, 3, 4, 5, 6}),
                                 integers({2, 3}, {1, 1, 1, 0, 1, 1})};
  Result<std::vector<HostTensor>> out = s.forward(inputs);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(backend_->ran, "forward");
  EXPECT_EQ(backend_->symbols, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(backend_->inputs[0].dtype, plan::DType::I32);
  EXPECT_EQ(backend_->inputs[0].values<int32_t>()[3], 0);
  EXPECT_EQ(backend_->inputs[3].values<int32_t>()[1], 0); // past
  ASSERT_EQ(out->size(), 1u);
  EXPECT_EQ((*out)[0].shape, (std::vector<int64_t>{2, 3, kVocab}));
}

TEST_F(SessionTest, ForwardTakesAPastThroughTheState) {
  meta().exported_inputs.push_back(
      exported("past", plan::DType::F32, plan::Role::PastTensor, plan::KvPart::Both));
  meta().exported_outputs.push_back(
      exported("present", plan::DType::F16, plan::Role::PresentTensor, plan::KvPart::Both));
  Session &s = open();
  HostTensor past(plan::DType::F32, {2, 1, 3, 5, 4});
  for (int64_t i = 0; i < past.count(); ++i)
    past.values<float>()[i] = static_cast<float>(i);
  std::vector<HostTensor> inputs{integers({1, 2}, {1, 2}), integers({1, 7}, {1, 1, 1, 1, 1, 1, 1}),
                                 past};
  Result<std::vector<HostTensor>> out = s.forward(inputs);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(backend_->symbols, (std::vector<int64_t>{5, 1, 2}));
  EXPECT_EQ(backend_->inputs[3].values<int32_t>()[0], 5);
  EXPECT_EQ(backend_->state[0].shape, (std::vector<int64_t>{1, 3, 5, 4}));
  EXPECT_EQ(backend_->state[1].values<float>()[0], 60.0f);
  const HostTensor &present = (*out)[1];
  EXPECT_EQ(present.dtype, plan::DType::F16);
  EXPECT_EQ(present.shape, (std::vector<int64_t>{2, 1, 3, 7, 4}));
  EXPECT_EQ(present.values<uint16_t>().front(), floatToHalf(1));
  EXPECT_EQ(present.values<uint16_t>().back(), floatToHalf(2));

  inputs[1] = integers({1, 6}, {1, 1, 1, 1, 1, 1});
  expectUsage(s.forward(inputs).status(), "expected i64[1, 7]"); // the mask is one too short
  inputs[2] = HostTensor(plan::DType::F32, {2, 1, 2, 5, 4});
  expectUsage(s.forward(inputs).status(), "expected [2, 1, 3, past, 4]");
}

TEST_F(SessionTest, ForwardRefusesWrongInputs) {
  Session &s = open();
  HostTensor ones = integers({1, 2}, {1, 1});
  expectUsage(s.forward(std::vector<HostTensor>{ones}).status(), "has 2 inputs, 1 are given");
  expectUsage(s.forward(std::vector<HostTensor>{integers({1, 2}, {1, kVocab}), ones}).status(),
              "0 to 49");
  HostTensor floats(plan::DType::F32, {1, 2});
  expectUsage(s.forward(std::vector<HostTensor>{ones, floats}).status(), "declares i64");
  std::vector<HostTensor> three{integers({3, 1}, {1, 1, 1}), integers({3, 1}, {1, 1, 1})};
  expectUsage(s.forward(three).status(), "--max-batch=3");
  std::vector<HostTensor> longer{HostTensor(plan::DType::I64, {1, 17}),
                                 HostTensor(plan::DType::I64, {1, 17})};
  expectUsage(s.forward(longer).status(), "--max-context=17");
  HostTensor truncated = ones;
  truncated.data.pop_back();
  expectUsage(s.forward(std::vector<HostTensor>{ones, truncated}).status(), "bytes");
}

TEST_F(SessionTest, LogitsBehindEveryTokenAreNotNarrowed) {
  // What the graph declares does not bind what the plan computes.
  meta().exported_outputs[0]->dtype = plan::DType::F16;
  meta().exported_inputs.push_back(
      exported("past_key_values", plan::DType::F16, plan::Role::PastTensor));
  meta().exported_inputs.back()->layer = 0;
  meta().exported_inputs.back()->part = plan::KvPart::Both;
  Session &s = open();
  ASSERT_TRUE(s.prefill(std::vector<Tokens>{{1}}));
  Result<HostTensor> out = s.logits(std::vector<Tokens>{{1, 2, 3}, {4, 0, 5}});
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(describe(out->dtype, out->shape), "f32[2, 3, " + std::to_string(kVocab) + "]");
  EXPECT_EQ(out->values<float>()[1 * kVocab + 3], 1);
  EXPECT_EQ(out->values<float>()[4 * kVocab + 1], 1);
  EXPECT_TRUE(s.lengths().empty());
  expectUsage(s.logits({}).status(), "no sequence");
  expectUsage(s.logits(std::vector<Tokens>{{1, 2}, {3}}).status(), "all need one length");
  expectUsage(s.logits(std::vector<Tokens>{{}}).status(), "at least one token");
  expectUsage(s.logits(std::vector<Tokens>{{1, kVocab}}).status(), "ids go from 0");
  expectUsage(s.logits(std::vector<Tokens>{Tokens(kContext + 1)}).status(), "--max-context");
}

TEST_F(SessionTest, WithoutAStateTheWholeGraphRunsForEveryToken) {
  meta().kv.reset();
  Session &s = open();
  auto &forward = *backend_->functions_[0];
  backend_->functions_.resize(1);
  forward.inputs.resize(2);
  EXPECT_FALSE(s.hasKvState());
  expectUsage(s.prefill(std::vector<Tokens>{{1}}).status(), "no KV state");
  GenerateOptions options;
  options.maxNewTokens = 3;
  std::vector<Tokens> prompts{{1, 2}, {7}};
  Result<Generated> out = s.generate(prompts, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(out->tokens[0], (Tokens{3, 4, 5}));
  EXPECT_EQ(out->tokens[1], (Tokens{8, 9, 10}));
  EXPECT_EQ(backend_->inputs[1].shape, (std::vector<int64_t>{1, 3}));
}

// A mask of queries and keys, which no text gives.
TEST_F(SessionTest, AnInputOfUnknownMeaningHasAWayOut) {
  meta().kv.reset();
  meta().exported_inputs.push_back(exported("mask", plan::DType::F32, plan::Role::Plain));
  Session &s = open();
  auto &forward = *backend_->functions_[0];
  backend_->functions_.resize(1);
  forward.inputs.resize(2);
  plan::ExprT batch = symbolExpr(1), seq = symbolExpr(2), one = constantExpr(1);
  forward.inputs.push_back(
      port("mask", plan::DType::F32, plan::Role::Plain, {batch, one, seq, seq}));
  GenerateOptions options;
  options.maxNewTokens = 3;
  const Status status = s.generate(std::vector<Tokens>{{1, 2}}, options).status();
  EXPECT_EQ(status.code(), Code::Unsupported);
  EXPECT_NE(status.message().find("'mask' is not known. Export the model with"), std::string::npos)
      << status.message();
}

TEST_F(SessionTest, AnExportOfAnotherLengthSaysSo) {
  meta().kv.reset();
  Session &s = open();
  auto &forward = *backend_->functions_[0];
  backend_->functions_.resize(1);
  forward.inputs.resize(2);
  for (auto &input : forward.inputs)
    if (input->role == plan::Role::Ids)
      input->shape[1] = std::make_unique<plan::ExprT>(constantExpr(16));
  GenerateOptions options;
  options.maxNewTokens = 3;
  const Status status = s.generate(std::vector<Tokens>{{1, 2}}, options).status();
  EXPECT_EQ(status.code(), Code::Usage);
  EXPECT_NE(status.message().find("a text of 2 tokens is given, the model was exported for exactly "
                                  "16; export it with an open length"),
            std::string::npos)
      << status.message();
}

} // namespace
} // namespace gpt2c::rt::sessions
