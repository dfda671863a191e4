// Ranks that launch kernels of an exchange, each with a device, or a part of one, and a thread.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "runtime/cuda/Exchange.h"

#include "llvm/Support/Error.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
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

/// The matrix [rows, columns] of two bytes an element at an address, for a tensor map in boxes of
/// boxRows.
struct MapOf {
  CUdeviceptr address;
  int rows, columns, boxRows;
};
/// By the names of a kernel's parameters; a parameter `exchange` needs none.
using Arguments = std::map<std::string, std::variant<CUdeviceptr, int, MapOf>>;

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

  /// The kernel of that number; arguments that it has no parameters for are not passed.
  void launch(size_t kernel, const Grid &grid, const Arguments &arguments);

private:
  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<rt::cuda::Exchange> end_;
  rt::cuda::Module module_;
  std::vector<rt::cuda::CUfunction> functions_;
  std::vector<KernelSource> kernels_;
};

/// Calls f for each rank, all at the same time; the first failure is thrown.
void onAll(llvm::MutableArrayRef<std::unique_ptr<Rank>> ranks,
           const std::function<void(size_t rank, Rank &)> &f);

} // namespace gpt2c::exchange
