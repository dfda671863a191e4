#include "runtime/cuda/CudaExecutor.h"

#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/plan/KvLayout.h"
#include "runtime/plan/WeightPart.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <sstream>

namespace gpt2c::rt::cuda {

namespace {
constexpr uint64_t kAlignment = 256;
constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr const char *smaller =
    "; a plan made with a smaller --max-batch or --max-context needs less";

std::string place(const plan::FunctionT &function, const plan::StepT &step) {
  return "@" + function.name + ", " + inQuotes(step.op);
}
} // namespace

/// Room for a kernel parameter.
union CudaExecutor::Slot {
  uint64_t word;
  TensorMap map;
  Slot() : map() {}
};

/// One run of a function.
struct CudaExecutor::Call {
  const plan::FunctionT &function;
  std::span<const int64_t> symbols;
  std::span<const CUdeviceptr> inputs, outputs;
  CUdeviceptr scratch, arena;
};

Result<std::unique_ptr<CudaExecutor>> CudaExecutor::create(std::shared_ptr<CudaDevice> device,
                                                           Plan::Ptr plan, const RankPlace &place) {
  std::unique_ptr<CudaExecutor> executor(
      new CudaExecutor(std::move(device), std::move(plan), place));
  if (Status s = executor->checkPlan(); !s.ok())
    return s;
  if (Status s = executor->loadCode(); !s.ok())
    return s;
  if (Status s = executor->allocate(); !s.ok())
    return s;
  return executor;
}

Status CudaExecutor::checkPlan() const {
  const plan::PlanT &meta = plan_->meta();
  if (meta.functions.empty())
    return {Code::Incompatible,
            "the plan has no GPU code; compile it with gpt2c --gpu-arch=native"};
  if (place_.ranks > 1 && functions_.empty())
    return {Code::Incompatible,
            "the plan has no kernels for " + std::to_string(place_.ranks) +
                " ranks: compile it again with gpt2c, whose remarks say why where there are none"};
  Issues issues;
  verifyDevice(meta, device_->capability(), issues, place_.ranks);
  if (issues.empty())
    return {};
  return {Code::Incompatible, "the plan cannot run on " + device_->name() + issues.text()};
}

Result<Module> CudaExecutor::loadSource(size_t source) const {
  const plan::PlanT &meta = plan_->meta();
  std::vector<std::pair<int, size_t>> candidates; // rank, image
  for (size_t i = 0; i < meta.images.size(); ++i) {
    std::optional<Arch> arch = Arch::parse(meta.images[i]->arch);
    if (size_t(meta.images[i]->source) != source || !arch)
      continue;
    if (int rank = imageRank(*arch, device_->capability()))
      candidates.push_back({rank, i});
  }
  std::ranges::sort(candidates, {}, [](const auto &c) { return std::pair(-c.first, c.second); });
  Issues issues;
  for (auto [rank, image] : candidates) {
    Result<Module> module =
        device_->loadModule(plan_->image(image), inQuotes(meta.sources[source]->name) + " for " +
                                                     meta.images[image]->arch);
    if (module || module.status().code() != Code::Incompatible)
      return module;
    issues.incompatible(module.status().message());
  }
  return {Code::Incompatible, "the plan's code cannot be loaded" + issues.text()};
}

Status CudaExecutor::loadCode() {
  const plan::PlanT &meta = plan_->meta();
  const std::vector<bool> used = sourcesFor(meta, device_->capability(), place_.ranks);
  modules_.resize(meta.sources.size());
  for (size_t i = 0; i < meta.sources.size(); ++i) {
    if (!used[i])
      continue;
    Result<Module> module = loadSource(i);
    if (!module)
      return module.status();
    modules_[i] = module.take();
  }
  std::vector<unsigned> sharedBytes(meta.kernels.size());
  std::vector<bool> wanted(meta.kernels.size());
  for (size_t i = 0; i < meta.kernels.size(); ++i)
    wanted[i] = used[meta.kernels[i]->source];
  for (const auto &function : functions_)
    for (const auto &step : function->steps) {
      sharedBytes[step->kernel] = std::max(sharedBytes[step->kernel], step->shared_bytes);
      if (step->mode == plan::LaunchMode::Stage)
        wanted[step->kernel] = device_->capability().major >= 9 &&
                               step->shared_bytes <= unsigned(device_->maxSharedBytes());
    }
  for (size_t i = 0; i < meta.kernels.size(); ++i) {
    const plan::KernelT &kernel = *meta.kernels[i];
    kernels_.push_back(nullptr);
    if (!wanted[i])
      continue;
    Result<CUfunction> function = modules_[kernel.source].function(kernel.name, sharedBytes[i]);
    if (!function)
      return function.status();
    kernels_.back() = *function;
    // A driver that loads code when it is launched first waits for kernels then, which may wait for
    // other ranks. Who asks how many blocks fit makes it load.
    if (place_.ranks > 1)
      if (Result<int> blocks = device_->residentBlocks(*function, 32, sharedBytes[i]); !blocks)
        return blocks.status();
  }
  for (const auto &function : functions_)
    for (const auto &step : function->steps)
      if (step->mode == plan::LaunchMode::Stage) {
        Result<Stages> stages = checkStages(*step);
        if (!stages)
          return stages.status();
        stages_[function.get()] = stages.take();
        break;
      }
  return {};
}

/// A persistent kernel waits for all of its blocks: it must not start unless they all run.
Result<CudaExecutor::Stages> CudaExecutor::checkStages(const plan::StepT &step) const {
  const std::string on = " on " + device_->name();
  if (!kernels_[step.kernel])
    return Stages{"it needs compute capability 9.0 and " + std::to_string(step.shared_bytes) +
                  " bytes of shared memory" + on};
  if (!device_->hasCooperativeLaunch())
    return Stages{"there are no cooperative launches" + on};
  if (step.clusters) {
    Result<int> clusters = device_->residentClusters(kernels_[step.kernel], step.cluster_blocks,
                                                     step.block[0], step.shared_bytes);
    if (!clusters)
      return clusters.status();
    const auto resident = static_cast<unsigned>(*clusters / place_.ranksOfDevice);
    if (resident < step.clusters)
      return Stages{std::to_string(step.clusters) + " clusters of " +
                    std::to_string(step.cluster_blocks) + " blocks do not run at once" + on +
                    (place_.ranksOfDevice > 1
                         ? " for each of " + std::to_string(place_.ranksOfDevice) + " ranks"
                         : "")};
    return Stages{"",
                  std::min(resident, step.clusters + step.spare_clusters) * step.cluster_blocks};
  }
  Result<int> blocks =
      device_->residentBlocks(kernels_[step.kernel], step.block[0], step.shared_bytes);
  if (!blocks)
    return blocks.status();
  if (*blocks < 1)
    return Stages{"its blocks do not fit on an SM" + on};
  return Stages{"", static_cast<unsigned>(device_->multiprocessors())};
}

const std::string &CudaExecutor::stageProblem(const plan::FunctionT &function) const {
  static const std::string none;
  auto it = stages_.find(&function);
  return it == stages_.end() ? none : it->second.problem;
}

/// Whether the memory of `function` waits for its first run.
bool CudaExecutor::isLate(const plan::FunctionT &function) const {
  return plan_->meta().kv && function.name == functions::forward;
}

Status CudaExecutor::allocate() {
  if (Status s = place_.ranks > 1 || place_.stage ? uploadParts() : uploadWeights(); !s.ok())
    return s;
  if (Status s = allocate(generating_, false); !s.ok())
    return s;
  return allocateRecords();
}

/// The weights that a step takes the address of.
std::vector<bool> CudaExecutor::readWeights() const {
  std::vector<bool> read(plan_->meta().weights.size());
  for (const auto &function : functions_)
    for (auto [i, last, given] = stepsOf(*function); i < last; ++i)
      for (const auto &arg : function->steps[i]->args)
        if (arg->kind == plan::ArgKind::Weight)
          read[size_t(arg->index)] = true;
  return read;
}

Status CudaExecutor::uploadWeights() {
  const std::span<const std::byte> stored = plan_->weights();
  const auto &weights = plan_->meta().weights;
  // Kernels read pairs, also of a last element that is odd.
  uint64_t bytes = aligned(stored.size() + 1);
  const std::vector<bool> read = readWeights();
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool isPacked = weights[i]->packed >= 0;
    weightAt_.push_back(!isPacked ? weights[i]->offset : read[i] ? bytes : kNowhere);
    if (isPacked && read[i])
      bytes += aligned(weights[i]->bytes);
  }
  Result<DeviceMemory> memory = device_->allocate(bytes, "the weights");
  if (!memory)
    return memory.status();
  weights_ = memory.take();
  if (Status s = device_->upload(weights_.address(), stored.data(), stored.size()); !s.ok())
    return s;
  std::vector<std::byte> unpacked;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i]->packed < 0 || weightAt_[i] == kNowhere)
      continue;
    unpacked.resize(weights[i]->bytes);
    plan_->readWeight(i, unpacked);
    if (Status s =
            device_->upload(weights_.address() + weightAt_[i], unpacked.data(), unpacked.size());
        !s.ok())
      return s;
  }
  return {};
}

