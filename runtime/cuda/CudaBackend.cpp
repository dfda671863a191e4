#include "runtime/cuda/CudaBackend.h"

#include "runtime/Expr.h"
#include "runtime/FunctionCall.h"
#include "runtime/KvLayout.h"
#include "runtime/cuda/CudaExecutor.h"
#include "runtime/cuda/GraphCache.h"
#include "runtime/cuda/HostPorts.h"
#include "runtime/cuda/StepProfiler.h"
#include "runtime/cuda/StepState.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <map>
#include <tuple>

namespace gpt2c::rt {

using namespace cuda;

namespace {

/// Decode steps of one graph: enough to hide what a launch of it costs, few enough to show text
/// as it grows.
constexpr int kGraphSteps = 16;

using Shapes = std::vector<std::vector<int64_t>>;

/// The largest value of a dimension.
int64_t largest(const plan::FunctionT &function, const plan::ExprT &dim) {
  std::vector<Range> bounds;
  for (const auto &symbol : function.symbols)
    bounds.push_back({symbol->min, symbol->max});
  Result<Range> range = exprRange(dim, bounds);
  return range ? range->hi : 0;
}

class CudaBackend : public Backend {
public:
  CudaBackend(std::shared_ptr<CudaDevice> device, Plan::Ptr plan,
              std::unique_ptr<CudaExecutor> executor)
      : device_(std::move(device)), plan_(std::move(plan)), executor_(std::move(executor)),
        ports_(device_), graphs_(device_) {}
  /// Copies to and from pinned memory may still be under way.
  ~CudaBackend() override { (void)device_->synchronize(); }

  Status allocate();
  void setLoadSeconds(double seconds) { stats_.loadSeconds = seconds; }

  std::string name() const override { return device_->name(); }
  std::string kind() const override { return "cuda"; }
  Functions functions() const override { return plan_->meta().functions; }
  int decodeChunk() const override { return kGraphSteps; }
  BackendStats stats() const override;
  void timeOnDevice(bool on) override { timesOnDevice_ = on; }
  std::string note() const override;

  Result<StepOutput> prefill(std::span<const Tokens> sequences, std::span<const int32_t> past,
                             bool wantLogits) override;
  Result<std::vector<Tokens>> decode(int steps) override;
  Result<StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override;
  Result<FunctionProfile> profile(std::string_view function, std::span<const Tokens> sequences,
                                  std::span<const int32_t> past, int repetitions,
                                  const WantedSteps &wanted) override;
  Result<std::vector<HostTensor>> run(const plan::FunctionT &function,
                                      std::span<const HostTensor> inputs,
                                      std::span<const int64_t> symbols) override;
  Result<FunctionProfile> profileRun(const plan::FunctionT &function,
                                     std::span<const HostTensor> inputs,
                                     std::span<const int64_t> symbols, int repetitions) override;
  Status writeKv(int layer, plan::KvPart part, const HostTensor &values) override;
  Result<HostTensor> readKv(int layer, plan::KvPart part, int64_t batch, int64_t tokens) override;

private:
  /// A function at given symbols with the addresses of its ports.
  struct Bound {
    FunctionCall call;
    std::vector<CUdeviceptr> inputs, outputs;
    GraphCache::Key key(int repeats = 1) const {
      return {call.function, call.symbols, outputs, repeats};
    }
  };
  /// What a batch is good for.
  struct Limits {
    int64_t batch = 0;
    int64_t prefillWidth = 0; ///< most tokens of a sequence that one run of @prefill takes
    bool persistent = false;  ///< there is a @generate that the device can run
  };
  using BoundPtr = std::shared_ptr<const Bound>;
  /// What bindStep() binds by, and the batch.
  using BoundKey = std::tuple<std::string, int64_t, int64_t, bool, int64_t>;

  const plan::KvPlanT &kvPlan() const { return *plan_->meta().kv; }
  Result<BoundPtr> bindStep(const std::string &name, int64_t seq, bool wantLogits,
                            int64_t steps = 0);
  Result<Bound> bind(const std::string &name, int64_t seq, bool wantLogits, int64_t steps) const;
  Result<CUdeviceptr> stepInput(const plan::FunctionT &function, const plan::PortT &port) const;
  Result<CUdeviceptr> stepOutput(const plan::FunctionT &function, const plan::PortT &port) const;
  Status enqueue(const Bound &bound) {
    return executor_->enqueue(*bound.call.function, bound.call.symbols, bound.inputs,
                              bound.outputs);
  }
  Status begin();
  Status timed(std::span<int32_t> ids, const std::function<Status()> &work);
  Result<HostPorts::Placed> place(const plan::FunctionT &function,
                                  std::span<const HostTensor> inputs,
                                  std::span<const int64_t> symbols);

