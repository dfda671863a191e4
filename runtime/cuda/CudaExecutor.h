// A plan's code, weights and workspace on one device, and the launches of one of its functions.
#pragma once

#include "runtime/cuda/CudaDevice.h"
#include "runtime/cuda/StageSteps.h"
#include "runtime/device/Backend.h"
#include "runtime/device/HostTensor.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/PlanVerify.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>

namespace gpt2c::rt::cuda {

/// Which rank of how many that share each layer runs the plan on a device, and the record of where
/// they meet; and which of several stages.
struct RankPlace {
  int rank = 0, ranks = 1;
  CUdeviceptr exchange = 0;
  int ranksOfDevice = 1;               ///< kernels of all of them run at the same time
  bool apart = false;                  ///< no two ranks share a device
  std::optional<StagePlan> stage = {}; ///< none: the device has all layers
};

class CudaExecutor {
public:
  /// Loads the best image of every source that its functions need, uploads the weights, of a rank
  /// its parts, and allocates what the functions need. Code::Incompatible with all reasons where
  /// the device cannot run the plan's code.
  static Result<std::unique_ptr<CudaExecutor>> create(std::shared_ptr<CudaDevice> device,
                                                      Plan::Ptr plan, const RankPlace &place = {});
  CudaExecutor(const CudaExecutor &) = delete;
  CudaExecutor &operator=(const CudaExecutor &) = delete;

  /// What the device has of the plan.
  std::span<const std::unique_ptr<plan::FunctionT>> functions() const { return functions_; }
  /// Allocates what `function` needs, where creation did not: @forward of a plan that generates
  /// runs the exported graph for who asks for it, and needs most memory. Not while launches are
  /// captured.
  Status prepare(const plan::FunctionT &function);

  /// Enqueues the steps of `function`, one of the plan's, on the device's stream, of a stage those
  /// that are its. `symbols` are in
  /// the order of function.symbols and within their bounds; `inputs` and `outputs` hold the device
  /// address of every port. Functions share arenas, so their launches must be of one stream.
  /// `after` is called behind each launch with the index of its step; whether it enqueued
  /// something is what it returns, and the next launch waits for that.
  using AfterStep = std::function<Result<bool>(size_t step)>;
  Status enqueue(const plan::FunctionT &function, std::span<const int64_t> symbols,
                 std::span<const CUdeviceptr> inputs, std::span<const CUdeviceptr> outputs,
                 const AfterStep &after = {});

  /// Puts on the device what such a call has there besides its arguments, which would have to wait
  /// within a capture, or for kernels.
  Status prepareCall(const plan::FunctionT &function, std::span<const int64_t> symbols,
                     std::span<const CUdeviceptr> inputs, std::span<const CUdeviceptr> outputs);

  /// Why the stages of `function` cannot run on this device; empty when they can.
  const std::string &stageProblem(const plan::FunctionT &function) const;

  /// Notes that they do not, as another rank cannot run its own.
  void refuseStages(const plan::FunctionT &function, const std::string &problem) {
    if (auto it = stages_.find(&function); it != stages_.end() && it->second.problem.empty())
      it->second.problem = problem;
  }
  /// Where the workspace of all functions but those that are late begins.
  CUdeviceptr scratch() const { return generating_.scratch.address(); }
  /// And their activations.
  CUdeviceptr arena() const { return generating_.arena.address(); }
  /// Where buffer `index` of a function is, and how many bytes it has at `symbols`.
  Result<std::pair<CUdeviceptr, uint64_t>> placeOf(const plan::FunctionT &function, size_t index,
                                                   std::span<const int64_t> symbols) const;
  const std::optional<StagePlan> &stage() const { return place_.stage; }

  /// Copies what buffer `index` of the function holds now, as large as it is at `symbols`.
  Result<HostTensor> readBuffer(const plan::FunctionT &function, size_t index,
                                std::span<const int64_t> symbols) const;
  /// What Backend::takeMarks() returns.
  Result<std::vector<KernelMarks>> takeMarks() const;
  /// The bytes that the kernels read of meta.weights[index]; Unsupported where a rank has no more
  /// than a part of it.
  Status readWeight(size_t index, std::span<std::byte> to) const;

  uint64_t weightBytes() const { return weights_.bytes(); }
  uint64_t deviceBytes() const { return weights_.bytes() + generating_.bytes() + forward_.bytes(); }

private:
  struct Call;
  union Slot;
  struct Workspace {
    DeviceMemory arena, scratch;
    bool ready = false;
    uint64_t bytes() const { return arena.bytes() + scratch.bytes(); }
  };

  /// The persistent kernel of a function: its grid, or why it cannot run.
  struct Stages {
    std::string problem;
    unsigned blocks = 0;
  };

  CudaExecutor(std::shared_ptr<CudaDevice> device, Plan::Ptr plan, const RankPlace &place)
      : device_(std::move(device)), plan_(std::move(plan)), place_(place),
        functions_(functionsFor(plan_->meta(), device_->capability(), place.ranks)) {}
  Status checkPlan() const;
  Status loadCode();
  Result<Module> loadSource(size_t source) const;
  Result<Stages> checkStages(const plan::StepT &step) const;
  Call callOf(const plan::FunctionT &function, std::span<const int64_t> symbols,
              std::span<const CUdeviceptr> inputs, std::span<const CUdeviceptr> outputs) const;
  Result<CUdeviceptr> placeStages(const Call &call, size_t first, size_t last);
  Status enqueueStages(const Call &call, size_t first, size_t last);
  Status allocateRecords();
  Result<CUdeviceptr> recordsOf(std::vector<uint64_t> content);
  Status allocate();
  std::vector<bool> readWeights() const;
  Status uploadWeights();
  Status uploadParts();
  bool isLeftOut(const plan::StepT &step) const;
  bool isLate(const plan::FunctionT &function) const;
  StageSteps stepsOf(const plan::FunctionT &function) const;
  Status allocate(Workspace &workspace, bool late);
  CUdeviceptr addressOf(const Call &call, const plan::ArgT &arg) const;
  Status setMap(const Call &call, const plan::ArgT &arg, TensorMap &map) const;
  Status setArgument(const Call &call, const plan::ArgT &arg, uint64_t &value) const;

  std::shared_ptr<CudaDevice> device_;
  Plan::Ptr plan_;
  RankPlace place_;
  std::span<const std::unique_ptr<plan::FunctionT>> functions_;
  std::vector<Module> modules_;     ///< one for each of meta.sources; none where nothing needs it
  std::vector<CUfunction> kernels_; ///< one for each of meta.kernels
  DeviceMemory weights_;
  /// Where in it each of meta.weights and meta.weight_parts is; kNowhere: a rank does not read it.
  std::vector<uint64_t> weightAt_, partAt_;
  static constexpr uint64_t kNowhere = UINT64_MAX;
  Workspace generating_, forward_;
  std::unordered_map<const plan::FunctionT *, Stages> stages_;
  /// Records of stages, by content, and the memory that they are placed in one behind the other.
  std::map<std::vector<uint64_t>, CUdeviceptr> records_;
  std::vector<DeviceMemory> recordMemory_;
  size_t recordBytes_ = 0; ///< taken of the last one
  std::unordered_map<const plan::FunctionT *, uint64_t> scratchOffset_;
};

} // namespace gpt2c::rt::cuda
