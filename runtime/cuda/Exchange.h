// Where ranks on several GPUs of one host, or on one, meet: memory that kernels of all of them
// write (templates/exchange/exchange.cuh).
#pragma once

#include "runtime/cuda/CudaDevice.h"

#include <memory>
#include <span>
#include <vector>

namespace gpt2c::rt::cuda {

/// A rank's end.
class Exchange {
public:
  /// One for each rank, on its device; a device may be that of several. `patience`: seconds that a
  /// kernel waits for another rank; `sums`: bytes of partial sums that a product of a rank sends at
  /// most. Incompatible where a device has no access to another's memory,
  /// or what it writes there is not what that one reads.
  static Result<std::vector<std::unique_ptr<Exchange>>>
  connect(std::span<const std::shared_ptr<CudaDevice>> devices, double patience, uint64_t sums = 0);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// No two ranks share a device.
  bool areApart() const { return apart_; }
  /// What kernels are given.
  CUdeviceptr record() const { return record_.address(); }
  uint64_t bytes() const { return record_.bytes() + slots_.bytes(); }
  /// How many ranks this one's device has.
  int ranksOfDevice() const { return ranksOfDevice_; }
  /// What kernels of one rank write of another's, laid out alike on all: workspace, logits and
  /// activations.
  struct Memory {
    CUdeviceptr scratch = 0, logits = 0, arena = 0;
  };
  /// Tells the kernels of all ranks; to be called before any of them runs.
  Status setMemory(std::span<const Memory> ofRanks);
  /// Whether no kernel that has ended waited in vain; else for which rank. It stays so: nothing
  /// that is launched behind it exchanges anything.
  Status check() const;

private:
  Exchange() = default;
  Status allocate(std::shared_ptr<CudaDevice> device, int rank, int ranks, uint64_t sums);
  Status place(std::span<const std::unique_ptr<Exchange>> all, double patience);

  std::shared_ptr<CudaDevice> device_;
  int rank_ = 0, ranks_ = 1, ranksOfDevice_ = 1;
  bool apart_ = false;
  double patience_ = 0;
  uint64_t sums_ = 0;
  DeviceMemory record_, slots_;
  PinnedMemory error_; ///< a u64
};

/// `from` writes to memory of `to` from now on, which is tried: Incompatible as of connect().
Status giveAccess(CudaDevice &from, CudaDevice &to, uint64_t seed);

} // namespace gpt2c::rt::cuda
