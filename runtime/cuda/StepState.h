// The small tensors between host and device that drive prefill and decode steps.
#pragma once

#include "runtime/cuda/CudaDevice.h"

#include <array>
#include <cstdint>

namespace gpt2c::rt::cuda {

/// Fixed places on the device, each with a twin of the same layout in pinned host memory, so that
/// graphs may hold the addresses and one copy moves neighbouring fields. push() and pull() only
/// enqueue: the host's twin must not be written before a push has ended, nor read before a pull
/// has.
class StepState {
public:
  enum Field {
    Past,    ///< i32[batch]
    StepIds, ///< i32[batch, 1]: the token a decode step appends
    Length,  ///< i32[batch]
    Prompt,  ///< i32[batch, seq]
    Step,    ///< i32[1]: decode steps since it was zeroed
    Next,    ///< i32[batch]
    Chosen,  ///< i32[capacity, batch]: what each of these steps chose
  };

  StepState() = default;
  /// Room for `batch` sequences with prompts and runs of decode steps of up to `context` tokens.
  static Result<StepState> create(const std::shared_ptr<CudaDevice> &device, int64_t batch,
                                  int64_t context);

  CUdeviceptr device(Field field) const { return memory_.address() + offset_[field]; }
  int32_t *host(Field field) const {
    return reinterpret_cast<int32_t *>(twin_.data() + offset_[field]);
  }
  size_t bytes() const { return memory_.bytes(); }

  /// Copies `first` and all fields up to the first `count` elements of `last` to the device.
  Status push(Field first, Field last, int64_t count);
  /// Copies `count` elements of `field` to the host.
  Status pull(Field field, int64_t count);
  Status zero(Field field, int64_t count);

private:
  std::shared_ptr<CudaDevice> device_;
  DeviceMemory memory_;
  PinnedMemory twin_;
  std::array<size_t, Chosen + 1> offset_{};
};

} // namespace gpt2c::rt::cuda
