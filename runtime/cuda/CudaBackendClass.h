// The CUDA backend: CudaBackend.cpp has its memory and what runs any function, CudaGeneration.cpp
// prefills and decode steps, CudaRows.cpp rows of any sequences.
#pragma once

#include "runtime/cuda/CudaExecutor.h"
#include "runtime/cuda/CudaSpeed.h"
#include "runtime/cuda/Exchange.h"
#include "runtime/cuda/GraphCache.h"
#include "runtime/cuda/HostPorts.h"
#include "runtime/cuda/PageCopies.h"
#include "runtime/cuda/PageMemory.h"
#include "runtime/cuda/StepState.h"
#include "runtime/device/Backend.h"
#include "runtime/device/FunctionCall.h"
#include "runtime/device/RowsCall.h"
#include "runtime/device/SharedPrefixes.h"
#include "runtime/device/WorkerThreads.h"
#include "runtime/group/RankLink.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace gpt2c::rt::cuda {

class CudaBackend : public Backend {
public:
  /// `exchange`: null where the device runs the plan alone.
  CudaBackend(std::shared_ptr<CudaDevice> device, Plan::Ptr plan,
              std::unique_ptr<Exchange> exchange, std::unique_ptr<CudaExecutor> executor);
  /// Copies to and from pinned memory may still be under way.
  ~CudaBackend() override { (void)device_->synchronize(); }

  Status allocate();
  /// The other ranks, if the device is one's.
  void setLink(RankLink &link) { link_ = &link; }
  void setLoadSeconds(double seconds) { stats_.loadSeconds = seconds; }

  std::string name() const override { return device_->name(); }
  std::string kind() const override { return "cuda"; }
  Functions functions() const override { return executor_->functions(); }
  int decodeChunk() const override { return kGraphSteps; }
  BackendStats stats() const override;
  void timeOnDevice(bool on) override { timesOnDevice_ = on; }
  std::string note() const override;
  Result<DeviceSpeed> measureSpeed() override { return cuda::measureSpeed(device_); }
  Result<std::vector<std::byte>> readWeight(size_t index) override;

  bool padsPrompts() const override { return true; } // a batch runs as one rectangle
  Result<StepOutput> prefill(std::span<const Tokens> sequences, std::span<const int32_t> past,
                             bool wantLogits) override;
  Result<std::vector<Tokens>> decode(int steps) override;
  Result<StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override;
  PagedState pagedState() const override;
  bool samples() const override;
  Status allocatePages(uint64_t bytes) override;
  Status extend(std::span<const Segment> segments) override;
  Result<RowsOutput> extended() override;
  Status allocateHostPages(int32_t count, bool checks) override;
  Status movePages(std::span<const PageMove> moves) override;
  Result<MovedPages> movedPages(bool waits) override;
  std::span<std::byte> hostPage(int32_t page) override { return rows_.host->page(page); }
  Result<std::vector<FunctionProfile>> profileRows(std::span<const Segment> segments,
                                                   int repetitions) override;
  Result<FunctionProfile> profile(std::string_view function, std::span<const Tokens> sequences,
                                  std::span<const int32_t> past, int repetitions,
                                  const WantedSteps &wanted) override;
  Result<std::vector<KernelMarks>> takeMarks() override { return executor_->takeMarks(); }
  Result<const plan::FunctionT *> trace(std::string_view function,
                                        std::span<const Tokens> sequences,
                                        std::span<const int32_t> past,
                                        const OnValue &onValue) override;
  Status traceRun(const plan::FunctionT &function, std::span<const HostTensor> inputs,
                  std::span<const int64_t> symbols, const OnValue &onValue) override;
  Result<std::vector<HostTensor>> run(const plan::FunctionT &function,
                                      std::span<const HostTensor> inputs,
                                      std::span<const int64_t> symbols) override;
  Result<FunctionProfile> profileRun(const plan::FunctionT &function,
                                     std::span<const HostTensor> inputs,
                                     std::span<const int64_t> symbols, int repetitions,
                                     const WantedSteps &wanted) override;
  Status writeKv(int layer, plan::KvPart part, const HostTensor &values) override;
  Result<HostTensor> readKv(int layer, plan::KvPart part, int64_t batch, int64_t tokens) override;

  //===-- Of a stage, whose calls CudaStages begins ------------------------------------------===//

