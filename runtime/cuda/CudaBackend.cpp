#include "runtime/cuda/CudaBackend.h"

#include "runtime/cuda/CudaBackendClass.h"
#include "runtime/cuda/StepProfiler.h"
#include "runtime/group/GroupBackend.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/plan/KvLayout.h"

#include <algorithm>
#include <chrono>

namespace gpt2c::rt {

namespace cuda {

/// With the heads of a rank and the layers of a stage.
static plan::KvPlanT kvPlanOf(const plan::PlanT &meta, int ranks,
                              const std::optional<StagePlan> &stage) {
  if (!meta.kv)
    return {};
  plan::KvPlanT kv = *meta.kv;
  if (stage) {
    kv.layers = stage->layers();
    kv.bytes_per_token = kv.bytes_per_token / uint64_t(meta.kv->layers) * uint64_t(kv.layers);
    kv.bytes = kv.bytes / uint64_t(meta.kv->layers) * uint64_t(kv.layers);
  }
  if (ranks < 2)
    return kv;
  kv.heads = int32_t(ranksOf(meta, ranks)->kv_heads.size()) / ranks;
  kv.bytes_per_token = kv.bytes_per_token / uint64_t(meta.kv->heads) * uint64_t(kv.heads);
  kv.bytes = kv.bytes / uint64_t(meta.kv->heads) * uint64_t(kv.heads);
  return kv;
}

CudaBackend::CudaBackend(std::shared_ptr<CudaDevice> device, Plan::Ptr plan,
                         std::unique_ptr<Exchange> exchange, std::unique_ptr<CudaExecutor> executor)
    : device_(std::move(device)), plan_(std::move(plan)),
      kvPlan_(kvPlanOf(plan_->meta(), exchange ? exchange->ranks() : 1, executor->stage())),
      exchange_(std::move(exchange)), executor_(std::move(executor)), ports_(device_),
      graphs_(device_) {}

//===-- memory ------------------------------------------------------------------------------===//

Status CudaBackend::allocate() {
  Result<Timer> timer = Timer::create(device_);
  if (!timer)
    return timer.status();
  timer_ = timer.take();
  if (!plan_->meta().kv)
    return {};
  const plan::KvPlanT &kv = kvPlan();
  if (const std::optional<StagePlan> &stage = executor_->stage(); stage && !stage->isLast())
    return allocateTokens();
  if (executor_->stage())
    return allocateLogits();
  Result<DeviceMemory> state = device_->allocate(kv.bytes, "the KV state");
  if (!state) {
    const std::string text =
        state.status().message() + " (" + std::to_string(kv.max_batch) + " sequences of " +
        std::to_string(kv.max_context) +
        " tokens; gpt2c --max-batch and --max-context change that, and an engine does with fewer)";
    whyNoState_ = {state.status().code(), text};
    if (!pagedState().pageTokens || state.status().code() != Code::OutOfMemory)
      return whyNoState_;
    return allocateLogits(); // pages may be fewer
  }
  kv_ = state.take();
  // Kernels multiply the values of hidden keys by zero, so all of them must be finite.
  if (Status s = device_->zero(kv_.address(), kv.bytes); !s.ok())
    return s;
  return allocateLogits();
}

Status CudaBackend::allocateLogits() {
  uint64_t logitsBytes = 0;
  for (const auto &function : functions())
    for (const auto &port : function->outputs)
      if (port->role == plan::Role::Logits && function->name != functions::forward) {
        uint64_t bytes = dtypeBytes(port->dtype);
        for (const auto &dim : port->shape)
          bytes *= static_cast<uint64_t>(largestDim(*function, *dim));
        logitsBytes = std::max(logitsBytes, bytes);
      }
  Result<DeviceMemory> logits = device_->allocate(logitsBytes, "logits");
  if (!logits)
    return logits.status();
  logits_ = logits.take();
  return allocateTokens();
}

Status CudaBackend::allocateTokens() {
  Result<StepState> tokens = StepState::create(device_, kvPlan().max_batch, kvPlan().max_context);
  if (!tokens)
    return tokens.status();
  state_ = tokens.take();
  return device_->synchronize();
}

BackendStats CudaBackend::stats() const {
  BackendStats stats = stats_;
  stats.weightBytes = executor_->weightBytes();
  stats.deviceBytes = executor_->deviceBytes() + kv_.bytes() + logits_.bytes() + ports_.bytes() +
                      state_.bytes() + rows_.memory.bytes() + rows_.inputs.bytes() +
                      (exchange_ ? exchange_->bytes() : 0);
  stats.allocations = device_->allocations();
  return stats;
}

Status CudaBackend::allocateHostPages(int32_t count, bool checks) {
  if (rows_.pages < 1)
    return {Code::Usage, "host pages stand behind those of the device, and there are none"};
  if (Status s = device_->synchronize(); !s.ok())
    return s;
  rows_.host.reset();
  if (count == 0)
    return {};
  Result<std::byte *> behind = allocateBoth(count);
  if (!behind)
    return behind.status();
  Result<std::unique_ptr<PageCopies>> host =
      PageCopies::create(device_, pagesAt(), *behind, count, pagedState().pageBytes, checks);
  if (!host)
    return host.status();
  rows_.host = host.take();
  rows_.limits.state = pagedState();
  return {};
}

/// Memory of pages with `hostPages` in host memory behind them, in the place of what serves; what
/// that holds is lost. Returns where those are, null where kernels do not read them.
Result<std::byte *> CudaBackend::allocateBoth(int32_t hostPages) {
  DeviceMemory &serves = rows_.memory.bytes() ? rows_.memory : kv_;
  const size_t bytes = serves.bytes();
  serves = {}; // first: there may be no room for two
  rows_.both.reset();
  Result<std::unique_ptr<PageMemory>> both =
      PageMemory::create(device_, bytes, size_t(hostPages), pagedState().pageBytes);
  if (both) {
    rows_.both = both.take();
    serves = DeviceMemory({}, rows_.both->address(), bytes);
  } else {
    rows_.whyNotBoth = both.status().message();
    Result<DeviceMemory> again = device_->allocate(bytes, "pages of the KV state");
    if (!again)
      return whyNoState_ = again.status();
    serves = again.take();
  }
  bound_.clear(); // which have addresses
  batch_ = 0;
  if (Status s = device_->zero(serves.address(), bytes); !s.ok())
    return s;
  if (!both && both.status().code() == Code::OutOfMemory)
    return both.status();
  return rows_.both ? rows_.both->host() : nullptr;
}

Status CudaBackend::movePages(std::span<const PageMove> moves) {
  if (!rows_.host)
    return {Code::Usage, "movePages: there are no pages in host memory"};
  return rows_.host->begin(moves);
}

Result<MovedPages> CudaBackend::movedPages(bool waits) {
  return rows_.host ? rows_.host->ended(waits) : MovedPages();
}

Result<std::vector<std::byte>> CudaBackend::readWeight(size_t index) {
  std::vector<std::byte> bytes(plan_->meta().weights[index]->bytes);
  if (Status s = executor_->readWeight(index, bytes); !s.ok())
    return s;
  return bytes;
}

//===-- timing ------------------------------------------------------------------------------===//

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
    return exchanged();
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
  return exchanged();
}

Status CudaBackend::depart(std::initializer_list<Launches> launches) {
  if (!link_)
    return {};
  for (const Launches &l : launches) {
    for (const Bound *b : l.bounds)
      if (Status s =
              executor_->prepareCall(*b->call.function, b->call.symbols, b->inputs, b->outputs);
          !s.ok())
        return s;
    if (Status s = graphs_.prepare(l.key, l.enqueue); !s.ok())
      return s;
  }
  return link_->meet();
}

//===-- profile -------------------------------------------------------------------------------===//

/// What a call of @prefill with `width` tokens of each sequence, or of @decode, reads.
Status CudaBackend::setSequences(std::span<const Tokens> sequences, std::span<const int32_t> past,
                                 int64_t width) {
  const int64_t length = static_cast<int64_t>(sequences[0].size());
  for (int64_t b = 0; b < batch_; ++b) {
    state_.host(StepState::Past)[b] = past[b];
    state_.host(StepState::StepIds)[b] = sequences[b].front();
    state_.host(StepState::Length)[b] = static_cast<int32_t>(length);
    int32_t *prompt = state_.host(StepState::Prompt) + b * width;
    std::fill_n(std::ranges::copy(sequences[b], prompt).out, width - length, 0);
  }
  return state_.push(StepState::Past, StepState::Prompt, batch_ * width);
}

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
      function == functions::prefill
          ? paddedWidth(length, std::min(limits().prefillWidth,
                                         int64_t{kvPlan().max_context} - std::ranges::max(past)))
          : length;
  Result<Bound> bound = bind(std::string(function), width, false, 0);
  if (!bound)
    return bound.status();
  if (Status s = setSequences(sequences, past, width); !s.ok())
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
  const auto isState = [](const auto &port) { return port->role == plan::Role::KvState; };
  if (!whyNoState_.ok() && std::ranges::any_of(function.inputs, isState))
    return whyNoState_;
  return ports_.place(function, inputs, symbols, kv_.address());
}

