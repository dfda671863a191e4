// The CPU device on plans assembled from IR text.
#include "cpu/CpuBackend.h"
#include "cpu/PlanModule.h"
#include "ir/Text.h"
#include "runtime/plan/PlanWriter.h"
#include "runtime/session/Session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include <unistd.h>

namespace gpt2c {
namespace {

// One attention over a vocabulary of 8 with width 4: logits are the attention's output times a
// table, so every token depends on all before it.
constexpr const char *kModel = R"(module @tiny {}

func @forward(%ids: i32[batch, seq], %kv: f32[1, 2, slots, 2, 6, 2], %past: i32[batch])
    -> (%logits: f32[batch, seq, 8], %kv: f32[1, 2, slots, 2, 6, 2]) {
  %wte = constant weight<"WTE"> : f32[8, 4]
  %qkv = constant weight<"QKV"> : f32[12, 4]
  %x = gather(%wte, %ids) : f32[batch, seq, 4]
  %p = linear(%x, %qkv) : f32[batch, seq, 12]
  %s, %y = append_attention(%kv, %p, %past) {layer = 0, num_heads = 2, scale = 0.7}
      : f32[1, 2, slots, 2, 6, 2], f32[batch, seq, 4]
  %logits = linear(%y, %wte) : f32[batch, seq, 8]
  return %logits, %s
}

func @prefill(%ids: i32[batch, seq], %kv: f32[1, 2, slots, 2, 6, 2], %past: i32[batch],
        %length: i32[batch])
    -> (%next: i32[batch], %logits: f32[batch, 8], %kv: f32[1, 2, slots, 2, 6, 2]) {
  %wte = constant weight<"WTE"> : f32[8, 4]
  %qkv = constant weight<"QKV"> : f32[12, 4]
  %x = gather(%wte, %ids) : f32[batch, seq, 4]
  %p = linear(%x, %qkv) : f32[batch, seq, 12]
  %s, %y = append_attention(%kv, %p, %past) {layer = 0, num_heads = 2, scale = 0.7}
      : f32[1, 2, slots, 2, 6, 2], f32[batch, seq, 4]
  %last = gather_last(%y, %length) : f32[batch, 4]
  %logits = linear(%last, %wte) : f32[batch, 8]
  %next = arg_max(%logits) {axis = -1, keepdims = false, dtype = i32} : i32[batch]
  return %next, %logits, %s
}

func @decode(%ids: i32[batch, 1], %kv: f32[1, 2, slots, 2, 6, 2], %past: i32[batch])
    -> (%next: i32[batch], %logits: f32[batch, 8], %kv: f32[1, 2, slots, 2, 6, 2]) {
  %wte = constant weight<"WTE"> : f32[8, 4]
  %qkv = constant weight<"QKV"> : f32[12, 4]
  %x = gather(%wte, %ids) : f32[batch, 1, 4]
  %p = linear(%x, %qkv) : f32[batch, 1, 12]
  %s, %y = append_attention(%kv, %p, %past) {layer = 0, num_heads = 2, scale = 0.7}
      : f32[1, 2, slots, 2, 6, 2], f32[batch, 1, 4]
  %last = reshape(%y) {shape = [batch, 4]} : f32[batch, 4]
  %logits = linear(%last, %wte) : f32[batch, 8]
  %next = arg_max(%logits) {axis = -1, keepdims = false, dtype = i32} : i32[batch]
  return %next, %logits, %s
}
)";

void replaceAll(std::string &text, const std::string &from, const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

Tensor waves(llvm::ArrayRef<int64_t> shape, float step) {
  Tensor t(DType::F32, shape);
  for (int64_t i = 0; i < t.count(); ++i)
    t.data<float>()[i] = std::sin(step * static_cast<float>(i * i + 1));
  return t;
}

class CpuBackendTest : public ::testing::Test {
protected:
  void SetUp() override {
    replaceAll(text_, "WTE", hashText(weights_[0].hash()));
    replaceAll(text_, "QKV", hashText(weights_[1].hash()));
  }

  rt::Plan::Ptr makePlan() {
    rt::PlanContents contents;
    plan::PlanT &meta = contents.meta;
    meta.compiler_version = "test";
    meta.precision = "fp32";
    meta.vocab_size = 8;
    meta.kv = std::make_unique<plan::KvPlanT>();
    meta.kv->layers = 1;
    meta.kv->heads = 2;
    meta.kv->head_dim = 2;
    meta.kv->max_batch = 3;
    meta.kv->max_context = 6;
    meta.kv->bytes_per_token = 2 * 2 * 2 * 4;
    meta.kv->bytes = meta.kv->bytes_per_token * 3 * 6;
    for (const Tensor &t : weights_) {
      auto weight = std::make_unique<plan::WeightT>();
      weight->name = hashText(t.hash());
      weight->shape.assign(t.shape().begin(), t.shape().end());
      meta.weights.push_back(std::move(weight));
      contents.weights.push_back({static_cast<const std::byte *>(t.raw()), t.bytes()});
    }
    for (bool input : {true, false}) {
      auto port = std::make_unique<plan::ExportedPortT>();
      port->name = input ? "input_ids" : "out";
      port->dtype = input ? plan::DType::I64 : plan::DType::F32;
      port->role = input ? plan::Role::Ids : plan::Role::Logits;
      (input ? meta.exported_inputs : meta.exported_outputs).push_back(std::move(port));
    }
    contents.irText = text_;
    auto path = std::filesystem::temp_directory_path() /
                ("gpt2c-cpu-" + std::to_string(::getpid()) + ".plan");
    rt::Status written = rt::writePlan(path, contents);
    EXPECT_TRUE(written.ok()) << written.message();
    rt::Result<rt::Plan::Ptr> plan = rt::Plan::open(path);
    std::filesystem::remove(path);
    EXPECT_TRUE(plan) << plan.status().message();
    return *plan;
  }

  std::unique_ptr<rt::Session> open() {
    rt::Plan::Ptr plan = makePlan();
    rt::Result<std::unique_ptr<rt::Backend>> backend = makeCpuBackend(plan, {.threads = 1});
    EXPECT_TRUE(backend) << backend.status().message();
    return std::make_unique<rt::Session>(plan, backend.take());
  }

  /// The logits after the last of `tokens`, in double precision from the formulas.
  std::vector<double> expected(const rt::Tokens &tokens) {
    const float *wte = weights_[0].data<float>(), *w = weights_[1].data<float>();
    std::vector<std::vector<double>> rows; // q, k, v of each token
    for (int32_t t : tokens) {
      std::vector<double> row(12);
      for (int i = 0; i < 12; ++i)
        for (int k = 0; k < 4; ++k)
          row[i] += double(wte[t * 4 + k]) * w[i * 4 + k];
      rows.push_back(row);
    }
    double y[4] = {};
    for (int h = 0; h < 2; ++h) {
      double sum = 0, out[2] = {};
      for (const auto &row : rows) {
        double score = 0;
        for (int i = 0; i < 2; ++i)
          score += 0.7 * rows.back()[h * 2 + i] * row[4 + h * 2 + i];
        double p = std::exp(score);
        sum += p;
        for (int i = 0; i < 2; ++i)
          out[i] += p * row[8 + h * 2 + i];
      }
      for (int i = 0; i < 2; ++i)
        y[h * 2 + i] = out[i] / sum;
    }
    std::vector<double> logits(8);
    for (int v = 0; v < 8; ++v)
      for (int k = 0; k < 4; ++k)
        logits[v] += y[k] * wte[v * 4 + k];
    return logits;
  }

  void expectLogits(std::span<const float> got, const rt::Tokens &tokens) {
    std::vector<double> want = expected(tokens);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-5) << "after " << tokens.size() << " tokens, logit " << i;
  }

  std::vector<Tensor> weights_{waves({8, 4}, 0.37f), waves({12, 4}, 0.21f)};
  std::string text_ = kModel;
};

TEST_F(CpuBackendTest, StepsAgreeWithTheFormulas) {
  std::unique_ptr<rt::Session> s = open();
  std::vector<rt::Tokens> batch{{1, 2, 3}, {7}, {4, 0}};
  rt::Result<rt::StepOutput> out = s->prefill(batch, {}, true);
  ASSERT_TRUE(out) << out.status().message();
  for (int b = 0; b < 3; ++b)
    expectLogits(std::span(out->logits).subspan(b * 8, 8), batch[b]);
  for (rt::Tokens given : {rt::Tokens{5, 6, 7}, rt::Tokens{0, 3, 3}}) {
    out = s->step(given, true);
    ASSERT_TRUE(out) << out.status().message();
    for (int b = 0; b < 3; ++b) {
      batch[b].push_back(given[b]);
      expectLogits(std::span(out->logits).subspan(b * 8, 8), batch[b]);
    }
  }
}

TEST_F(CpuBackendTest, ATraceHandsOverWhatEachOpComputes) {
  std::unique_ptr<rt::Session> s = open();
  std::vector<rt::Tokens> batch{{1, 2, 3}, {4, 0, 5}}, last{{6}, {7}};
  auto trace = [&](const char *function, std::span<const rt::Tokens> tokens, int32_t past) {
    std::vector<std::pair<int, rt::HostTensor>> out;
    size_t before = 0;
    auto done =
        s->backend().trace(function, tokens, std::vector<int32_t>(2, past),
                           [&](size_t step, int value, rt::HostTensor tensor) -> rt::Status {
                             EXPECT_GE(step, before);
                             before = step;
                             out.push_back({value, std::move(tensor)});
                             return {};
                           });
    EXPECT_TRUE(done) << done.status().message();
    EXPECT_EQ((*done)->name, function);
    return out;
  };
  // gather, linear, the attention's rows behind the state, gather_last, linear: behind two
  // constants
  const auto prefill = trace("prefill", batch, 0);
  ASSERT_EQ(prefill.size(), 5u);
  const int numbers[] = {2, 3, 5, 6, 7};
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(prefill[i].first, numbers[i]);
  EXPECT_EQ(prefill[1].second.shape, (std::vector<int64_t>{2, 3, 12}));
  for (int b = 0; b < 2; ++b)
    expectLogits(prefill[4].second.values<float>().subspan(b * 8, 8), batch[b]);
  // The state is that of the call.
  const auto decode = trace("decode", last, 3);
  for (int b = 0; b < 2; ++b) {
    batch[b].push_back(last[b][0]);
    expectLogits(decode.back().second.values<float>().subspan(b * 8, 8), batch[b]);
  }
  auto stopped = s->backend().trace(
      "prefill", batch, std::vector<int32_t>(2, 0),
      [](size_t, int, const rt::HostTensor &) { return rt::Status(rt::Code::Io, "full"); });
  EXPECT_EQ(stopped.status().code(), rt::Code::Io);
}

TEST_F(CpuBackendTest, DecodeFollowsTheGreedyChoice) {
  std::unique_ptr<rt::Session> s = open();
  rt::Tokens tokens{2, 5};
  rt::Result<rt::StepOutput> first = s->prefill(std::vector<rt::Tokens>{tokens});
  ASSERT_TRUE(first);
  rt::Result<std::vector<rt::Tokens>> more = s->decode(4);
  ASSERT_TRUE(more);
  rt::Tokens got{first->next[0]};
  for (const rt::Tokens &step : *more)
    got.push_back(step[0]);
  for (int32_t token : got) {
    std::vector<double> logits = expected(tokens);
    EXPECT_EQ(token, std::ranges::max_element(logits) - logits.begin());
    tokens.push_back(token);
  }
}

TEST_F(CpuBackendTest, AKeptPrefixIsNotComputedAgain) {
  std::unique_ptr<rt::Session> s = open();
  ASSERT_TRUE(s->prefill(std::vector<rt::Tokens>{{1, 2, 3, 4}}));
  rt::Result<rt::StepOutput> out =
      s->prefill(std::vector<rt::Tokens>{{6, 0}}, std::vector<int32_t>{2}, true);
  ASSERT_TRUE(out);
  expectLogits(out->logits, {1, 2, 6, 0});
}

// Padded to six tokens the first sequence would reach beyond its context.
TEST_F(CpuBackendTest, ASequenceIsNotPaddedToAnother) {
  std::unique_ptr<rt::Session> s = open();
  ASSERT_TRUE(s->prefill(std::vector<rt::Tokens>{{1, 2, 3, 4}, {5}, {6}}));
  rt::Result<rt::StepOutput> out =
      s->prefill(std::vector<rt::Tokens>{{6}, {0, 1, 2, 3, 4, 5}, {7, 1}},
                 std::vector<int32_t>{4, 0, 1}, true);
  ASSERT_TRUE(out) << out.status().message();
  ASSERT_EQ(out->next.size(), 3u);
  expectLogits(std::span(out->logits).subspan(0, 8), {1, 2, 3, 4, 6});
  expectLogits(std::span(out->logits).subspan(8, 8), {0, 1, 2, 3, 4, 5});
  expectLogits(std::span(out->logits).subspan(16, 8), {6, 7, 1});
  for (int b = 0; b < 3; ++b) {
    std::span<const float> logits = std::span(out->logits).subspan(b * 8, 8);
    EXPECT_EQ(out->next[b], std::ranges::max_element(logits) - logits.begin());
  }
}

TEST_F(CpuBackendTest, ForwardGivesLogitsOfEveryToken) {
  std::unique_ptr<rt::Session> s = open();
  rt::HostTensor ids(plan::DType::I64, {1, 3});
  for (int64_t i = 0; i < 3; ++i)
    ids.values<int64_t>()[i] = 7 - 2 * i;
  rt::Result<std::vector<rt::HostTensor>> out = s->forward(std::span(&ids, 1));
  ASSERT_TRUE(out) << out.status().message();
  std::span<const float> logits = (*out)[0].values<float>();
  expectLogits(logits.subspan(0, 8), {7});
  expectLogits(logits.subspan(8, 8), {7, 5});
  expectLogits(logits.subspan(16, 8), {7, 5, 3});
}

TEST_F(CpuBackendTest, TheStateIsReadAndWritten) {
  std::unique_ptr<rt::Session> s = open();
  ASSERT_TRUE(s->prefill(std::vector<rt::Tokens>{{1, 2, 3}, {4, 5, 6}}));
  rt::Backend &device = s->backend();
  auto keys = device.readKv(0, plan::KvPart::Key, 2, 3);
  auto values = device.readKv(0, plan::KvPart::Value, 2, 3);
  ASSERT_TRUE(keys && values);
  EXPECT_EQ(keys->shape, (std::vector<int64_t>{2, 2, 3, 2}));
  // Written into another session's state, they continue there as they would here.
  std::unique_ptr<rt::Session> other = open();
  ASSERT_TRUE(other->prefill(std::vector<rt::Tokens>{{0, 0, 0}, {0, 0, 0}}));
  ASSERT_TRUE(other->backend().writeKv(0, plan::KvPart::Key, *keys).ok());
  ASSERT_TRUE(other->backend().writeKv(0, plan::KvPart::Value, *values).ok());
  auto out = other->step(rt::Tokens{7, 7}, true);
  ASSERT_TRUE(out);
  expectLogits(std::span(out->logits).first(8), {1, 2, 3, 7});
  expectLogits(std::span(out->logits).last(8), {4, 5, 6, 7});
}

TEST_F(CpuBackendTest, WeightsAreBorrowedFromThePlan) {
  rt::Plan::Ptr plan = makePlan();
  auto module = loadPlanModule(plan);
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  unsigned constants = 0;
  for (auto &f : (*module)->functions)
    for (auto &op : f->ops())
      if (op->is(OpCode::Constant)) {
        ++constants;
        auto *bytes = static_cast<const std::byte *>(op->constant.raw());
        EXPECT_GE(bytes, plan->weights().data());
        EXPECT_LT(bytes, plan->weights().data() + plan->weights().size());
      }
  EXPECT_EQ(constants, 6u);
}

/// As @prefill, but that token 7 makes its logits NaN.
constexpr const char *kExtend = R"(
func @extend(%ids: i32[1, rows], %positions: i32[1, rows], %kv: f32[pages, 1, 2, 2, 4, 2],
        %pieces: i32[pieces, 4], %tables: i32[sequences, 2], %last: i32[segments])
    -> (%next: i32[segments], %logits: f32[segments, 8], %kv: f32[pages, 1, 2, 2, 4, 2]) {
  %wte = constant weight<"WTE"> : f32[8, 4]
  %qkv = constant weight<"QKV"> : f32[12, 4]
  %x = gather(%wte, %ids) : f32[1, rows, 4]
  %p = linear(%x, %qkv) : f32[1, rows, 12]
  %s, %y = append_attention(%kv, %p, %pieces, %tables)
      {layer = 0, num_heads = 2, scale = 0.7, paged = true}
      : f32[pages, 1, 2, 2, 4, 2], f32[1, rows, 4]
  %flat = reshape(%y) {shape = [rows, 4]} : f32[rows, 4]
  %rows = gather(%flat, %last) : f32[segments, 4]
  %number = cast(%ids) {to = f32} : f32[1, rows]
  %bound = constant dense<6.5> : f32[]
  %rest = sub(%bound, %number) : f32[1, rows]
  %root = sqrt(%rest) : f32[1, rows]
  %line = reshape(%root) {shape = [rows, 1]} : f32[rows, 1]
  %ends = gather(%line, %last) : f32[segments, 1]
  %scaled = mul(%rows, %ends) : f32[segments, 4]
  %logits = linear(%scaled, %wte) : f32[segments, 8]
  %next = arg_max(%logits) {axis = -1, keepdims = false, dtype = i32} : i32[segments]
  return %next, %logits, %s
}
)";

