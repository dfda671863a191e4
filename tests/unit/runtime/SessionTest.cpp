// Session over a backend that plays a model whose next token is the last one plus one.
#include "runtime/session/Session.h"
#include "PlanSample.h"
#include "runtime/plan/Expr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include <unistd.h>

namespace gpt2c::rt {
namespace {

constexpr int32_t kVocab = 50, kContext = 16, kMaxBatch = 2;

std::unique_ptr<plan::SymbolT> symbol(const char *name, int64_t min, int64_t max) {
  auto s = std::make_unique<plan::SymbolT>();
  s->name = name;
  s->min = min;
  s->max = max;
  return s;
}

std::unique_ptr<plan::PortT> port(const char *name, plan::DType dtype, plan::Role role,
                                  std::vector<plan::ExprT> shape) {
  auto p = std::make_unique<plan::PortT>();
  p->name = name;
  p->dtype = p->exported_dtype = dtype;
  p->role = role;
  for (plan::ExprT &e : shape)
    p->shape.push_back(sample::boxed(std::move(e)));
  return p;
}

std::unique_ptr<plan::ExportedPortT> exported(const char *name, plan::DType dtype, plan::Role role,
                                              plan::KvPart part = plan::KvPart::Key) {
  auto p = std::make_unique<plan::ExportedPortT>();
  p->name = name;
  p->dtype = dtype;
  p->role = role;
  p->layer = role == plan::Role::PastTensor || role == plan::Role::PresentTensor ? 0 : -1;
  p->part = part;
  return p;
}

/// forward(ids i32[batch, seq], key_mask i32[batch, past + seq], kv, past) -> logits
std::vector<std::unique_ptr<plan::FunctionT>> makeFunctions() {
  std::vector<std::unique_ptr<plan::FunctionT>> out;
  for (const char *name : {"forward", "prefill", "decode"}) {
    auto f = std::make_unique<plan::FunctionT>();
    f->name = name;
    f->symbols.push_back(symbol("past", 0, kContext));
    f->symbols.push_back(symbol("batch", 1, kMaxBatch));
    f->symbols.push_back(symbol("seq", 1, kContext));
    plan::ExprT past = symbolExpr(0), batch = symbolExpr(1), seq = symbolExpr(2);
    f->inputs.push_back(port("key_mask", plan::DType::I32, plan::Role::KeyMask,
                             {batch, combineExpr(ExprOp::Add, past, seq)}));
    f->inputs.push_back(port("ids", plan::DType::I32, plan::Role::Ids, {batch, seq}));
    f->inputs.push_back(port("kv", plan::DType::F32, plan::Role::KvState, {}));
    f->inputs.push_back(port("past", plan::DType::I32, plan::Role::Past, {batch}));
    f->outputs.push_back(
        port("logits", plan::DType::F32, plan::Role::Logits, {batch, seq, constantExpr(kVocab)}));
    f->outputs.push_back(port("kv", plan::DType::F32, plan::Role::KvState, {}));
    out.push_back(std::move(f));
  }
  return out;
}

class FakeBackend : public Backend {
public:
  FakeBackend() : functions_(makeFunctions()) {}

  std::string name() const override { return "fake"; }
  std::string kind() const override { return "fake"; }
  std::span<const std::unique_ptr<plan::FunctionT>> functions() const override {
    return functions_;
  }
  int decodeChunk() const override { return chunk; }
  bool padsPrompts() const override { return pads; }

  Result<StepOutput> prefill(std::span<const Tokens> sequences, std::span<const int32_t> past,
                             bool wantLogits) override {
    prefills.emplace_back(past.begin(), past.end());
    prompts.assign(sequences.begin(), sequences.end());
    next_.clear();
    for (const Tokens &t : sequences)
      next_.push_back((t.back() + 1) % kVocab);
    return output(wantLogits);
  }
  Result<std::vector<Tokens>> decode(int steps) override {
    decodes.push_back(steps);
    std::vector<Tokens> out;
    for (int i = 0; i < steps; ++i) {
      for (int32_t &t : next_)
        t = (t + 1) % kVocab;
      out.push_back(next_);
    }
    return out;
  }
  Result<StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override {
    next_.assign(tokens.begin(), tokens.end());
    for (int32_t &t : next_)
      t = (t + 1) % kVocab;
    return output(wantLogits);
  }
  /// Logits are 1 at the token after each input, and 0.
  Result<std::vector<HostTensor>> run(const plan::FunctionT &function,
                                      std::span<const HostTensor> inputs,
                                      std::span<const int64_t> symbols) override {
    ran = function.name;
    this->symbols.assign(symbols.begin(), symbols.end());
    this->inputs.assign(inputs.begin(), inputs.end());
    const HostTensor &ids = inputs[1];
    HostTensor logits(plan::DType::F32, {ids.shape[0], ids.shape[1], kVocab});
    for (int64_t i = 0; i < ids.count(); ++i)
      logits.values<float>()[i * kVocab + (ids.values<int32_t>()[i] + 1) % kVocab] = 1;
    return std::vector<HostTensor>{logits, {}};
  }
  Status writeKv(int, plan::KvPart part, const HostTensor &values) override {
    state[int(part)] = values;
    return {};
  }
  Result<HostTensor> readKv(int, plan::KvPart part, int64_t batch, int64_t tokens) override {
    HostTensor out(plan::DType::F32, {batch, 3, tokens, 4});
    std::ranges::fill(out.values<float>(), part == plan::KvPart::Key ? 1.0f : 2.0f);
    return out;
  }

