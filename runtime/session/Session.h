// A session runs one plan on one device: it checks every request against what the plan holds, and
// gives the plan the exported graph's inputs and outputs back.
#pragma once

#include "runtime/device/Backend.h"
#include "runtime/sampling/Sampler.h"
#include "runtime/text/Finish.h"

#include <functional>

namespace gpt2c::rt {

struct GenerateOptions {
  int64_t maxNewTokens = 32; ///< for each sequence
  int64_t minNewTokens = 0;  ///< so many have no stop token among them
  /// A sequence ends with the first of these, which is part of the result.
  std::vector<int32_t> stopTokens;
  /// Greedy where empty, one for all prompts, or one for each.
  std::vector<SamplingParams> sampling;
  /// What becomes of a sequence that fills the context. -1: it ends. Else it goes on without the
  /// older half of what lies behind its first `slide` tokens, which is computed anew.
  int64_t slide = -1;
  /// Of one prompt: what it begins with and the KV state still holds, of the generation before, is
  /// not computed again. The answer is the same up to how the device rounds.
  bool keepsState = false;
  /// Called for every new token of a sequence, in order. False ends the sequence. Log probabilities
  /// are there where its SamplingParams ask for them.
  std::function<bool(size_t sequence, const Choice &choice)> onToken;
  /// Asked before every call of the device. False ends all sequences that have not ended.
  std::function<bool()> goesOn;
};

struct Generated {
  std::vector<Tokens> tokens; ///< the new tokens of each sequence
  std::vector<Finish> finish; ///< of each sequence; Caller: onToken or goesOn said so
  double prefillSeconds = 0;  ///< prompts in to first tokens out
  double decodeSeconds = 0;   ///< for all later tokens
  int64_t decodeSteps = 0;    ///< calls for one more token of each sequence that runs
  int64_t keptTokens = 0;     ///< of the prompt: the KV state had them, with keepsState
};

class Session {
public:
  Session(Plan::Ptr plan, std::unique_ptr<Backend> backend);

  const Plan &plan() const { return *plan_; }
  Backend &backend() { return *backend_; }
  /// Whether there is a KV state to generate with: the plan may have none, or no kernels for it on
  /// this device. Where there is not, generate() runs the whole graph for every token.
  bool hasKvState() const;
  /// The token that ends a text, -1 when the plan knows none.
  int32_t eosToken() const { return plan_->meta().eos_token; }

  /// Continues each prompt. Prompts may differ in length; more than the plan holds at once run in
  /// turn.
  Result<Generated> generate(std::span<const Tokens> prompts, const GenerateOptions &options);

  /// Backend::prefill with every argument checked; an empty `past` means zeros.
  Result<StepOutput> prefill(std::span<const Tokens> sequences, std::span<const int32_t> past = {},
                             bool wantLogits = false);
  Result<std::vector<Tokens>> decode(int steps);
  Result<StepOutput> step(std::span<const int32_t> tokens, bool wantLogits = false);
  /// Tokens that the KV state holds of each sequence of the current batch.
  std::span<const int32_t> lengths() const { return lengths_; }
  /// These tokens, of a sequence of the current batch.
  std::span<const int32_t> held(size_t sequence) const { return held_[sequence]; }
  /// Somebody has used the backend without the session.
  void endBatch() {
    lengths_.clear();
    held_.clear();
  }
  /// Somebody has written keys and values of these sequences with the backend: they are the current
  /// batch, behind which prefill() goes on. Corrupt: they are none of this model.
  Status adoptBatch(std::vector<Tokens> held);

  /// Runs the plan as the exported graph: one tensor for each of meta.exported_inputs, one result
  /// for each of meta.exported_outputs, in the element types that graph declares. Past tensors go
  /// through the KV state; the current batch ends.
  Result<std::vector<HostTensor>> forward(std::span<const HostTensor> inputs);

  /// The work of forward() on the device, timed step by step, or the `wanted` steps of it:
  /// Backend::profileRun.
  Result<FunctionProfile> profileForward(std::span<const HostTensor> inputs, int repetitions,
                                         const Backend::WantedSteps &wanted = {});

  /// The logits behind every token of sequences of one length, f32[batch, seq, vocab], as the plan
  /// computes them: not narrowed to the type that the exported graph declares. The current batch
  /// ends.
  Result<HostTensor> logits(std::span<const Tokens> sequences);
  /// Logits of one sequence whose last row is that of its last token: of every token or of the last
  /// one alone, as the graph was exported.
  Result<HostTensor> lastLogits(const Tokens &sequence);
  /// All results of @forward for such sequences, in the order of the function's outputs, as the
  /// plan computes them; an empty tensor for the KV state. The current batch ends.
  Result<std::vector<HostTensor>> results(std::span<const Tokens> sequences);

private:
  Result<std::vector<HostTensor>> wholeInputs(std::span<const Tokens> sequences);
  /// What @forward gives: logits of every token or of the last ones.
  Result<HostTensor> anyLogits(std::span<const Tokens> sequences);
  Status checkIds(std::span<const int32_t> ids, const std::string &what) const;
  Status checkBatch(size_t batch) const;
  Status checkLength(int64_t tokens, const std::string &what) const;
  Status checkGeneration(std::span<const Tokens> prompts, const GenerateOptions &options) const;
  Status needsKvState() const;
  /// The state holds one token more of each sequence.
  void append(std::span<const int32_t> tokens);

  Plan::Ptr plan_;
  std::unique_ptr<Backend> backend_;
  std::vector<int32_t> lengths_;
  std::vector<Tokens> held_; ///< [sequences][lengths_]
  Tokens next_;              ///< the device's greedy choices, which decode() takes
};

} // namespace gpt2c::rt
