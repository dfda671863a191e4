// Ranks that launch kernels of an exchange, each with a device, or a part of one, and a thread.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "runtime/cuda/Exchange.h"

#include "llvm/Support/Error.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpt2c::exchange {

using rt::cuda::CudaDevice;
using rt::cuda::CUdeviceptr;
using rt::cuda::DeviceMemory;

/// What a check found; caught by main().
struct Failure {
  std::string message;
};
void expect(bool condition, const std::string &message);
void expectOk(const rt::Status &s);

/// Values as a type stores them, each in the low bits of a word.
enum class Store { F32, F16, BF16 };
Scalar scalarOf(Store s);
size_t bytesOf(Store s);
uint32_t bitsOf(Store s, double value);
double valueOf(Store s, uint32_t bits);

/// One rank: its device, its end of the exchange, and the kernels.
class Rank {
public:
  Rank(std::shared_ptr<CudaDevice> device, std::unique_ptr<rt::cuda::Exchange> end,
       const std::vector<char> &image, llvm::ArrayRef<KernelSource> kernels);

  CudaDevice &device() { return *device_; }
  const std::shared_ptr<CudaDevice> &shared() const { return device_; }
  rt::cuda::Exchange &end() { return *end_; }
  DeviceMemory memory(Store type, llvm::ArrayRef<uint32_t> bits);
  std::vector<uint32_t> read(Store type, const DeviceMemory &from, size_t count);

  /// The kernel of that number; behind the record of the exchange come `addresses`, then `rows`.
  void launch(size_t kernel, const Grid &grid, llvm::ArrayRef<CUdeviceptr> addresses, int rows);

private:
  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<rt::cuda::Exchange> end_;
  rt::cuda::Module module_;
  std::vector<rt::cuda::CUfunction> functions_;
  std::vector<unsigned> threads_;
};

/// Calls f for each rank, all at the same time; the first failure is thrown.
void onAll(llvm::MutableArrayRef<std::unique_ptr<Rank>> ranks,
           const std::function<void(size_t rank, Rank &)> &f);

} // namespace gpt2c::exchange