/// The steps that run here.
StageSteps CudaExecutor::stepsOf(const plan::FunctionT &function) const {
  if (!place_.stage)
    return {0, function.steps.size(), {}};
  const StageSteps *steps = place_.stage->of(function);
  return steps ? *steps : StageSteps();
}

/// What the functions of a rank read: some weights whole, of others the rank's parts.
Status CudaExecutor::uploadParts() {
  const plan::PlanT &meta = plan_->meta();
  weightAt_.assign(meta.weights.size(), kNowhere);
  partAt_.assign(meta.weight_parts.size(), kNowhere);
  uint64_t bytes = 0;
  auto place = [&](uint64_t &at, uint64_t size) {
    if (at != kNowhere)
      return;
    at = bytes;
    bytes += aligned(size);
  };
  auto sizesOfPart = [&](const plan::WeightPartT &part) {
    const plan::WeightT &weight = *meta.weights[size_t(part.weight)];
    return *sizesOf(part, weight.dtype, weight.shape);
  };
  for (const auto &function : functions_)
    for (auto [i, last, given] = stepsOf(*function); i < last; ++i)
      for (const auto &arg : function->steps[i]->args)
        if (const auto i = size_t(arg->index); arg->kind == plan::ArgKind::Weight)
          place(weightAt_[i], meta.weights[i]->bytes);
        else if (arg->kind == plan::ArgKind::WeightPart)
          place(partAt_[i], sizesOfPart(*meta.weight_parts[i]).bytes());
  Result<DeviceMemory> memory = device_->allocate(bytes, "the weights of a rank");
  if (!memory)
    return memory.status();
  weights_ = memory.take();
  std::vector<std::byte> unpacked;
  auto bytesOf = [&](size_t index) -> std::span<const std::byte> {
    if (meta.weights[index]->packed < 0)
      return plan_->weight(index);
    unpacked.resize(meta.weights[index]->bytes);
    plan_->readWeight(index, unpacked);
    return unpacked;
  };
  for (size_t i = 0; i < weightAt_.size(); ++i)
    if (const auto &weight = *meta.weights[i]; weightAt_[i] != kNowhere)
      if (Status s =
              device_->upload(weights_.address() + weightAt_[i], bytesOf(i).data(), weight.bytes);
          !s.ok())
        return s;
  std::vector<std::byte> mine;
  for (size_t i = 0; i < partAt_.size(); ++i) {
    if (partAt_[i] == kNowhere)
      continue;
    const plan::WeightPartT &part = *meta.weight_parts[i];
    const WeightPartSizes sizes = sizesOfPart(part);
    mine.resize(sizes.bytes());
    takePart(part, sizes, place_.rank, bytesOf(size_t(part.weight)), mine);
    if (Status s = device_->upload(weights_.address() + partAt_[i], mine.data(), mine.size());
        !s.ok())
      return s;
  }
  return {};
}

