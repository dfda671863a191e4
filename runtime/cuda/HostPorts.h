// The ports of a function that runs once, on tensors of the host.
#pragma once

#include "plan_generated.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/device/HostTensor.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gpt2c::rt::cuda {

/// Device memory that each run uses again.
class HostPorts {
public:
  /// The addresses of a function's ports, with room for its results.
  struct Placed {
    std::vector<CUdeviceptr> inputs, outputs;
    std::vector<HostTensor> results;
  };

  explicit HostPorts(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
  uint64_t bytes() const { return memory_.bytes(); }

  /// Gives every port an address, those of the KV state `kv`, and copies the inputs there.
  /// Overwrites what was placed before, so the device must have finished with it.
  Result<Placed> place(const plan::FunctionT &function, std::span<const HostTensor> inputs,
                       std::span<const int64_t> symbols, CUdeviceptr kv);
  /// Copies the results to the host.
  Status fetch(Placed &placed) const;

private:
  std::shared_ptr<CudaDevice> device_;
  DeviceMemory memory_;
};

} // namespace gpt2c::rt::cuda
