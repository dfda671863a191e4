// What a device does for a Session: run the functions of one plan over one KV state.
#pragma once

#include "runtime/device/HostTensor.h"
#include "runtime/device/Rows.h"
#include "runtime/plan/PlanFile.h"

#include <functional>
#include <memory>

namespace gpt2c::rt {

struct StepOutput {
  Tokens next;               ///< the greedy choice after each sequence's last token
  std::vector<float> logits; ///< [batch, vocab] behind that choice; empty unless asked for
};

/// What a device measured itself; zeros where it does not.
struct BackendStats {
  double loadSeconds = 0;   ///< opening the device, loading code and weights
  uint64_t weightBytes = 0; ///< of deviceBytes
  uint64_t deviceBytes = 0; ///< memory held for the plan
  uint64_t allocations = 0; ///< of memory by the device's driver, since it was opened
  /// Of the last prefill, decode, step or run, on the device; 0 unless timeOnDevice() asked for it.
  double deviceMilliseconds = 0;
};

/// When the steps of a function ran, as the device's clock says.
struct FunctionProfile {
  struct StepTime {
    size_t step = 0;           ///< of the function's steps; those without a launch are left out
    double begin = 0, end = 0; ///< milliseconds since the function's start
  };
  const plan::FunctionT *function = nullptr; ///< one of functions()
  std::vector<int64_t> symbols;              ///< in the order of function->symbols
  std::vector<StepTime> steps;
};

/// What the blocks of a kernel noted of the last step that it ran: words[blocks][row][name].
/// Kernels that note anything are compiled to (docs/kernels/persistent.md, "Where a step's time
/// goes").
struct KernelMarks {
  static constexpr size_t blocks = 256;
  std::string kernel;
  std::vector<std::string> names;
  std::vector<uint32_t> words;
};

/// What a device does now, and what it could. Zeros where that is not known.
struct DeviceSpeed {
  double bytesPerSecond = 0;        ///< of copies within its memory: bytes read and written
  double nominalBytesPerSecond = 0; ///< what memory clock and bus width allow
  uint64_t cacheBytes = 0;          ///< the last cache in front of the memory
  int clock = 0, maxClock = 0;      ///< of its processors while it copies, in MHz
  std::string slowedBy;             ///< what the driver lowers the clock for; empty: nothing
};

/// A value of the IR as a device computed it: the number of the step that it is whole behind (on
/// the CPU of the op) and its own among the results of all ops of the function, or -1 - i for its
/// output i.
using OnValue = std::function<Status(size_t step, int value, HostTensor tensor)>;

/// A backend trusts its caller, which is Session: batch sizes, lengths and token ids have been
/// checked against the plan. It holds the KV state, and for each sequence of the current batch the
/// number of tokens in the state and the greedy choice that follows them.
class Backend {
public:
  virtual ~Backend() = default;

  /// For people: "NVIDIA H200", "CPU, 2 threads".
  virtual std::string name() const = 0;
  /// "cuda" or "cpu", as --device spells it.
  virtual std::string kind() const = 0;
  /// What this device can run of the plan: on a GPU the functions in the plan's metadata, which has
  /// none without kernels; on the CPU all functions of its IR.
  virtual std::span<const std::unique_ptr<plan::FunctionT>> functions() const = 0;

  /// How many steps decode() should be asked for at once by a caller that shows tokens as they
  /// come: as few as possible without losing speed.
  virtual int decodeChunk() const { return 1; }
  virtual BackendStats stats() const { return {}; }
  /// Whether the device measures calls from now on, which makes each some 20 us longer.
  virtual void timeOnDevice(bool on) { (void)on; }
  /// What of the plan this device runs in another way than the plan asks for; empty: nothing.
  virtual std::string note() const { return {}; }
  /// Measures the device. Unsupported where it cannot.
  virtual Result<DeviceSpeed> measureSpeed() {
    return {Code::Unsupported, "the device " + name() + " does not say how fast it is"};
  }
  /// The bytes of meta().weights[index] that the device computes with. Unsupported where these are
  /// the plan's own.
  virtual Result<std::vector<std::byte>> readWeight(size_t index) {
    (void)index;
    return {Code::Unsupported, "the device " + name() + " reads the weights of the plan"};
  }

  //===-- Generation, for plans with @prefill and @decode --------------------------------===//

  /// Sequence b keeps the first past[b] tokens that the KV state holds of it, and sequences[b] (at
  /// least one token, of any length) follow them. Both spans have the batch's size, which becomes
  /// the current one. All-zero `past` starts anew.
  virtual Result<StepOutput> prefill(std::span<const Tokens> sequences,
                                     std::span<const int32_t> past, bool wantLogits) = 0;
  /// Whether prefill() pads all sequences to the longest, so that each needs room for as many.
  virtual bool padsPrompts() const { return false; }

  /// `steps` greedy steps of all sequences, the choice made on the device: each appends the last
  /// choice to the state and makes the next one. Returns the new choices, [steps][batch].
  virtual Result<std::vector<Tokens>> decode(int steps) = 0;

  /// One step with given tokens, one for each sequence, in place of the last choice.
  virtual Result<StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) = 0;

  /// The work of prefill(), or for "decode" of a step with one token for each sequence, timed step
  /// by step: an average over `repetitions` runs of everything for each step. Steps that are not
  /// `wanted` (empty: all are) run, but are not in the result. Ends the current batch.
  using WantedSteps = std::function<bool(const plan::StepT &)>;
  virtual Result<FunctionProfile> profile(std::string_view function,
                                          std::span<const Tokens> sequences,
                                          std::span<const int32_t> past, int repetitions,
                                          const WantedSteps &wanted = {}) {
    (void)function, (void)sequences, (void)past, (void)repetitions, (void)wanted;
    return {Code::Unsupported, "the device " + name() + " does not time single steps"};
  }

