// A session over a backend that plays a model whose next token is the last one plus one.
#pragma once

#include "runtime/plan/Expr.h"
#include "runtime/session/Session.h"
#include "tests/unit/runtime/PlanSample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include <unistd.h>

namespace gpt2c::rt::sessions {

inline constexpr int32_t kVocab = 50, kContext = 16, kMaxBatch = 2;

inline std::unique_ptr<plan::SymbolT> symbol(const char *name, int64_t min, int64_t max) {
  auto s = std::make_unique<plan::SymbolT>();
  s->name = name;
  s->min = min;
  s->max = max;
  return s;
}

inline std::unique_ptr<plan::PortT> port(const char *name, plan::DType dtype, plan::Role role,
                                         std::vector<plan::ExprT> shape) {
  auto p = std::make_unique<plan::PortT>();
  p->name = name;
  p->dtype = p->exported_dtype = dtype;
  p->role = role;
  for (plan::ExprT &e : shape)
    p->shape.push_back(sample::boxed(std::move(e)));
  return p;
}

inline std::unique_ptr<plan::ExportedPortT> exported(const char *name, plan::DType dtype,
                                                     plan::Role role,
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
inline std::vector<std::unique_ptr<plan::FunctionT>> makeFunctions() {
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

} // namespace gpt2c::rt::sessions
