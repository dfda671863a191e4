#include "runtime/cuda/StepState.h"

#include "runtime/device/Pause.h"

#include <algorithm>
#include <atomic>

namespace gpt2c::rt::cuda {

Result<StepState> StepState::create(const std::shared_ptr<CudaDevice> &device, int64_t batch,
                                    int64_t context) {
  constexpr size_t alignment = 256;
  StepState state;
  state.device_ = device;
  size_t bytes = 0;
  for (int field = Past; field <= Chosen; ++field) {
    int64_t count = field == Prompt || field == Chosen ? batch * context
                    : field == Step                    ? 1
                                                       : batch;
    state.offset_[field] = bytes;
    bytes += (count * sizeof(int32_t) + alignment - 1) / alignment * alignment;
  }
  Result<DeviceMemory> memory = device->allocate(bytes, "token ids");
  if (!memory)
    return memory.status();
  state.memory_ = memory.take();
  Result<PinnedMemory> twin = device->allocatePinned(bytes, "token ids");
  if (!twin)
    return twin.status();
  state.twin_ = twin.take();
  return state;
}

Status StepState::push(Field first, Field last, int64_t count) {
  size_t end = offset_[last] + count * sizeof(int32_t);
  return device_->uploadPinned(device(first), host(first), end - offset_[first]);
}

namespace {
constexpr int32_t kOutstanding = -1; // no token's id
/// Looks between two questions whether the device has stopped: some 100 us.
constexpr int kLooks = 4096;
} // namespace

void StepState::expect(std::span<int32_t> ids) { std::ranges::fill(ids, kOutstanding); }

Status StepState::await(std::span<int32_t> ids, const std::function<Status()> &others) {
  for (int32_t &id : ids)
    for (int look = 1; std::atomic_ref(id).load(std::memory_order_acquire) == kOutstanding;
         ++look) {
      if (look % kLooks != 0) {
        pauseThread();
        continue;
      }
      Result<bool> idle = device_->idle();
      if (!idle)
        return idle.status();
      if (*idle)
        return {}; // and all that it wrote is here
      if (Status s = others ? others() : Status(); !s.ok())
        return s;
    }
  return {};
}

Status StepState::zero(Field field, int64_t count) {
  return device_->zero(device(field), count * sizeof(int32_t));
}

} // namespace gpt2c::rt::cuda