Status CudaExecutor::readWeight(size_t index, std::span<std::byte> to) const {
  if (weightAt_[index] == kNowhere)
    return {Code::Unsupported,
            "the device has no more than parts of weight " + std::to_string(index) + ", or none"};
  return device_->download(to.data(), weights_.address() + weightAt_[index], to.size());
}

Result<std::vector<KernelMarks>> CudaExecutor::takeMarks() const {
  std::vector<KernelMarks> all;
  for (const auto &kernel : plan_->meta().kernels) {
    const Module &module = modules_[kernel->source];
    const auto [at, bytes] = module.variable(kernel->name + "_marks");
    const auto [names, length] = module.variable(kernel->name + "_markNames");
    if (bytes == 0 || length == 0)
      continue;
    KernelMarks of{kernel->name, {}, std::vector<uint32_t>(bytes / 4)};
    std::string text(length - 1, 0); // with a zero behind it
    if (Status s = device_->download(text.data(), names, text.size()); !s.ok())
      return s;
    if (Status s = device_->download(of.words.data(), at, bytes); !s.ok())
      return s;
    if (Status s = device_->zero(at, bytes); !s.ok())
      return s;
    std::istringstream stream(text);
    of.names.assign(std::istream_iterator<std::string>(stream), {});
    if (std::ranges::any_of(of.words, [](uint32_t word) { return word != 0; }))
      all.push_back(std::move(of));
  }
  return all;
}

