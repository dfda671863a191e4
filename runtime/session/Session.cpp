#include "runtime/session/Session.h"

#include "runtime/device/FunctionCall.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"

#include <algorithm>
#include <utility>

namespace gpt2c::rt {
namespace {

std::string number(int64_t n, const char *what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

} // namespace

Session::Session(Plan::Ptr plan, std::unique_ptr<Backend> backend)
    : plan_(std::move(plan)), backend_(std::move(backend)) {}

bool Session::hasKvState() const {
  return plan_->meta().kv && findFunction(backend_->functions(), functions::prefill) &&
         findFunction(backend_->functions(), functions::decode);
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

/// The number of sequences of a function that takes no other; 0: it takes several.
static int64_t fixedBatch(const plan::FunctionT *function) {
  if (function)
    for (const auto &port : function->inputs)
      if (port->role == plan::Role::Ids && !port->shape.empty())
        if (const auto &code = port->shape[0]->code;
            code.size() == 2 && code[0] == int64_t(ExprOp::Push))
          return code[1];
  return 0;
}

Status Session::checkBatch(size_t batch) const {
  int64_t most = plan_->meta().kv ? plan_->meta().kv->max_batch : INT64_MAX;
  if (batch == 0)
    return Status(Code::Usage, "no sequence is given");
  int64_t fixed = fixedBatch(findFunction(backend_->functions(), functions::prefill));
  if (fixed && static_cast<int64_t>(batch) != fixed)
    return Status(Code::Usage,
                  number(batch, "sequence") + " are given, the model was exported for exactly " +
                      std::to_string(fixed) + " at once; export it with a dynamic batch");
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
  if (plan_->meta().batch_invariant)
    return Status(Code::Unsupported, "the plan is batch invariant: on a GPU it runs in the engine");
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
    longest = std::max(longest, int64_t(tokens.size()));
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
    if (Status s = checkLength(kept[b] + int64_t(sequences[b].size()), what); !s.ok())
      return s;
    if (!backend_->padsPrompts())
      continue;
    if (Status s = checkLength(kept[b] + longest, what); !s.ok())
      return {s.code(), s.message() + ": the device pads it to the " +
                            number(size_t(longest), "token") +
                            " of the longest; prefill it in a call of its own"};
  }
  std::vector<Tokens> held = std::move(held_);
  endBatch(); // what the state holds after a failure is not known
  Result<StepOutput> out = backend_->prefill(sequences, kept, wantLogits);
  if (!out)
    return out;
  held.resize(sequences.size());
  for (size_t b = 0; b < sequences.size(); ++b) {
    held[b].resize(size_t(kept[b]));
    held[b].insert(held[b].end(), sequences[b].begin(), sequences[b].end());
    lengths_.push_back(static_cast<int32_t>(held[b].size()));
  }
  held_ = std::move(held);
  next_ = out->next;
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
  if (!out) {
    endBatch();
    return out;
  }
  for (const Tokens &next : *out)
    append(std::exchange(next_, next));
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
  if (!out) {
    endBatch();
    return out;
  }
  append(tokens);
  next_ = out->next;
  return out;
}

Status Session::adoptBatch(std::vector<Tokens> held) {
  endBatch();
  if (Status s = checkBatch(held.size()); !s.ok())
    return {Code::Corrupt, s.message()};
  for (size_t b = 0; b < held.size(); ++b) {
    const std::string what = "sequence " + std::to_string(b + 1) + " of the state";
    Status s = checkIds(held[b], what);
    if (s.ok())
      s = checkLength(int64_t(held[b].size()), what);
    if (!s.ok())
      return {Code::Corrupt, s.message()};
  }
  for (const Tokens &tokens : held)
    lengths_.push_back(int32_t(tokens.size()));
  held_ = std::move(held);
  return {};
}

void Session::append(std::span<const int32_t> tokens) {
  for (size_t b = 0; b < lengths_.size(); ++b) {
    held_[b].push_back(tokens[b]);
    ++lengths_[b];
  }
}

} // namespace gpt2c::rt
