#include "runtime/cuda/CudaBackendClass.h"
#include "runtime/plan/FunctionNames.h"

#include <algorithm>
#include <bit>

namespace gpt2c::rt::cuda {

using Shapes = std::vector<std::vector<int64_t>>;

//===-- ports of @prefill, @decode and @advance -----------------------------------------------===//

Result<CUdeviceptr> CudaBackend::stepInput(const plan::FunctionT &function,
                                           const plan::PortT &port) const {
  switch (port.role) {
  case plan::Role::Ids:
    return state_.device(function.name == functions::prefill ? StepState::Prompt
                                                             : StepState::StepIds);
  case plan::Role::Past:
    return state_.device(StepState::Past);
  case plan::Role::Length:
    return state_.device(StepState::Length);
  case plan::Role::NextToken:
    return state_.device(StepState::Next);
  case plan::Role::KvState:
    return whyNoState_.ok() ? Result<CUdeviceptr>(kv_.address()) : whyNoState_;
  default:
    break;
  }
  bool advances = function.name == functions::advance || function.name == functions::generate;
  if (advances && port.name == "tokens")
    return state_.mapped(StepState::Chosen);
  if (advances && port.name == "step")
    return state_.device(StepState::Step);
  return {Code::Corrupt, "@" + function.name + " in the plan takes '" + port.name +
                             "', which has no meaning there"};
}

Result<CUdeviceptr> CudaBackend::stepOutput(const plan::FunctionT &function,
                                            const plan::PortT &port) const {
  switch (port.role) {
  case plan::Role::NextToken:
    if (function.name == functions::prefill)
      return state_.mapped(StepState::Next);
    return state_.device(StepState::Next);
  case plan::Role::Logits:
    return logits_.address();
  case plan::Role::KvState:
    return whyNoState_.ok() ? Result<CUdeviceptr>(kv_.address()) : whyNoState_;
  default:
    return {Code::Corrupt, "@" + function.name + " in the plan returns '" + port.name +
                               "', which has no meaning there"};
  }
}

/// `steps` is what a symbol is that no shape determines: how often @generate runs its step. Logits
/// that are not wanted are not computed where the plan can do without.
Result<CudaBackend::BoundPtr> CudaBackend::bindStep(const std::string &name, int64_t seq,
                                                    bool wantLogits, int64_t steps) {
  constexpr size_t mostBound = 256;
  BoundKey key{name, batch_, seq, wantLogits, steps};
  auto it = bound_.find(key);
  if (it == bound_.end()) {
    Result<Bound> bound = bind(name, seq, wantLogits, steps);
    if (!bound)
      return bound.status();
    if (bound_.size() >= mostBound)
      bound_.clear();
    it = bound_.emplace(std::move(key), std::make_shared<const Bound>(bound.take())).first;
  }
  return it->second;
}

Result<CudaBackend::Bound> CudaBackend::bind(const std::string &name, int64_t seq, bool wantLogits,
                                             int64_t steps) const {
  const plan::FunctionT *any = findFunction(functions(), name);
  if (!any)
    return {Code::Incompatible, "the plan has no @" + std::string(name) +
                                    " for a GPU; the CPU runs every plan: --device=cpu"};
  // All functions of one name have the same ports, but for which are optional.
  Bound bound;
  Shapes shapes;
  for (const auto &port : any->inputs) {
    Result<CUdeviceptr> address = stepInput(*any, *port);
    if (!address)
      return address.status();
    bound.inputs.push_back(*address);
    if (port->role == plan::Role::Ids)
      shapes.push_back({batch_, seq});
    else if (*address == state_.mapped(StepState::Chosen))
      shapes.push_back({kvPlan().max_context, batch_});
    else if (*address == state_.device(StepState::Step))
      shapes.push_back({1});
    else
      shapes.push_back({batch_});
  }
  for (const auto &port : any->outputs) {
    Result<CUdeviceptr> address = stepOutput(*any, *port);
    if (!address)
      return address.status();
    bound.outputs.push_back(*address);
  }
  Result<FunctionCall> call = chooseFunction(functions(), &kvPlan(), name, shapes, steps);
  if (!call)
    return call.status();
  bound.call = call.take();
  for (size_t i = 0; i < bound.outputs.size(); ++i) {
    const plan::PortT &port = *bound.call.function->outputs[i];
    if (!wantLogits && port.role == plan::Role::Logits && port.optional)
      bound.outputs[i] = 0;
  }
  return bound;
}

//===-- prefill -----------------------------------------------------------------------------===//

/// What the plan's functions do for the current batch.
const CudaBackend::Limits &CudaBackend::limits() {
  if (limits_.batch == batch_)
    return limits_;
  limits_ = {.batch = batch_};
  for (const auto &function : functions())
    for (const auto &port : function->inputs) {
      if (port->role != plan::Role::Ids || largestDim(*function, *port->shape[0]) < batch_)
        continue;
      if (function->name == functions::prefill)
        limits_.prefillWidth =
            std::max(limits_.prefillWidth, largestDim(*function, *port->shape[1]));
      else if (function->name == functions::generate)
        limits_.persistent |= executor_->stageProblem(*function).empty();
    }
  return limits_;
}

/// How many tokens a run of @prefill for `width` takes when there is room for `room`. Products
/// compute 64 rows at a time, and fewer at the end of a tile are no faster, often slower; so
/// lengths in between share a graph. Few rows have kernels whose time goes by their number.
int64_t CudaBackend::paddedWidth(int64_t width, int64_t room) const {
  constexpr int64_t tile = 64, few = 32;
  const int64_t unit = std::max<int64_t>(1, tile / batch_);
  const int64_t padded = (width + unit - 1) / unit * unit;
  return batch_ * width <= few || padded > room ? width : padded;
}

/// Appends tokens first to first + width - 1 of every sequence and leaves the choices in the host's
/// Next.
///
/// Padding, all of a sequence's row when it ended before, is computed and written behind the tokens
/// it has, where the next append overwrites it.
Status CudaBackend::prefillChunk(std::span<const Tokens> sequences, std::span<const int32_t> past,
                                 int64_t first, int64_t width, bool wantLogits) {
  int64_t room = limits().prefillWidth;
  for (int64_t b = 0; b < batch_; ++b)
    room = std::min(room,
                    kvPlan().max_context - past[b] - std::min<int64_t>(first, sequences[b].size()));
  width = paddedWidth(width, room);
  int32_t *prompt = state_.host(StepState::Prompt);
  std::fill_n(prompt, batch_ * width, 0);
  for (int64_t b = 0; b < batch_; ++b) {
    const Tokens &tokens = sequences[b];
    int64_t size = static_cast<int64_t>(tokens.size());
    int64_t from = std::min(first, size), to = std::min(first + width, size);
    std::copy(tokens.begin() + from, tokens.begin() + to, prompt + b * width);
    state_.host(StepState::Past)[b] = past[b] + static_cast<int32_t>(from);
    state_.host(StepState::Length)[b] = static_cast<int32_t>(to - from);
  }
  Result<BoundPtr> bound = bindStep(functions::prefill, width, wantLogits);
  if (!bound)
    return bound.status();
  const std::span<int32_t> next(state_.host(StepState::Next), batch_);
  return timed(next, [&]() -> Status {
    if (Status s = state_.push(StepState::Past, StepState::Prompt, batch_ * width); !s.ok())
      return s;
    // Prompts differ in length more often than not: what comes once is not worth a graph.
    const std::function<Status()> launches = [&] { return enqueue(**bound); };
    const GraphCache::Key key = (*bound)->key();
    if (Status s = depart({{key, {bound->get()}, launches}}); !s.ok())
      return s;
    return graphs_.run(key, 1, launches);
  });
}

Result<StepOutput> CudaBackend::prefill(std::span<const Tokens> sequences,
                                        std::span<const int32_t> past, bool wantLogits) {
  if (Status s = begin(); !s.ok())
    return s;
  batch_ = static_cast<int64_t>(sequences.size());
  int64_t longest = 0;
  for (const Tokens &tokens : sequences)
    longest = std::max(longest, static_cast<int64_t>(tokens.size()));
  int64_t width = std::clamp<int64_t>(limits().prefillWidth, 1, longest);
  StepOutput out;
  out.next.resize(sequences.size());
  std::vector<float> logits;
  for (int64_t first = 0; first < longest; first += width) {
    int64_t now = std::min(width, longest - first);
    if (Status s = prefillChunk(sequences, past, first, now, wantLogits); !s.ok())
      return s;
    if (wantLogits)
      if (Status s = readLogits(sequences.size(), logits); !s.ok())
        return s;
    size_t vocab = logits.size() / sequences.size();
    out.logits.resize(logits.size());
    for (size_t b = 0; b < sequences.size(); ++b) {
      int64_t size = static_cast<int64_t>(sequences[b].size());
      if (size <= first || size > first + now)
        continue; // it ends in another chunk
      out.next[b] = state_.host(StepState::Next)[b];
      std::copy_n(logits.begin() + b * vocab, vocab, out.logits.begin() + b * vocab);
    }
  }
  for (size_t b = 0; b < sequences.size(); ++b) {
    state_.host(StepState::Past)[b] = past[b] + static_cast<int32_t>(sequences[b].size());
    state_.host(StepState::StepIds)[b] = out.next[b];
  }
  hostAhead_ = true;
  return out;
}

Status CudaBackend::readLogits(size_t rows, std::vector<float> &to) {
  size_t vocab = static_cast<size_t>(plan_->meta().vocab_size);
  if (rows * vocab * sizeof(float) > logits_.bytes())
    return {Code::Corrupt, "the plan computes no logits of its " + std::to_string(vocab) + " ids"};
  to.resize(rows * vocab);
  return device_->download(to.data(), logits_.address(), to.size() * sizeof(float));
}

//===-- decode ------------------------------------------------------------------------------===//

std::string CudaBackend::note() const {
  const plan::FunctionT *generate = findFunction(functions(), functions::generate);
  if (!generate || executor_->stageProblem(*generate).empty())
    return {};
  return "decode runs as a graph, not as the plan's persistent kernel: " +
         executor_->stageProblem(*generate);
}

/// Runs `steps` steps, at most max_context, and returns their choices, [steps][batch] in the host's
/// Chosen. The choice of each step is the input of the next: @advance moves it there, so the host
/// takes no part.
Result<std::span<const int32_t>> CudaBackend::decodeSteps(int steps, bool wantLogits) {
  if (hostAhead_)
    if (Status s = state_.push(StepState::Past, StepState::StepIds, batch_); !s.ok())
      return s;
  hostAhead_ = false;
  int64_t first = stepsTaken_;
  stepsTaken_ = -1; // unless all goes well
  if (first < 0 || first + steps > kvPlan().max_context) {
    first = 0;
    if (Status s = state_.zero(StepState::Step, 1); !s.ok())
      return s;
  }
  const std::span<int32_t> chosen(state_.host(StepState::Chosen) + first * batch_, steps * batch_);
  Status done = timed(chosen, [&] {
    return limits().persistent ? generateSteps(steps, wantLogits) : advanceSteps(steps, wantLogits);
  });
  if (!done.ok())
    return done;
  stepsTaken_ = first + steps;
  return std::span<const int32_t>(chosen);
}

/// Enqueues them as launches of @generate. Each number of steps has a table on the device: few
/// numbers, so that these need not be given up again.
Status CudaBackend::generateSteps(int steps, bool wantLogits) {
  for (int left = steps; left > 0;) {
    const int count = left > kGraphSteps ? static_cast<int>(std::bit_floor(unsigned(left))) : left;
    Result<BoundPtr> generate = bindStep(functions::generate, 1, wantLogits, count);
    if (!generate)
      return generate.status();
    // The first launch makes the table, which a capture could not.
    const std::function<Status()> launches = [&] { return enqueue(**generate); };
    const GraphCache::Key key = (*generate)->key();
    if (Status s = depart({{key, {generate->get()}, launches}}); !s.ok())
      return s;
    if (Status s = graphs_.run(key, 1, launches); !s.ok())
      return s;
    left -= count;
  }
  return {};
}

/// Enqueues them as graphs of @decode and @advance.
Status CudaBackend::advanceSteps(int steps, bool wantLogits) {
  Result<BoundPtr> decode = bindStep(functions::decode, 1, wantLogits);
  if (!decode)
    return decode.status();
  Result<BoundPtr> advance = bindStep(functions::advance, 1, wantLogits);
  if (!advance)
    return advance.status();
  for (int left = steps; left > 0;) {
    const int count = left >= kGraphSteps ? kGraphSteps : 1;
    const std::function<Status()> launches = [&]() -> Status {
      for (int i = 0; i < count; ++i) {
        if (Status s = enqueue(**decode); !s.ok())
          return s;
        if (Status s = enqueue(**advance); !s.ok())
          return s;
      }
      return {};
    };
    const GraphCache::Key key = (*decode)->key(count);
    if (Status s = depart({{key, {}, launches}}); !s.ok())
      return s;
    if (Status s = graphs_.run(key, 0, launches); !s.ok())
      return s;
    left -= count;
  }
  return {};
}

Result<std::vector<Tokens>> CudaBackend::decode(int steps) {
  if (Status s = begin(); !s.ok())
    return s;
  std::vector<Tokens> out;
  while (static_cast<int>(out.size()) < steps) {
    int now = std::min(steps - static_cast<int>(out.size()), kvPlan().max_context);
    Result<std::span<const int32_t>> chosen = decodeSteps(now, false);
    if (!chosen)
      return chosen.status();
    for (auto row = chosen->begin(); row != chosen->end(); row += batch_)
      out.emplace_back(row, row + batch_);
  }
  return out;
}

Result<StepOutput> CudaBackend::step(std::span<const int32_t> tokens, bool wantLogits) {
  if (Status s = begin(); !s.ok())
    return s;
  std::ranges::copy(tokens, state_.host(StepState::StepIds));
  if (!hostAhead_)
    if (Status s = state_.push(StepState::StepIds, StepState::StepIds, batch_); !s.ok())
      return s;
  Result<std::span<const int32_t>> chosen = decodeSteps(1, wantLogits);
  if (!chosen)
    return chosen.status();
  StepOutput out;
  out.next.assign(chosen->begin(), chosen->end());
  if (wantLogits)
    if (Status s = readLogits(tokens.size(), out.logits); !s.ok())
      return s;
  return out;
}

} // namespace gpt2c::rt::cuda