  /// A function at given symbols with the addresses of its ports.
  struct Bound {
    FunctionCall call;
    std::vector<CUdeviceptr> inputs, outputs;
    GraphCache::Key key(int repeats = 1) const {
      return {call.function, call.symbols, outputs, repeats};
    }
  };
  /// Room for so many calls that are begun and not collected, before allocatePages().
  void setSlots(size_t count) { rows_.slots = std::vector<Rows::Slot>(count); }
  /// extend() behind the choices `before`, of which segments carry some, and which are there when
  /// `ready` has returned: the launches of this stage. The last stage's are collected by
  /// extended(); those of another have ended where that has.
  Status beginRows(std::span<const Segment> segments, std::span<const int32_t> before,
                   const std::function<Status()> &ready = {});
  /// What beginRows() ran.
  const FunctionCall &begunCall() const { return rows_.lastCall; }
  CudaExecutor &executor() { return *executor_; }
  CudaDevice &device() { return *device_; }
  const plan::KvPlanT &state() const { return kvPlan_; }
  CUdeviceptr pagesAt() const {
    return rows_.memory.bytes() ? rows_.memory.address() : kv_.address();
  }
  /// What is asked now and then of other devices while this one is waited for.
  void setOthers(std::function<Status()> check) { checkOthers_ = std::move(check); }

private:
  friend Status joinRanks(std::span<CudaBackend *const> ranks);
  /// Decode steps of one graph: enough to hide what a launch of it costs, few enough to show text
  /// as it grows.
  static constexpr int kGraphSteps = 16;

  /// @extend and, where something is sampled, @sample behind it.
  struct BoundCall {
    RowsCall call;
    Bound extend;
    std::optional<Bound> sample;
    bool draws; ///< @extend chooses by temperature
  };
  /// What a batch is good for.
  struct Limits {
    int64_t batch = 0;
    int64_t prefillWidth = 0; ///< most tokens of a sequence that one run of @prefill takes
    bool persistent = false;  ///< there is a @generate that the device can run
  };
  /// Pages, and the calls of extend(), of which two may be under way.
  struct Rows {
    struct Slot {
      PinnedMemory inputs;  ///< of a call: what @extend takes, then what @sample takes
      PinnedMemory next;    ///< i32[maxSegments], which the device writes
      PinnedMemory reports; ///< LogprobReport[maxSegments], which @sample writes
      /// Of each choice where its mask begins, in words, 0: it has none; then the masks. @sample
      /// reads them where they are.
      PinnedMemory masks;
      size_t bytes = 0;   ///< of inputs
      size_t choices = 0; ///< how many the call writes
      /// Where the adjustments of each sampled segment that a carried token changes are in inputs,
      /// the last of them free: first and count.
      std::vector<std::pair<size_t, int32_t>> adjustments;
    };
    struct Begun {
      size_t slot = 0;
      std::vector<bool> wanted = {};   ///< logits, of each segment
      std::vector<bool> reported = {}; ///< log probabilities, of each segment
      std::vector<float> logits = {};
      bool fetched = false;
    };
    /// Of pages and those in host memory; null where kernels do not read these.
    std::unique_ptr<PageMemory> both;
    std::string whyNotBoth; ///< the driver's words
    DeviceMemory memory;    ///< of pages; empty where the KV state serves
    DeviceMemory inputs;
    DeviceMemory greedy; ///< i32[maxSegments]: the choices of @extend, in front of @sample
    DeviceMemory chosen, reported; ///< of a stage: what of others is in the host's slots
    int32_t pages = 0;
    std::unique_ptr<PageCopies> host; ///< null: no pages in host memory
    RowsLimits limits;
    std::vector<Slot> slots = std::vector<Slot>(2);
    size_t next = 0;       ///< slot of the next call
    FunctionCall lastCall; ///< of the call begun last
    int32_t carried = 0;   ///< segments of the call begun last
    std::deque<Begun> begun;
    /// For masks.
    WorkerThreads workers{std::min(7, int(std::thread::hardware_concurrency() / 2))};
  };
  using BoundPtr = std::shared_ptr<const Bound>;
  /// What bindStep() binds by, and the batch.
  using BoundKey = std::tuple<std::string, int64_t, int64_t, bool, int64_t>;

  /// Of what the device holds: with ranks some of the plan's heads.
  const plan::KvPlanT &kvPlan() const { return kvPlan_; }
  /// Whether ranks met, of calls that have ended.
  Status exchanged() const { return exchange_ ? exchange_->check() : Status(); }
  Result<BoundPtr> bindStep(const std::string &name, int64_t seq, bool wantLogits,
                            int64_t steps = 0);
  Result<Bound> bind(const std::string &name, int64_t seq, bool wantLogits, int64_t steps) const;
  Result<CUdeviceptr> stepInput(const plan::FunctionT &function, const plan::PortT &port) const;
  Result<CUdeviceptr> stepOutput(const plan::FunctionT &function, const plan::PortT &port) const;
  Status enqueue(const Bound &bound) {
    return executor_->enqueue(*bound.call.function, bound.call.symbols, bound.inputs,
                              bound.outputs);
  }
  /// Of a rank: makes the graphs of a call, and returns when all ranks have theirs. Nothing that a
  /// driver does for a launch may be left, as it may wait for kernels, which wait for other ranks.
  struct Launches {
    const GraphCache::Key &key;
    std::vector<const Bound *> bounds;
    const std::function<Status()> &enqueue;
  };
  Status depart(std::initializer_list<Launches> launches);
  Status setSequences(std::span<const Tokens> sequences, std::span<const int32_t> past,
                      int64_t width);
  Status traceSteps(const plan::FunctionT &function, std::span<const int64_t> symbols,
                    std::span<const CUdeviceptr> inputs, std::span<const CUdeviceptr> outputs,
                    const OnValue &onValue);
  Status begin();
  Status timed(std::span<int32_t> ids, const std::function<Status()> &work);
  Result<HostPorts::Placed> place(const plan::FunctionT &function,
                                  std::span<const HostTensor> inputs,
                                  std::span<const int64_t> symbols);