/// The memory of the functions that are late, or of all others.
Status CudaExecutor::allocate(Workspace &workspace, bool late) {
  uint64_t arena = 0, scratch = 0;
  for (const auto &function : functions_) {
    if (isLate(*function) != late || (place_.stage && !place_.stage->of(*function)))
      continue;
    arena = std::max<uint64_t>(arena, function->arena_bytes);
    scratchOffset_[function.get()] = scratch;
    scratch += aligned(function->scratch_bytes);
  }
  struct Wanted {
    DeviceMemory &memory;
    uint64_t bytes;
    std::string what;
  };
  const std::string whose = late ? " of @forward" : "";
  for (const Wanted &w : {Wanted{workspace.arena, arena, "activations" + whose},
                          Wanted{workspace.scratch, scratch, "kernel workspace" + whose}}) {
    Result<DeviceMemory> memory = device_->allocate(w.bytes, w.what);
    if (!memory) {
      bool shrinks = memory.status().code() == Code::OutOfMemory;
      return {memory.status().code(), memory.status().message() + (shrinks ? smaller : "")};
    }
    w.memory = memory.take();
  }
  workspace.ready = true;
  return device_->zero(workspace.scratch.address(), scratch);
}

Status CudaExecutor::prepare(const plan::FunctionT &function) {
  return isLate(function) && !forward_.ready ? allocate(forward_, true) : Status();
}

CUdeviceptr CudaExecutor::addressOf(const Call &call, const plan::ArgT &arg) const {
  switch (arg.kind) {
  case plan::ArgKind::Buffer:
    return call.arena + call.function.buffers[arg.index]->offset;
  case plan::ArgKind::Weight:
    return weights_.address() + weightAt_[size_t(arg.index)];
  case plan::ArgKind::WeightPart:
    return weights_.address() + partAt_[size_t(arg.index)];
  case plan::ArgKind::Exchange:
    return place_.exchange;
  case plan::ArgKind::Input:
    return call.inputs[arg.index];
  case plan::ArgKind::Output:
    return call.outputs[arg.index];
  case plan::ArgKind::Scratch:
    return call.scratch + static_cast<uint64_t>(arg.index);
  default:
    return 0;
  }
}

Status CudaExecutor::setMap(const Call &call, const plan::ArgT &arg, TensorMap &map) const {
  Result<int64_t> rows = evalExpr(*arg.map->rows, call.symbols);
  if (!rows)
    return rows.status();
  std::optional<uint64_t> matrices;
  if (arg.map->matrices) {
    Result<int64_t> count = evalExpr(*arg.map->matrices, call.symbols);
    if (!count)
      return count.status();
    matrices = *count;
  }
  Result<TensorMap> encoded = encodeTensorMap(device_->api(), addressOf(call, arg), *rows,
                                              arg.map->columns, arg.map->box_rows, matrices);
  if (!encoded)
    return encoded.status();
  map = *encoded;
  return {};
}

Status CudaExecutor::setArgument(const Call &call, const plan::ArgT &arg, uint64_t &value) const {
  int64_t number = 0;
  if (arg.expr) {
    Result<int64_t> result = evalExpr(*arg.expr, call.symbols);
    if (!result)
      return result.status();
    number = *result;
  }
  if (place_.stage && arg.kind == plan::ArgKind::I32 && arg.index == int(LayerArg::Layer))
    number -= place_.stage->firstLayer();
  if (place_.stage && arg.kind == plan::ArgKind::I32 && arg.index == int(LayerArg::Layers))
    number = place_.stage->layers();
  // A parameter is read from the first bytes of its slot.
  value = 0;
  switch (arg.kind) {
  case plan::ArgKind::I32: {
    int32_t narrow = static_cast<int32_t>(number);
    std::memcpy(&value, &narrow, sizeof narrow);
    return {};
  }
  case plan::ArgKind::I64:
    std::memcpy(&value, &number, sizeof number);
    return {};
  case plan::ArgKind::F32:
    std::memcpy(&value, &arg.f32, sizeof arg.f32);
    return {};
  case plan::ArgKind::Null:
    return {};
  default:
    value = addressOf(call, arg) + static_cast<uint64_t>(number);
    return {};
  }
}