Result<std::vector<HostTensor>> CudaBackend::run(const plan::FunctionT &function,
                                                 std::span<const HostTensor> inputs,
                                                 std::span<const int64_t> symbols) {
  Result<HostPorts::Placed> placed = place(function, inputs, symbols);
  if (!placed)
    return placed.status();
  Status done = timed({}, [&] {
    const Status s = depart({});
    return s.ok() ? executor_->enqueue(function, symbols, placed->inputs, placed->outputs) : s;
  });
  if (!done.ok())
    return done;
  if (Status s = ports_.fetch(*placed); !s.ok())
    return s;
  return std::move(placed->results);
}

Result<FunctionProfile> CudaBackend::profileRun(const plan::FunctionT &function,
                                                std::span<const HostTensor> inputs,
                                                std::span<const int64_t> symbols, int repetitions,
                                                const WantedSteps &wanted) {
  Result<HostPorts::Placed> placed = place(function, inputs, symbols);
  if (!placed)
    return placed.status();
  auto steps = profileSteps(device_, *executor_, function, symbols, placed->inputs, placed->outputs,
                            repetitions, wanted);
  if (!steps)
    return steps.status();
  return FunctionProfile{&function, {symbols.begin(), symbols.end()}, steps.take()};
}

Status CudaBackend::writeKv(int layer, plan::KvPart part, const HostTensor &values) {
  if (!whyNoState_.ok())
    return whyNoState_;
  KvRuns runs = kvRuns(kvPlan(), layer, part, values.shape[0], values.shape[2]);
  return device_->uploadRows(kv_.address() + runs.offset, runs.pitch, values.data.data(),
                             runs.bytes, runs.rows);
}