  Result<std::byte *> allocateBoth(int32_t hostPages);
  Status allocateLogits();
  Status allocateTokens();
  /// Whether choices are made here.
  bool isLastStage() const { return !executor_->stage() || executor_->stage()->isLast(); }
  const Limits &limits();
  int64_t paddedWidth(int64_t width, int64_t room) const;
  Status prefillChunk(std::span<const Tokens> sequences, std::span<const int32_t> past,
                      int64_t first, int64_t width, bool wantLogits);
  Result<std::span<const int32_t>> decodeSteps(int steps, bool wantLogits);
  Status generateSteps(int steps, bool wantLogits);
  Status advanceSteps(int steps, bool wantLogits);
  Status readLogits(size_t rows, std::vector<float> &to);
  int32_t reachable() const;
  CUdeviceptr nextOf(const Rows::Slot &slot) const;
  CUdeviceptr reportsOf(const Rows::Slot &slot) const;
  Status fetchChoices(const Rows::Slot &slot, bool reported);
  CUdeviceptr placeRows(Rows::Slot &slot, std::span<const int32_t> values, size_t count,
                        int32_t padding = 0);
  bool runsSteps(const plan::FunctionT &function) const;
  const plan::FunctionT *versionOf(const RowsCall &call, bool inOneLaunch) const;
  SharedPrefixes prefixesOf(const RowsCall &call, const plan::FunctionT &function) const;
  Result<Bound> bindRows(const RowsCall &call, const plan::FunctionT &function, Rows::Slot &slot,
                         bool wantLogits, bool samples, const std::vector<SampleRow> &drawn);
  Result<Bound> bindSample(std::span<const Segment> segments, Rows::Slot &slot);
  Result<BoundCall> bindCall(std::span<const Segment> segments, Rows::Slot &slot, int32_t carried,
                             bool inOneLaunch);
  void fillMasks(std::span<const Segment> segments, const RowsCall &call, Rows::Slot &slot,
                 std::span<const int32_t> before);
  Status awaitRows(const Rows::Begun &begun);
  void carry(std::span<const Segment> segments, const RowsCall &call, const Rows::Slot &slot,
             std::span<const int32_t> before) const;
  Status fetchLogits(Rows::Begun &begun);

  std::shared_ptr<CudaDevice> device_;
  Plan::Ptr plan_;
  plan::KvPlanT kvPlan_;
  std::unique_ptr<Exchange> exchange_;
  RankLink *link_ = nullptr;
  std::unique_ptr<CudaExecutor> executor_;
  DeviceMemory kv_, logits_;
  Status whyNoState_; ///< of what is not over pages, where there is no room for kv_
  HostPorts ports_;
  StepState state_;
  Timer timer_;
  GraphCache graphs_;
  Rows rows_;
  std::map<BoundKey, BoundPtr> bound_;
  int64_t batch_ = 0;
  Limits limits_;
  bool hostAhead_ = false;  ///< Past and StepIds of the device are still to be pushed
  bool pending_ = false;    ///< launches may still read or write the host's twin of the state
  int64_t stepsTaken_ = -1; ///< the device's Step; -1: not known
  bool timesOnDevice_ = false;
  std::function<Status()> checkOthers_;
  BackendStats stats_;
};

/// The plan on the device, alone or as the rank whose end of an exchange it is given, and of
/// several stages as `stage`.
Result<std::unique_ptr<CudaBackend>> openBackend(std::shared_ptr<CudaDevice> device, Plan::Ptr plan,
                                                 std::unique_ptr<Exchange> exchange = nullptr,
                                                 int stage = 0, int stages = 1);
/// Tells ranks that share every layer, in their order, where each has what the others' kernels
/// write, and agrees which steps are one kernel. Before any of them runs.
Status joinRanks(std::span<CudaBackend *const> ranks);

} // namespace gpt2c::rt::cuda