  bool pads = false;
  int chunk = 4;
  std::vector<std::vector<int32_t>> prefills; ///< past
  std::vector<Tokens> prompts;                ///< of the last prefill
  std::vector<int> decodes;
  std::string ran;
  std::vector<int64_t> symbols;
  std::vector<HostTensor> inputs;
  HostTensor state[2];
  std::vector<std::unique_ptr<plan::FunctionT>> functions_;

private:
  /// Logits are 2 at the token after each input, 1 at the one after that, and 0.
  StepOutput output(bool wantLogits) const {
    StepOutput out{next_, {}};
    for (int32_t t : next_) {
      if (!wantLogits)
        break;
      std::vector<float> row(kVocab);
      row[t] = 2;
      row[(t + 1) % kVocab] = 1;
      out.logits.insert(out.logits.end(), row.begin(), row.end());
    }
    return out;
  }

  Tokens next_;
};

class SessionTest : public ::testing::Test {
protected:
  void SetUp() override {
    meta().compiler_version = "test";
    meta().precision = "fp32";
    meta().vocab_size = kVocab;
    meta().kv = std::make_unique<plan::KvPlanT>();
    meta().kv->layers = 1;
    meta().kv->heads = 3;
    meta().kv->head_dim = 4;
    meta().kv->max_batch = kMaxBatch;
    meta().kv->max_context = kContext;
    meta().kv->bytes_per_token = 2 * 3 * 4 * 4;
    meta().kv->bytes = meta().kv->bytes_per_token * kMaxBatch * kContext;
    meta().exported_inputs.push_back(exported("input_ids", plan::DType::I64, plan::Role::Ids));
    meta().exported_inputs.push_back(
        exported("attention_mask", plan::DType::I64, plan::Role::KeyMask));
    meta().exported_outputs.push_back(exported("out", plan::DType::F32, plan::Role::Logits));
  }

  plan::PlanT &meta() { return contents_.meta; }

  Session &open() {
    auto path = std::filesystem::temp_directory_path() /
                ("gpt2c-session-" + std::to_string(::getpid()) + ".plan");
    Status written = writePlan(path, contents_);
    EXPECT_TRUE(written.ok()) << written.message();
    Result<Plan::Ptr> plan = Plan::open(path);
    std::filesystem::remove(path);
    EXPECT_TRUE(plan) << plan.status().message();
    auto backend = std::make_unique<FakeBackend>();
    backend_ = backend.get();
    session_ = std::make_unique<Session>(*plan, std::move(backend));
    return *session_;
  }

  /// Expects a usage error whose message holds `text`.
  static void expectUsage(const Status &status, const std::string &text) {
    EXPECT_EQ(status.code(), Code::Usage);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  }

  static HostTensor integers(std::vector<int64_t> shape, std::vector<int64_t> values) {
    HostTensor t(plan::DType::I64, std::move(shape));
    std::ranges::copy(values, t.values<int64_t>().begin());
    return t;
  }

