// A model that writes nonsense: what comes next is a function of all tokens before. It likes few
// tokens, which are letters, parts of characters and pairs, so that texts are full of what
// resembles a stop string and of bytes that are no UTF-8.
#pragma once

#include "runtime/plan/PlanWriter.h"
#include "runtime/session/Session.h"
#include "runtime/text/tokenizer/Tokenizer.h"
#include "tests/unit/runtime/text/TokenizerToy.h"

#include <cassert>
#include <memory>
#include <string>
#include <vector>

namespace gpt2c::rt::test {

constexpr int32_t kRandomVocab = 256 + 9 + 1, kRandomEos = kRandomVocab - 1;
constexpr int32_t kRandomContext = 24, kRandomBatch = 3;

/// Bytes, merges of the toy tokenizer (260 "é", 261 "ab", 262 "bc", 263 "abc" and so on), and the
/// end of text.
inline const std::vector<int32_t> &likedTokens() {
  static const std::vector<int32_t> liked = {'a',  'b',  'c',  0xC3, 0xA9, 0xE2, 0x82,      0xAC,
                                             0xF0, 0x9F, 0xFF, 261,  262,  263,  kRandomEos};
  return liked;
}

class RandomModel : public Backend {
public:
  explicit RandomModel(uint64_t seed, int chunk = 1) : seed_(seed), chunk_(chunk) {
    for (const char *name : {"prefill", "decode"}) {
      functions_.push_back(std::make_unique<plan::FunctionT>());
      functions_.back()->name = name;
    }
  }

  std::string name() const override { return "nonsense"; }
  std::string kind() const override { return "test"; }
  std::span<const std::unique_ptr<plan::FunctionT>> functions() const override {
    return functions_;
  }
  int decodeChunk() const override { return chunk_; }

  Result<StepOutput> prefill(std::span<const Tokens> sequences, std::span<const int32_t> past,
                             bool wantLogits) override {
    states_.resize(sequences.size(), {seed_});
    for (size_t b = 0; b < sequences.size(); ++b) {
      states_[b].resize(size_t(past[b]) + 1);
      for (int32_t t : sequences[b])
        append(states_[b], t);
      computed_ += int64_t(sequences[b].size());
    }
    return output(wantLogits);
  }
  Result<std::vector<Tokens>> decode(int steps) override {
    std::vector<Tokens> out;
    for (int i = 0; i < steps; ++i) {
      const Tokens last = next_;
      out.push_back(step(last, false).take().next);
    }
    return out;
  }
  Result<StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override {
    for (size_t b = 0; b < states_.size(); ++b)
      append(states_[b], tokens[b]);
    return output(wantLogits);
  }
  Result<std::vector<HostTensor>> run(const plan::FunctionT &, std::span<const HostTensor>,
                                      std::span<const int64_t>) override {
    return {Code::Unsupported, "nonsense has no graph"};
  }
  Status writeKv(int, plan::KvPart, const HostTensor &) override { return {}; }
  Result<HostTensor> readKv(int, plan::KvPart, int64_t, int64_t) override { return HostTensor(); }

  int64_t computed() const { return computed_; } ///< tokens given to prefill()

private:
  using States = std::vector<uint64_t>; ///< behind each number of tokens, none at first

  static void append(States &states, int32_t token) {
    const uint64_t state = (states.back() ^ uint64_t(token + 1)) * 0x9E3779B97F4A7C15u;
    states.push_back(state ^ state >> 29);
  }

  StepOutput output(bool wantLogits) {
    StepOutput out;
    const std::vector<int32_t> &liked = likedTokens();
    for (const States &states : states_) {
      const uint64_t state = states.back();
      out.next.push_back(liked[(state >> 32) % liked.size()]);
      if (!wantLogits)
        continue;
      std::vector<float> row(kRandomVocab, -20);
      for (size_t i = 0; i < liked.size(); ++i)
        row[liked[i]] = float((state >> i) % 4);
      row[out.next.back()] = 5;
      out.logits.insert(out.logits.end(), row.begin(), row.end());
    }
    next_ = out.next;
    return out;
  }

  uint64_t seed_;
  int chunk_;
  std::vector<std::unique_ptr<plan::FunctionT>> functions_;
  std::vector<States> states_; ///< of each sequence
  int64_t computed_ = 0;
  Tokens next_;
};

inline Tokenizer randomTokenizer() {
  TemporaryFolder files;
  Toy().writeVocabAndMerges(files);
  Result<Tokenizer> toy = Tokenizer::fromFiles(files.path());
  assert(toy && toy->vocabSize() == kRandomVocab);
  return toy.take();
}

/// Writes a plan with the sizes of the model, and the tokenizer, to `path`.
inline Status writeRandomPlan(const std::string &path) {
  PlanContents contents;
  plan::PlanT &meta = contents.meta;
  meta.compiler_version = "test";
  meta.model_name = "nonsense";
  meta.precision = "fp32";
  meta.vocab_size = kRandomVocab;
  meta.eos_token = kRandomEos;
  meta.kv = std::make_unique<plan::KvPlanT>();
  meta.kv->layers = meta.kv->heads = meta.kv->head_dim = 1;
  meta.kv->max_batch = kRandomBatch;
  meta.kv->max_context = kRandomContext;
  meta.kv->bytes_per_token = 2 * 4;
  meta.kv->bytes = meta.kv->bytes_per_token * kRandomBatch * kRandomContext;
  const std::string blob = randomTokenizer().serialize();
  contents.tokenizer = std::as_bytes(std::span(blob));
  return writePlan(path, contents);
}

} // namespace gpt2c::rt::test