Result<std::pair<CUdeviceptr, uint64_t>>
CudaExecutor::placeOf(const plan::FunctionT &function, size_t index,
                      std::span<const int64_t> symbols) const {
  const plan::BufferT &buffer = *function.buffers[index];
  auto bytes = uint64_t(dtypeBytes(buffer.dtype));
  for (const auto &dim : buffer.shape) {
    Result<int64_t> size = evalExpr(*dim, symbols);
    if (!size)
      return size.status();
    bytes *= uint64_t(*size);
  }
  return std::pair(generating_.arena.address() + buffer.offset, bytes);
}

Result<HostTensor> CudaExecutor::readBuffer(const plan::FunctionT &function, size_t index,
                                            std::span<const int64_t> symbols) const {
  const plan::BufferT &buffer = *function.buffers[index];
  std::vector<int64_t> shape;
  for (const auto &dim : buffer.shape) {
    Result<int64_t> size = evalExpr(*dim, symbols);
    if (!size)
      return size.status();
    shape.push_back(*size);
  }
  HostTensor out(buffer.dtype, std::move(shape));
  const Workspace &workspace = isLate(function) ? forward_ : generating_;
  if (Status s = device_->download(out.data.data(), workspace.arena.address() + buffer.offset,
                                   out.data.size());
      !s.ok())
    return s;
  return out;
}

CudaExecutor::Call CudaExecutor::callOf(const plan::FunctionT &function,
                                        std::span<const int64_t> symbols,
                                        std::span<const CUdeviceptr> inputs,
                                        std::span<const CUdeviceptr> outputs) const {
  const Workspace &workspace = isLate(function) ? forward_ : generating_;
  assert(workspace.ready && "prepare comes first");
  return {function,
          symbols,
          inputs,
          outputs,
          workspace.scratch.address() + scratchOffset_.at(&function),
          workspace.arena.address()};
}

/// Behind the stages that begin with that step, if any do.
static size_t endOfStages(const plan::FunctionT &function, size_t step) {
  while (step < function.steps.size() && function.steps[step]->mode == plan::LaunchMode::Stage)
    ++step;
  return step;
}

Status CudaExecutor::prepareCall(const plan::FunctionT &function, std::span<const int64_t> symbols,
                                 std::span<const CUdeviceptr> inputs,
                                 std::span<const CUdeviceptr> outputs) {
  const Call call = callOf(function, symbols, inputs, outputs);
  for (size_t i = 0; i < function.steps.size(); ++i)
    if (const size_t last = endOfStages(function, i); last > i) {
      if (Result<CUdeviceptr> placed = placeStages(call, i, last); !placed)
        return placed.status();
      i = last;
    }
  return {};
}

static bool fetchesAhead(const plan::StepT &step) {
  return std::ranges::any_of(step.args, [](const auto &arg) {
    return arg->kind == plan::ArgKind::I32 && arg->index == int(LayerArg::Ahead);
  });
}

static bool pointsToState(const plan::FunctionT &function, const plan::ArgT &arg) {
  const auto i = size_t(arg.index);
  return (arg.kind == plan::ArgKind::Input && function.inputs[i]->role == plan::Role::KvState) ||
         (arg.kind == plan::ArgKind::Output && function.outputs[i]->role == plan::Role::KvState);
}

/// Whether launches around it do what it does where ranks do not share a device; one of index -2
/// waits for what the launch behind waits for, which may be another stage's.
bool CudaExecutor::isLeftOut(const plan::StepT &step) const {
  return place_.apart && std::ranges::any_of(step.args, [&](const auto &arg) {
           return arg->kind == plan::ArgKind::Exchange &&
                  (arg->index == -1 || (arg->index == -2 && !place_.stage));
         });
}