  PlanContents contents_;
  FakeBackend *backend_ = nullptr;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, GeneratesABatchInChunks) {
  Session &s = open();
  std::vector<Tokens> prompts{{1, 2, 3}, {10}};
  std::vector<std::pair<size_t, int32_t>> seen;
  GenerateOptions options;
  options.maxNewTokens = 8;
  options.onToken = [&](size_t b, const Choice &choice) {
    seen.push_back({b, choice.token});
    return true;
  };
  Result<Generated> out = s.generate(prompts, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(out->tokens[0], (Tokens{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(out->tokens[1], (Tokens{11, 12, 13, 14, 15, 16, 17, 18}));
  EXPECT_EQ(backend_->decodes, (std::vector<int>{4, 3}));
  EXPECT_EQ(out->decodeSteps, 7);
  EXPECT_EQ(seen.size(), 16u);
  EXPECT_EQ(seen[0], (std::pair<size_t, int32_t>(0, 4)));
  EXPECT_EQ(seen[1], (std::pair<size_t, int32_t>(1, 11)));
  EXPECT_EQ(s.lengths()[0], 10); // the last token is not in the state
}

TEST_F(SessionTest, SequencesStopOnTheirOwn) {
  Session &s = open();
  std::vector<Tokens> prompts{{1}, {4}};
  GenerateOptions options;
  options.maxNewTokens = 10;
  options.stopTokens = {6};
  Result<Generated> out = s.generate(prompts, options);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->tokens[0], (Tokens{2, 3, 4, 5, 6}));
  EXPECT_EQ(out->tokens[1], (Tokens{5, 6}));
  EXPECT_EQ(out->decodeSteps, 4); // as many as the longer one needs
  EXPECT_EQ(out->finish, (std::vector{Finish::Stop, Finish::Stop}));
  options.stopTokens = {};
  options.onToken = [](size_t b, const Choice &) { return b == 1; };
  out = s.generate(prompts, options);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->tokens[0].size(), 1u);
  EXPECT_EQ(out->tokens[1].size(), 10u);
  EXPECT_EQ(out->finish, (std::vector{Finish::Caller, Finish::Length}));
}

TEST_F(SessionTest, MorePromptsThanTheBatchRunInTurn) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 2;
  Result<Generated> out = s.generate(std::vector<Tokens>{{1}, {2}, {3}, {4}, {5}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(backend_->prefills.size(), 3u);
  for (int32_t i = 0; i < 5; ++i)
    EXPECT_EQ(out->tokens[i], (Tokens{i + 2, i + 3}));
}

// Nothing runs for prompts of later groups either.
TEST_F(SessionTest, TheCallerEndsAllSequencesBetweenCalls) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 100;
  options.slide = 2;
  int asked = 0;
  options.goesOn = [&] { return ++asked <= 2; };
  Result<Generated> out = s.generate(std::vector<Tokens>{{1}, {2}, {3}, {4}, {5}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(backend_->prefills.size(), 1u);
  EXPECT_EQ(backend_->decodes.size(), 1u);
  EXPECT_EQ(out->tokens[0].size(), 5u);
  EXPECT_TRUE(out->tokens[4].empty());
  EXPECT_EQ(out->finish, std::vector<Finish>(5, Finish::Caller));
}

// One sequence fills the context of 16 and ends; the other goes on from its own tokens.
TEST_F(SessionTest, AFullContextEndsASequenceAlone) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 10;
  Result<Generated> out = s.generate(std::vector<Tokens>{Tokens(13, 1), {20}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(out->tokens[0], (Tokens{2, 3, 4, 5})); // the last one is not in the state
  EXPECT_EQ(out->tokens[1].size(), 10u);
  EXPECT_EQ(out->tokens[1].back(), 30);
  EXPECT_EQ(out->finish, (std::vector{Finish::Context, Finish::Length}));
  EXPECT_EQ(backend_->prompts, (std::vector<Tokens>{{20, 21, 22, 23, 24}}));
}

TEST_F(SessionTest, SlidingKeepsTheBeginning) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 20;
  options.slide = 2;
  Result<Generated> out = s.generate(std::vector<Tokens>{{7, 8, 1, 2, 3, 4, 5, 6, 9, 10}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(out->tokens[0].size(), 20u);
  for (int32_t i = 0; i < 20; ++i)
    EXPECT_EQ(out->tokens[0][i], 11 + i);
  EXPECT_EQ(out->finish[0], Finish::Length);
  for (const Tokens &window : backend_->prompts) {
    EXPECT_EQ(window[0], 7);
    EXPECT_EQ(window[1], 8);
    EXPECT_LE(window.size(), 16u);
  }
  options.slide = 9;
  expectUsage(s.generate(std::vector<Tokens>{{1}}, options).status(), "at most half");
}

TEST_F(SessionTest, SamplesByLogits) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 12;
  SamplingParams greedy{.logprobs = 1}, hot{.temperature = 1, .topK = 2, .seed = 5};
  options.sampling = {greedy, hot};
  std::vector<double> logprobs;
  options.onToken = [&](size_t b, const Choice &choice) {
    if (b == 0)
      logprobs.push_back(choice.logprob);
    return true;
  };
  Result<Generated> out = s.generate(std::vector<Tokens>{{1}, {1}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(out->tokens[0], (Tokens{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}));
  double expected = 2 - std::log(std::exp(2) + std::exp(1) + kVocab - 2);
  ASSERT_EQ(logprobs.size(), 12u);
  EXPECT_NEAR(logprobs[3], expected, 1e-9);
  Tokens sampled = out->tokens[1];
  EXPECT_NE(sampled, out->tokens[0]);
  for (size_t i = 1; i < sampled.size(); ++i)
    EXPECT_LE(sampled[i] - sampled[i - 1], 2);
  // Alone and in a batch the same.
  options.sampling = {hot};
  options.onToken = {};
  EXPECT_EQ(s.generate(std::vector<Tokens>{{1}}, options)->tokens[0], sampled);
  options.sampling = {{.temperature = -1}};
  expectUsage(s.generate(std::vector<Tokens>{{1}}, options).status(), "temperature");
  options.sampling = {hot, hot, hot};
  expectUsage(s.generate(std::vector<Tokens>{{1}}, options).status(), "3 sets");
}

TEST_F(SessionTest, RefusesWhatThePlanDoesNotHold) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 4;
  expectUsage(s.prefill(std::vector<Tokens>{{1}, {2}, {3}}).status(), "--max-batch=3");
  expectUsage(s.generate(std::vector<Tokens>{}, options).status(), "no sequence");
  expectUsage(s.generate(std::vector<Tokens>{{}}, options).status(), "empty");
  expectUsage(s.generate(std::vector<Tokens>{{1, kVocab}}, options).status(), "0 to 49");
  expectUsage(s.generate(std::vector<Tokens>{{-1}}, options).status(), "is -1");
  expectUsage(s.generate(std::vector<Tokens>{Tokens(17, 1)}, options).status(), "--max-context=17");
  EXPECT_TRUE(s.generate(std::vector<Tokens>{Tokens(16, 1)}, options));
  options.maxNewTokens = 0;
  expectUsage(s.generate(std::vector<Tokens>{{1}}, options).status(), "at least one");
}

TEST_F(SessionTest, ChecksSteps) {
  Session &s = open();
  expectUsage(s.decode(1).status(), "prefill before");
  ASSERT_TRUE(s.prefill(std::vector<Tokens>{{1, 2, 3, 4}}));
  expectUsage(s.decode(0).status(), "0 steps");
  expectUsage(s.decode(13).status(), "--max-context=17");
  ASSERT_TRUE(s.decode(11));
  EXPECT_EQ(s.lengths()[0], 15);
  expectUsage(s.step(Tokens{1, 2}).status(), "2 tokens for 1 sequence");
  expectUsage(s.step(Tokens{kVocab}).status(), "0 to 49");
  Result<StepOutput> out = s.step(Tokens{20});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->next, Tokens{21});
  expectUsage(s.step(Tokens{1}).status(), "--max-context=17");
}

TEST_F(SessionTest, KeepsAPrefixOfTheState) {
  Session &s = open();
  ASSERT_TRUE(s.prefill(std::vector<Tokens>{{1, 2, 3, 4}}));
  ASSERT_TRUE(s.prefill(std::vector<Tokens>{{9}}, std::vector<int32_t>{3}));
  EXPECT_EQ(backend_->prefills.back(), std::vector<int32_t>{3});
  EXPECT_EQ(s.lengths()[0], 4);
  expectUsage(s.prefill(std::vector<Tokens>{{9}}, std::vector<int32_t>{5}).status(), "holds 4");
  expectUsage(s.prefill(std::vector<Tokens>{{9}}, std::vector<int32_t>{-1}).status(), "-1");
  expectUsage(s.prefill(std::vector<Tokens>{{9}}, std::vector<int32_t>{1, 1}).status(),
              "2 sequences");
}

TEST_F(SessionTest, WhereADevicePadsThereMustBeRoomForTheLongest) {
  Session &s = open();
  ASSERT_TRUE(s.prefill(std::vector<Tokens>{{1, 2, 3, 4}, {5}}));
  const std::vector<Tokens> more{{9}, Tokens(13, 7)};
  backend_->pads = true;
  expectUsage(s.prefill(more, std::vector<int32_t>{4, 0}).status(), "a call of its own");
  ASSERT_EQ(s.lengths().size(), 2u); // what is refused has changed nothing
  EXPECT_EQ(s.lengths()[0], 4);
  EXPECT_EQ(backend_->prefills.size(), 1u);
  backend_->pads = false;
  ASSERT_TRUE(s.prefill(more, std::vector<int32_t>{4, 0}));
  EXPECT_EQ(s.lengths()[0], 5);
}

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
} // namespace gpt2c::rt