Result<HostTensor> CudaBackend::readKv(int layer, plan::KvPart part, int64_t batch,
                                       int64_t tokens) {
  if (!whyNoState_.ok())
    return whyNoState_;
  KvRuns runs = kvRuns(kvPlan(), layer, part, batch, tokens);
  HostTensor out(kvPlan().dtype, {batch, kvPlan().heads, tokens, kvPlan().head_dim});
  if (Status s = device_->downloadRows(out.data.data(), kv_.address() + runs.offset, runs.pitch,
                                       runs.bytes, runs.rows);
      !s.ok())
    return s;
  return out;
}

Status joinRanks(std::span<CudaBackend *const> ranks) {
  std::vector<Exchange::Memory> memory;
  for (CudaBackend *rank : ranks)
    memory.push_back(
        {rank->executor_->scratch(), rank->logits_.address(), rank->executor_->arena()});
  // A step is one kernel on all ranks or on none.
  const size_t functions = ranks[0]->functions().size();
  for (size_t i = 0; i < functions; ++i)
    for (CudaBackend *rank : ranks) {
      const std::string problem = rank->executor_->stageProblem(*rank->functions()[i]);
      for (CudaBackend *other : ranks)
        if (!problem.empty())
          other->executor_->refuseStages(*other->functions()[i], problem);
    }
  for (CudaBackend *rank : ranks)
    if (Status s = rank->exchange_->setMemory(memory); !s.ok())
      return s;
  return {};
}

Result<std::unique_ptr<CudaBackend>> openBackend(std::shared_ptr<CudaDevice> device, Plan::Ptr plan,
                                                 std::unique_ptr<Exchange> exchange, int stage,
                                                 int stages) {
  auto start = std::chrono::steady_clock::now();
  RankPlace place;
  if (exchange)
    place = {exchange->rank(), exchange->ranks(), exchange->record(), exchange->ranksOfDevice(),
             exchange->areApart()};
  if (stages > 1) {
    Result<StagePlan> cut = StagePlan::create(
        plan->meta(), functionsFor(plan->meta(), device->capability(), place.ranks), stage, stages);
    if (!cut)
      return cut.status();
    place.stage = cut.take();
  }
  Result<std::unique_ptr<CudaExecutor>> executor = CudaExecutor::create(device, plan, place);
  if (!executor)
    return executor.status();
  auto backend = std::make_unique<CudaBackend>(std::move(device), std::move(plan),
                                               std::move(exchange), executor.take());
  if (Status s = backend->allocate(); !s.ok())
    return s;
  backend->setLoadSeconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return backend;
}

} // namespace cuda

Result<std::unique_ptr<Backend>> makeCudaBackendOn(Plan::Ptr plan, int ordinal) {
  Result<std::shared_ptr<cuda::CudaDevice>> device = cuda::CudaDevice::open(ordinal);
  if (!device)
    return device.status();
  auto backend = cuda::openBackend(device.take(), std::move(plan));
  if (!backend)
    return backend.status();
  return std::unique_ptr<Backend>(backend.take());
}

Result<std::unique_ptr<Backend>> makeCudaBackend(Plan::Ptr plan) {
  return makeCudaBackendOn(std::move(plan), 0);
}

} // namespace gpt2c::rt
