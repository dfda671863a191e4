#include "runtime/Session.h"

#include "runtime/FunctionCall.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gpt2c::rt {
namespace {

class Stopwatch {
public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string number(int64_t n, const char *what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// Hands out new tokens and keeps track of which sequences have ended.
class Collector {
public:
  Collector(Generated &out, size_t batch, const GenerateOptions &options)
      : out_(out), options_(options), ended_(batch, false), running_(batch) {
    out_.tokens.resize(batch);
  }

  void add(std::span<const int32_t> next) {
    for (size_t b = 0; b < next.size(); ++b)
      add(b, next[b]);
  }

  void add(size_t sequence, int32_t token) {
    if (ended_[sequence])
      return;
    Tokens &tokens = out_.tokens[sequence];
    tokens.push_back(token);
    bool goOn = !options_.onToken || options_.onToken(sequence, token);
    ended_[sequence] = !goOn || token == options_.stopToken ||
                       static_cast<int64_t>(tokens.size()) >= options_.maxNewTokens;
    running_ -= ended_[sequence];
  }

  bool ended(size_t sequence) const { return ended_[sequence]; }
  bool done() const { return running_ == 0; }

private:
  Generated &out_;
  const GenerateOptions &options_;
  std::vector<bool> ended_;
  size_t running_;
};

/// The lowest id among the largest logits; NaN never wins.
int32_t argMax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i])))
      best = i;
  return static_cast<int32_t>(best);
}

} // namespace

Session::Session(Plan::Ptr plan, std::unique_ptr<Backend> backend)
    : plan_(std::move(plan)), backend_(std::move(backend)) {}

bool Session::hasKvState() const {
  return plan_->meta().kv && findFunction(backend_->functions(), "prefill") &&
         findFunction(backend_->functions(), "decode");
}

//===-- checks ------------------------------------------------------------------------------===//

Status Session::checkIds(std::span<const int32_t> ids, const std::string &what) const {
  int32_t vocab = plan_->meta().vocab_size;
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || (vocab > 0 && ids[i] >= vocab))
      return Status(Code::Usage, "token " + std::to_string(i + 1) + " of " + what + " is " +
                                     std::to_string(ids[i]) + "; the model's ids go from 0 to " +
                                     std::to_string(vocab - 1));
  return {};
}

Status Session::checkBatch(size_t batch) const {
  int64_t most = plan_->meta().kv ? plan_->meta().kv->max_batch : INT64_MAX;
  if (batch == 0)
    return Status(Code::Usage, "no sequence is given");
  if (static_cast<int64_t>(batch) > most)
    return Status(Code::Usage,
                  number(batch, "sequence") + " are given, the plan holds " + std::to_string(most) +
                      " at once; compile it with gpt2c --max-batch=" + std::to_string(batch));
  return {};
}

Status Session::checkLength(int64_t tokens, const std::string &what) const {
  int64_t most = plan_->meta().kv ? plan_->meta().kv->max_context : INT64_MAX;
  if (tokens > most)
    return Status(Code::Usage, what + " needs a context of " + number(tokens, "token") +
                                   ", the plan holds " + std::to_string(most) +
                                   "; where the model has more positions, compile it with gpt2c "
                                   "--max-context=" +
                                   std::to_string(tokens));
  return {};
}

Status Session::needsKvState() const {
  if (hasKvState())
    return {};
  return Status(Code::Usage, "the plan has no KV state to step with: it holds @forward only; the "
                             "remarks of gpt2c say why");
}

//===-- steps -------------------------------------------------------------------------------===//

Result<StepOutput> Session::prefill(std::span<const Tokens> sequences,
                                    std::span<const int32_t> past, bool wantLogits) {
  if (Status s = needsKvState(); !s.ok())
    return s;
  if (Status s = checkBatch(sequences.size()); !s.ok())
    return s;
  std::vector<int32_t> kept(past.begin(), past.end());
  if (past.empty())
    kept.resize(sequences.size());
  if (kept.size() != sequences.size())
    return Status(Code::Usage, "prefill got lengths of " + number(kept.size(), "sequence") +
                                   " and tokens of " + std::to_string(sequences.size()));
  int64_t longest = 0;
  for (const Tokens &tokens : sequences)
    longest = std::max<int64_t>(longest, tokens.size());
  for (size_t b = 0; b < sequences.size(); ++b) {
    std::string what = "sequence " + std::to_string(b + 1);
    if (sequences[b].empty())
      return Status(Code::Usage, what + " is empty: at least one token is needed");
    if (Status s = checkIds(sequences[b], what); !s.ok())
      return s;
    int32_t held = b < lengths_.size() ? lengths_[b] : 0;
    if (kept[b] < 0 || kept[b] > held)
      return Status(Code::Usage, what + " is to keep " + std::to_string(kept[b]) +
                                     " tokens, the KV state holds " + std::to_string(held));
    // The batch runs as one rectangle, padded on the right.
    if (Status s = checkLength(kept[b] + longest, what); !s.ok())
      return s;
  }
  lengths_.clear(); // what the state holds after a failure is not known
  Result<StepOutput> out = backend_->prefill(sequences, kept, wantLogits);
  if (out)
    for (size_t b = 0; b < sequences.size(); ++b)
      lengths_.push_back(kept[b] + static_cast<int32_t>(sequences[b].size()));
  return out;
}