TEST_F(CpuBackendTest, ASegmentWhoseLogitsAreNaNEndsAlone) {
  text_ += kExtend;
  SetUp();
  rt::Plan::Ptr plan = makePlan();
  auto backend = makeCpuBackend(plan, {.threads = 1});
  ASSERT_TRUE(backend) << backend.status().message();
  rt::Status allocated = (*backend)->allocatePages(0);
  ASSERT_TRUE(allocated.ok()) << allocated.message();
  const int32_t sound[] = {1, 2}, broken[] = {3, 7}, next[] = {0};
  const int32_t pages[3][2] = {{0, 1}, {2, 3}};
  std::vector<rt::Segment> segments = {{.tokens = sound, .pages = pages[0], .wantLogits = true},
                                       {.tokens = broken, .pages = pages[1]}};
  ASSERT_TRUE((*backend)->extend(segments).ok());
  auto first = (*backend)->extended();
  ASSERT_TRUE(first) << first.status().message();
  EXPECT_GE(first->next[0], 0);
  EXPECT_EQ(first->next[1], -1);
  // What carries the lost choice is computed, beside the others.
  segments = {{.tokens = next, .past = 2, .pages = pages[0], .carry = 0},
              {.tokens = next, .past = 2, .pages = pages[1], .carry = 1}};
  ASSERT_TRUE((*backend)->extend(segments).ok());
  auto second = (*backend)->extended();
  ASSERT_TRUE(second) << second.status().message();
  EXPECT_EQ(second->next.size(), 2u);
}

TEST_F(CpuBackendTest, ABrokenIrIsRefused) {
  std::string good = text_;
  text_ = "module @tiny {}\nfunc @forward(%x: f32[2]) -> ";
  EXPECT_EQ(makeCpuBackend(makePlan(), {}).status().code(), rt::Code::Corrupt);
  text_ = good;
  replaceAll(text_, hashText(weights_[1].hash()), "0123456789abcdef");
  rt::Status missing = makeCpuBackend(makePlan(), {}).status();
  EXPECT_EQ(missing.code(), rt::Code::Corrupt);
  EXPECT_NE(missing.message().find("0123456789abcdef"), std::string::npos) << missing.message();
}

} // namespace
} // namespace gpt2c