  const Limits &limits();
  int64_t paddedWidth(int64_t width, int64_t room) const;
  Status prefillChunk(std::span<const Tokens> sequences, std::span<const int32_t> past,
                      int64_t first, int64_t width, bool wantLogits);
  Result<std::span<const int32_t>> decodeSteps(int steps, bool wantLogits);
  Status generateSteps(int steps, bool wantLogits);
  Status advanceSteps(int steps, bool wantLogits);
  Status readLogits(size_t rows, std::vector<float> &to);

  std::shared_ptr<CudaDevice> device_;
  Plan::Ptr plan_;
  std::unique_ptr<CudaExecutor> executor_;
  DeviceMemory kv_, logits_;
  HostPorts ports_;
  StepState state_;
  Timer timer_;
  GraphCache graphs_;
  std::map<BoundKey, BoundPtr> bound_;
  int64_t batch_ = 0;
  Limits limits_;
  bool hostAhead_ = false;  ///< Past and StepIds of the device are still to be pushed
  bool pending_ = false;    ///< launches may still read or write the host's twin of the state
  int64_t stepsTaken_ = -1; ///< the device's Step; -1: not known
  bool timesOnDevice_ = false;
  BackendStats stats_;
};

//===-- memory ------------------------------------------------------------------------------===//

Status CudaBackend::allocate() {
  Result<Timer> timer = Timer::create(device_);
  if (!timer)
    return timer.status();
  timer_ = timer.take();
  if (!plan_->meta().kv)
    return {};
  const plan::KvPlanT &kv = kvPlan();
  Result<DeviceMemory> state = device_->allocate(kv.bytes, "the KV state");
  if (!state)
    return {state.status().code(), state.status().message() + " (" + std::to_string(kv.max_batch) +
                                       " sequences of " + std::to_string(kv.max_context) +
                                       " tokens; gpt2c --max-batch and --max-context change that)"};
  kv_ = state.take();
  // Kernels multiply the values of hidden keys by zero, so all of them must be finite.
  if (Status s = device_->zero(kv_.address(), kv.bytes); !s.ok())
    return s;

  uint64_t logitsBytes = 0;
  for (const auto &function : functions())
    for (const auto &port : function->outputs)
      if (port->role == plan::Role::Logits && function->name != "forward") {
        uint64_t bytes = dtypeBytes(port->dtype);
        for (const auto &dim : port->shape)
          bytes *= static_cast<uint64_t>(largest(*function, *dim));
        logitsBytes = std::max(logitsBytes, bytes);
      }
  Result<DeviceMemory> logits = device_->allocate(logitsBytes, "logits");
  if (!logits)
    return logits.status();
  logits_ = logits.take();
  Result<StepState> tokens = StepState::create(device_, kv.max_batch, kv.max_context);
  if (!tokens)
    return tokens.status();
  state_ = tokens.take();
  return device_->synchronize();
}

BackendStats CudaBackend::stats() const {
  BackendStats stats = stats_;
  stats.weightBytes = executor_->weightBytes();
  stats.deviceBytes =
      executor_->deviceBytes() + kv_.bytes() + logits_.bytes() + ports_.bytes() + state_.bytes();
  return stats;
}

//===-- ports of @prefill, @decode and @advance -----------------------------------------------===//

Result<CUdeviceptr> CudaBackend::stepInput(const plan::FunctionT &function,
                                           const plan::PortT &port) const {
  switch (port.role) {
  case plan::Role::Ids:
    return state_.device(function.name == "prefill" ? StepState::Prompt : StepState::StepIds);
  case plan::Role::Past:
    return state_.device(StepState::Past);
  case plan::Role::Length:
    return state_.device(StepState::Length);
  case plan::Role::NextToken:
    return state_.device(StepState::Next);
  case plan::Role::KvState:
    return kv_.address();
  default:
    break;
  }
  bool advances = function.name == "advance" || function.name == "generate";
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
    if (function.name == "prefill")
      return state_.mapped(StepState::Next);
    return state_.device(StepState::Next);
  case plan::Role::Logits:
    return logits_.address();
  case plan::Role::KvState:
    return kv_.address();
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

/// What a call begins with: the host's twin of the state may be written.
Status CudaBackend::begin() {
  stats_.deviceMilliseconds = 0;
  if (!pending_)
    return device_->bindThread();
  if (Status s = device_->synchronize(); !s.ok())
    return s;
  pending_ = false;
  return {};
}

/// Runs `work`, which enqueues launches that write `ids`, and returns when these are there; without
/// any, when the device is done. If that was asked for, adds the device time between its ends to
/// the stats.
Status CudaBackend::timed(std::span<int32_t> ids, const std::function<Status()> &work) {
  StepState::expect(ids);
  pending_ = true;
  if (!timesOnDevice_) {
    if (Status s = work(); !s.ok())
      return s;
    if (Status s = ids.empty() ? device_->synchronize() : state_.await(ids); !s.ok())
      return s;
    pending_ = false;
    return {};
  }
  if (Status s = timer_.start(); !s.ok())
    return s;
  if (Status s = work(); !s.ok())
    return s;
  if (Status s = timer_.stop(); !s.ok())
    return s;
  if (Status s = device_->synchronize(); !s.ok())
    return s;
  Result<double> elapsed = timer_.milliseconds();
  if (!elapsed)
    return elapsed.status();
  stats_.deviceMilliseconds += *elapsed;
  pending_ = false;
  return {};
}

//===-- prefill -----------------------------------------------------------------------------===//

/// What the plan's functions do for the current batch.
const CudaBackend::Limits &CudaBackend::limits() {
  if (limits_.batch == batch_)
    return limits_;
  limits_ = {.batch = batch_};
  for (const auto &function : functions())
    for (const auto &port : function->inputs) {
      if (port->role != plan::Role::Ids || largest(*function, *port->shape[0]) < batch_)
        continue;
      if (function->name == "prefill")
        limits_.prefillWidth = std::max(limits_.prefillWidth, largest(*function, *port->shape[1]));
      else if (function->name == "generate")
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
  Result<BoundPtr> bound = bindStep("prefill", width, wantLogits);
  if (!bound)
    return bound.status();
  const std::span<int32_t> next(state_.host(StepState::Next), batch_);
  return timed(next, [&]() -> Status {
    if (Status s = state_.push(StepState::Past, StepState::Prompt, batch_ * width); !s.ok())
      return s;
    // Prompts differ in length more often than not: what comes once is not worth a graph.
    return graphs_.run((*bound)->key(), 1, [&] { return enqueue(**bound); });
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
  const plan::FunctionT *generate = findFunction(functions(), "generate");
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
    Result<BoundPtr> generate = bindStep("generate", 1, wantLogits, count);
    if (!generate)
      return generate.status();
    // The first launch makes the table, which a capture could not.
    Status s = graphs_.run((*generate)->key(), 1, [&] { return enqueue(**generate); });
    if (!s.ok())
      return s;
    left -= count;
  }
  return {};
}

/// Enqueues them as graphs of @decode and @advance.
Status CudaBackend::advanceSteps(int steps, bool wantLogits) {
  Result<BoundPtr> decode = bindStep("decode", 1, wantLogits);
  if (!decode)
    return decode.status();
  Result<BoundPtr> advance = bindStep("advance", 1, wantLogits);
  if (!advance)
    return advance.status();
  for (int left = steps; left > 0;) {
    const int count = left >= kGraphSteps ? kGraphSteps : 1;
    auto launches = [&]() -> Status {
      for (int i = 0; i < count; ++i) {
        if (Status s = enqueue(**decode); !s.ok())
          return s;
        if (Status s = enqueue(**advance); !s.ok())
          return s;
      }
      return {};
    };
    if (Status s = graphs_.run((*decode)->key(count), 0, launches); !s.ok())
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

//===-- profile -------------------------------------------------------------------------------===//

/// Nothing advances the state between the runs: each appends the same tokens at the same places.
Result<FunctionProfile> CudaBackend::profile(std::string_view function,
                                             std::span<const Tokens> sequences,
                                             std::span<const int32_t> past, int repetitions,
                                             const WantedSteps &wanted) {
  if (Status s = device_->synchronize(); !s.ok())
    return s;
  batch_ = static_cast<int64_t>(sequences.size());
  const int64_t length = static_cast<int64_t>(sequences[0].size());
  const int64_t width =
      function == "prefill"
          ? paddedWidth(length, std::min(limits().prefillWidth,
                                         int64_t{kvPlan().max_context} - std::ranges::max(past)))
          : length;
  Result<Bound> bound = bind(std::string(function), width, false, 0);
  if (!bound)
    return bound.status();
  for (int64_t b = 0; b < batch_; ++b) {
    state_.host(StepState::Past)[b] = past[b];
    state_.host(StepState::StepIds)[b] = sequences[b].front();
    state_.host(StepState::Length)[b] = static_cast<int32_t>(length);
    int32_t *prompt = state_.host(StepState::Prompt) + b * width;
    std::fill_n(std::ranges::copy(sequences[b], prompt).out, width - length, 0);
  }
  if (Status s = state_.push(StepState::Past, StepState::Prompt, batch_ * width); !s.ok())
    return s;
  auto steps = profileSteps(device_, *executor_, *bound->call.function, bound->call.symbols,
                            bound->inputs, bound->outputs, repetitions, wanted);
  batch_ = 0;
  if (!steps)
    return steps.status();
  return FunctionProfile{bound->call.function, std::move(bound->call.symbols), steps.take()};
}

//===-- any function --------------------------------------------------------------------------===//

/// Gives every port an address and copies the inputs there; the current batch ends.
Result<HostPorts::Placed> CudaBackend::place(const plan::FunctionT &function,
                                             std::span<const HostTensor> inputs,
                                             std::span<const int64_t> symbols) {
  if (Status s = device_->synchronize(); !s.ok())
    return s;
  if (Status s = executor_->prepare(function); !s.ok())
    return s;
  stats_.deviceMilliseconds = 0;
  batch_ = 0;
  return ports_.place(function, inputs, symbols, kv_.address());
}

Result<std::vector<HostTensor>> CudaBackend::run(const plan::FunctionT &function,
                                                 std::span<const HostTensor> inputs,
                                                 std::span<const int64_t> symbols) {
  Result<HostPorts::Placed> placed = place(function, inputs, symbols);
  if (!placed)
    return placed.status();
  Status done = timed(
      {}, [&] { return executor_->enqueue(function, symbols, placed->inputs, placed->outputs); });
  if (!done.ok())
    return done;
  if (Status s = ports_.fetch(*placed); !s.ok())
    return s;
  return std::move(placed->results);
}

Result<FunctionProfile> CudaBackend::profileRun(const plan::FunctionT &function,
                                                std::span<const HostTensor> inputs,
                                                std::span<const int64_t> symbols, int repetitions) {
  Result<HostPorts::Placed> placed = place(function, inputs, symbols);
  if (!placed)
    return placed.status();
  auto steps = profileSteps(device_, *executor_, function, symbols, placed->inputs, placed->outputs,
                            repetitions);
  if (!steps)
    return steps.status();
  return FunctionProfile{&function, {symbols.begin(), symbols.end()}, steps.take()};
}

Status CudaBackend::writeKv(int layer, plan::KvPart part, const HostTensor &values) {
  KvRuns runs = kvRuns(kvPlan(), layer, part, values.shape[0], values.shape[2]);
  return device_->uploadRows(kv_.address() + runs.offset, runs.pitch, values.data.data(),
                             runs.bytes, runs.rows);
}

Result<HostTensor> CudaBackend::readKv(int layer, plan::KvPart part, int64_t batch,
                                       int64_t tokens) {
  KvRuns runs = kvRuns(kvPlan(), layer, part, batch, tokens);
  HostTensor out(kvPlan().dtype, {batch, kvPlan().heads, tokens, kvPlan().head_dim});
  if (Status s = device_->downloadRows(out.data.data(), kv_.address() + runs.offset, runs.pitch,
                                       runs.bytes, runs.rows);
      !s.ok())
    return s;
  return out;
}

} // namespace

Result<std::unique_ptr<Backend>> makeCudaBackend(Plan::Ptr plan) {
  auto start = std::chrono::steady_clock::now();
  Result<std::shared_ptr<CudaDevice>> device = CudaDevice::open();
  if (!device)
    return device.status();
  Result<std::unique_ptr<CudaExecutor>> executor = CudaExecutor::create(*device, plan);
  if (!executor)
    return executor.status();
  auto backend = std::make_unique<CudaBackend>(*device, std::move(plan), executor.take());
  if (Status s = backend->allocate(); !s.ok())
    return s;
  backend->setLoadSeconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return std::unique_ptr<Backend>(std::move(backend));
}

} // namespace gpt2c::rt