Status CudaExecutor::enqueue(const plan::FunctionT &function, std::span<const int64_t> symbols,
                             std::span<const CUdeviceptr> inputs,
                             std::span<const CUdeviceptr> outputs, const AfterStep &after) {
  const Call call = callOf(function, symbols, inputs, outputs);
  std::vector<Slot> values;
  std::vector<void *> pointers;
  const StageSteps steps = stepsOf(function);
  bool overlaps = steps.first == 0; // else behind what was handed on
  for (size_t i = steps.first, last; i < steps.last; i = last) {
    last = endOfStages(function, i);
    if (last > i) {
      if (Status s = enqueueStages(call, i, last); !s.ok())
        return {s.code(), place(function, *function.steps[i]) + ": " + s.message()};
      continue;
    }
    last = i + 1;
    const auto &step = function.steps[i];
    if (isLeftOut(*step))
      continue;
    Launch launch;
    launch.function = kernels_[step->kernel];
    launch.sharedBytes = step->shared_bytes;
    launch.programmatic = step->mode == plan::LaunchMode::Pdl && overlaps;
    bool empty = false;
    for (int i = 0; i < 3; ++i) {
      Result<int64_t> size = evalExpr(*step->grid[i], symbols);
      if (!size)
        return size.status();
      launch.grid[i] = static_cast<unsigned>(*size);
      launch.block[i] = step->block[i];
      empty |= *size == 0;
    }
    if (empty)
      continue;
    values.resize(step->args.size());
    pointers.resize(step->args.size());
    const bool givesState = !place_.stage || !fetchesAhead(*step); // of a layer of another stage
    for (size_t i = 0; i < step->args.size(); ++i) {
      const plan::ArgT &arg = *step->args[i];
      if (!givesState && pointsToState(function, arg)) {
        values[i].word = 0;
        pointers[i] = &values[i];
        continue;
      }
      Status s =
          arg.map ? setMap(call, arg, values[i].map) : setArgument(call, arg, values[i].word);
      if (!s.ok())
        return s;
      pointers[i] = &values[i];
    }
    if (Status s = device_->launch(launch, pointers.data()); !s.ok())
      return {s.code(), place(function, *step) + ": " + s.message()};
    overlaps = true;
    if (after) {
      Result<bool> enqueued = after(i);
      if (!enqueued)
        return enqueued.status();
      overlaps = !*enqueued;
    }
  }
  return {};
}

constexpr size_t wordsOfRecord = 16;

/// For as many calls as have records of their own: of the sizes that an engine's calls have in one
/// launch, each in two slots, greedy, drawn and with logits.
Status CudaExecutor::allocateRecords() {
  constexpr size_t contents = 128;
  size_t most = 0;
  for (const auto &function : plan_->meta().functions)
    if (stages_.contains(function.get()))
      most = std::max(most, function->steps.size());
  Result<DeviceMemory> memory = device_->allocate(
      most * wordsOfRecord * sizeof(uint64_t) * contents, "the stages of persistent kernels");
  if (!memory)
    return memory.status();
  recordMemory_.push_back(memory.take());
  recordBytes_ = 0;
  return {};
}

Result<CUdeviceptr> CudaExecutor::recordsOf(std::vector<uint64_t> content) {
  if (auto known = records_.find(content); known != records_.end())
    return known->second;
  const size_t bytes = content.size() * sizeof(uint64_t);
  if (recordBytes_ + bytes > recordMemory_.back().bytes())
    if (Status s = allocateRecords(); !s.ok())
      return s;
  const CUdeviceptr at = recordMemory_.back().address() + recordBytes_;
  if (Status s = device_->upload(at, content.data(), bytes); !s.ok())
    return s;
  recordBytes_ += bytes;
  return records_.emplace(std::move(content), at).first->second;
}

/// Where the records of stages [first, last) are on the device.
Result<CUdeviceptr> CudaExecutor::placeStages(const Call &call, size_t first, size_t last) {
  if (const std::string &problem = stageProblem(call.function); !problem.empty())
    return {Code::Incompatible, problem};
  std::vector<uint64_t> content((last - first) * wordsOfRecord);
  for (size_t i = first; i < last; ++i) {
    const auto &args = call.function.steps[i]->args;
    for (size_t a = 0; a < args.size(); ++a)
      if (Status s = setArgument(call, *args[a], content[(i - first) * wordsOfRecord + a]); !s.ok())
        return s;
  }
  return recordsOf(std::move(content));
}

/// Stages [first, last) of the function: one launch.
Status CudaExecutor::enqueueStages(const Call &call, size_t first, size_t last) {
  const plan::StepT &step = *call.function.steps[first];
  Result<CUdeviceptr> placed = placeStages(call, first, last);
  if (!placed)
    return placed.status();
  CUdeviceptr records = *placed;
  int32_t count = static_cast<int32_t>(last - first);
  void *arguments[] = {&records, &count};
  Launch launch;
  launch.function = kernels_[step.kernel];
  launch.sharedBytes = step.shared_bytes;
  launch.cooperative = true;
  launch.grid[0] = stages_.at(&call.function).blocks;
  launch.block[0] = step.block[0];
  return device_->launch(launch, arguments);
}

} // namespace gpt2c::rt::cuda