  /// Marks of the kernels that left some since the last call. Waits for them.
  virtual Result<std::vector<KernelMarks>> takeMarks() { return std::vector<KernelMarks>{}; }

  /// The work of prefill(), or for "decode" of a step with one token for each sequence, one step
  /// after the other, and what each left in memory: the values that have a buffer of their own, and
  /// logits. All sequences have one length. Returns the function. Ends the current batch.
  virtual Result<const plan::FunctionT *> trace(std::string_view function,
                                                std::span<const Tokens> sequences,
                                                std::span<const int32_t> past,
                                                const OnValue &onValue) {
    (void)function, (void)sequences, (void)past, (void)onValue;
    return {Code::Unsupported, "the device " + name() + " does not run single steps"};
  }

  //===-- Rows, for plans with @extend -----------------------------------------------------===//

  /// pageTokens is 0 where this device cannot run @extend of the plan; allocatePages() says why.
  virtual PagedState pagedState() const { return {}; }

  /// Takes at most `bytes` of memory for pages, once, before the first extend(). 0: as many as the
  /// plan's largest batch and context need, or fewer where the device has less free memory.
  virtual Status allocatePages(uint64_t bytes) {
    (void)bytes;
    return {Code::Unsupported, "the device " + name() + " does not run rows of any sequences"};
  }

  /// Whether extend() takes Segment::sampled.
  virtual bool samples() const { return false; }

  /// Begins one call over the new tokens of `segments`, at most maxSegments of them with at most
  /// maxRows tokens together; a GPU is not waited for. At most two calls are begun and not
  /// collected. The spans need not outlive the call. prefill(), decode(), step() and run() end what
  /// the pages held, and extend() ends the current batch.
  virtual Status extend(std::span<const Segment> segments) {
    (void)segments;
    return {Code::Unsupported, "the device " + name() + " does not run rows of any sequences"};
  }

  /// What the first call begun and not yet collected gave, waiting for it.
  virtual Result<RowsOutput> extended() {
    return {Code::Unsupported, "the device " + name() + " does not run rows of any sequences"};
  }

  /// Host memory for `count` pages beside those of allocatePages(), in the place of what there was,
  /// and what pagedState() says of it; what pages held means nothing then. With `checks`, a page
  /// that is not as it came is not copied back: movePages() is Corrupt then. No copy may be under
  /// way.
  virtual Status allocateHostPages(int32_t count, bool checks) {
    (void)count, (void)checks;
    return {Code::Unsupported, "the device " + name() + " keeps no pages in host memory"};
  }
  /// Begins copies, each behind what the calls begun so far do, beside what later calls do. Until
  /// it has ended, what a copy writes is neither read nor written; what it reads may be read, and
  /// where it is written the copy means nothing.
  virtual Status movePages(std::span<const PageMove> moves) {
    (void)moves;
    return {Code::Unsupported, "the device " + name() + " keeps no pages in host memory"};
  }
  /// `waits`: for one more to end, where one is under way.
  virtual Result<MovedPages> movedPages(bool waits) {
    (void)waits;
    return MovedPages();
  }
  /// What host memory holds there.
  virtual std::span<std::byte> hostPage(int32_t page) {
    (void)page;
    return {};
  }

  /// The work of extend(), and behind it that of the choices that are sampled: of each its steps,
  /// timed as by profile(), launch by launch also where extend() takes one. Every run writes the
  /// same places. No call may be begun, and what is carried has no meaning.
  virtual Result<std::vector<FunctionProfile>> profileRows(std::span<const Segment> segments,
                                                           int repetitions) {
    (void)segments, (void)repetitions;
    return {Code::Unsupported, "the device " + name() + " does not time single steps"};
  }

  //===-- Any function of the plan ---------------------------------------------------------===//

  /// Runs `function`, one of functions(). `inputs` are in the order of function.inputs, of
  /// their dtypes and of the shapes they have at `symbols` (values in the order of
  /// function.symbols, within their bounds); the entry of a KvState port is ignored and the
  /// backend's own state stands in. Returns the outputs in the order of function.outputs, with an
  /// empty tensor for a KvState port. Ends the current batch.
  virtual Result<std::vector<HostTensor>> run(const plan::FunctionT &function,
                                              std::span<const HostTensor> inputs,
                                              std::span<const int64_t> symbols) = 0;

  /// The work of run() without its copies, timed as by profile().
  virtual Result<FunctionProfile> profileRun(const plan::FunctionT &function,
                                             std::span<const HostTensor> inputs,
                                             std::span<const int64_t> symbols, int repetitions,
                                             const WantedSteps &wanted = {}) {
    (void)function, (void)inputs, (void)symbols, (void)repetitions, (void)wanted;
    return {Code::Unsupported, "the device " + name() + " does not time single steps"};
  }

  /// The work of run(), as by trace().
  virtual Status traceRun(const plan::FunctionT &function, std::span<const HostTensor> inputs,
                          std::span<const int64_t> symbols, const OnValue &onValue) {
    (void)function, (void)inputs, (void)symbols, (void)onValue;
    return {Code::Unsupported, "the device " + name() + " does not run single steps"};
  }

  /// Positions 0 to tokens - 1 of the first `batch` sequences in a layer of the KV state, `part`
  /// Key or Value, as [batch, heads, tokens, head_dim] of the KV state's dtype.
  virtual Status writeKv(int layer, plan::KvPart part, const HostTensor &values) = 0;
  virtual Result<HostTensor> readKv(int layer, plan::KvPart part, int64_t batch,
                                    int64_t tokens) = 0;
};

} // namespace gpt2c::rt