Result<std::vector<Tokens>> Session::decode(int steps) {
  if (lengths_.empty())
    return Status(Code::Usage, "decode needs a prefill before it");
  if (steps < 1)
    return Status(Code::Usage, "decode got " + std::to_string(steps) + " steps");
  for (size_t b = 0; b < lengths_.size(); ++b)
    if (Status s = checkLength(int64_t(lengths_[b]) + steps, "sequence " + std::to_string(b + 1));
        !s.ok())
      return s;
  Result<std::vector<Tokens>> out = backend_->decode(steps);
  for (int32_t &length : lengths_)
    length += steps;
  if (!out)
    lengths_.clear();
  return out;
}

Result<StepOutput> Session::step(std::span<const int32_t> tokens, bool wantLogits) {
  if (tokens.size() != lengths_.size() || lengths_.empty())
    return Status(Code::Usage, "a step got " + number(tokens.size(), "token") + " for " +
                                   number(lengths_.size(), "sequence"));
  if (Status s = checkIds(tokens, "the step"); !s.ok())
    return s;
  for (size_t b = 0; b < lengths_.size(); ++b)
    if (Status s = checkLength(int64_t(lengths_[b]) + 1, "sequence " + std::to_string(b + 1));
        !s.ok())
      return s;
  Result<StepOutput> out = backend_->step(tokens, wantLogits);
  for (int32_t &length : lengths_)
    ++length;
  if (!out)
    lengths_.clear();
  return out;
}

//===-- generation --------------------------------------------------------------------------===//

Result<Generated> Session::generate(std::span<const Tokens> prompts,
                                    const GenerateOptions &options) {
  if (options.maxNewTokens < 1)
    return Status(Code::Usage, std::to_string(options.maxNewTokens) +
                                   " new tokens are asked for: at least one is needed");
  return hasKvState() ? generateCached(prompts, options) : generateWhole(prompts, options);
}

Result<Generated> Session::generateCached(std::span<const Tokens> prompts,
                                          const GenerateOptions &options) {
  // The last new token is never appended to the state.
  for (size_t b = 0; b < prompts.size(); ++b)
    if (Status s = checkLength(int64_t(prompts[b].size()) + options.maxNewTokens - 1,
                               "prompt " + std::to_string(b + 1) + " (" +
                                   number(prompts[b].size(), "token") + " and " +
                                   std::to_string(options.maxNewTokens) + " new)");
        !s.ok())
      return s;
  Generated out;
  Collector collector(out, prompts.size(), options);
  Stopwatch prefillTime;
  Result<StepOutput> first = prefill(prompts);
  if (!first)
    return first.status();
  out.prefillSeconds = prefillTime.seconds();
  collector.add(first->next);
  Stopwatch decodeTime;
  while (!collector.done()) {
    int64_t left = options.maxNewTokens - 1 - out.decodeSteps;
    int steps = static_cast<int>(std::min<int64_t>(backend_->decodeChunk(), left));
    Result<std::vector<Tokens>> more = decode(steps);
    if (!more)
      return more.status();
    out.decodeSteps += steps;
    for (const Tokens &next : *more)
      collector.add(next);
  }
  out.decodeSeconds = decodeTime.seconds();
  return out;
}

Result<Generated> Session::generateWhole(std::span<const Tokens> prompts,
                                         const GenerateOptions &options) {
  if (Status s = checkBatch(prompts.size()); !s.ok())
    return s;
  Generated out;
  Collector collector(out, prompts.size(), options);
  for (size_t b = 0; b < prompts.size(); ++b) {
    Tokens tokens = prompts[b];
    if (tokens.empty())
      return Status(Code::Usage, "prompt " + std::to_string(b + 1) + " is empty");
    if (Status s = checkIds(tokens, "prompt " + std::to_string(b + 1)); !s.ok())
      return s;
    while (!collector.ended(b)) {
      Stopwatch time;
      Result<HostTensor> all = logits({&tokens, 1});
      if (!all)
        return all.status();
      tokens.push_back(argMax(all->values<float>().last(size_t(all->shape.back()))));
      bool first = tokens.size() == prompts[b].size() + 1;
      (first ? out.prefillSeconds : out.decodeSeconds) += time.seconds();
      out.decodeSteps += !first;
      collector.add(b, tokens.back());
    }
  }
  return out;
}

} // namespace gpt2c::rt
