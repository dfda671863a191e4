// The small tensors between host and device that drive prefill and decode steps.
#pragma once

#include "runtime/cuda/CudaDevice.h"

#include <array>
#include <cstdint>
#include <functional>
#include <span>

namespace gpt2c::rt::cuda {

/// Fixed places on the device, each with a twin of the same layout in pinned host memory, so that
/// graphs may hold the addresses and one copy moves neighbouring fields. push() only enqueues: the
/// host's twin must not be written before it has ended.
///
/// Chosen tokens go the other way without a copy: kernels write them to the host's twin (see
/// mapped()), and the host looks there for them. The end of a stream's last launch is seen 3 to 4
/// us later than what it wrote.
class StepState {
public:
  enum Field {
    Past,    ///< i32[batch]
    StepIds, ///< i32[batch, 1]: the token a decode step appends
    Length,  ///< i32[batch]
    Prompt,  ///< i32[batch, seq]
    Step,    ///< i32[1]: decode steps since it was zeroed
    Next,    ///< i32[batch]: mapped for a prefill
    Chosen,  ///< i32[capacity, batch], mapped: what each of these steps chose
  };

  StepState() = default;
  /// Room for `batch` sequences with prompts and runs of decode steps of up to `context` tokens.
  static Result<StepState> create(const std::shared_ptr<CudaDevice> &device, int64_t batch,
                                  int64_t context);

  CUdeviceptr device(Field field) const { return memory_.address() + offset_[field]; }
  int32_t *host(Field field) const {
    return reinterpret_cast<int32_t *>(twin_.data() + offset_[field]);
  }
  /// Where the device writes straight into the host's twin.
  CUdeviceptr mapped(Field field) const { return reinterpret_cast<CUdeviceptr>(host(field)); }
  size_t bytes() const { return memory_.bytes(); }

  /// Copies `first` and all fields up to the first `count` elements of `last` to the device.
  Status push(Field first, Field last, int64_t count);
  /// Token ids in a mapped field that are to come: called before the launches that write them.
  static void expect(std::span<int32_t> ids);
  /// Returns when they are all there, or with the error that keeps them away. What was enqueued
  /// before the launches that write them has ended then. `others`: what else is asked now and then,
  /// whose error ends the wait.
  Status await(std::span<int32_t> ids, const std::function<Status()> &others = {});
  Status zero(Field field, int64_t count);

private:
  std::shared_ptr<CudaDevice> device_;
  DeviceMemory memory_;
  PinnedMemory twin_;
  std::array<size_t, Chosen + 1> offset_{};
};

} // namespace gpt2c::rt::cuda
