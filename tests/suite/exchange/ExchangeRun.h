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
  void write(Store type, CUdeviceptr to, llvm::ArrayRef<uint32_t> bits);
  std::vector<uint32_t> read(Store type, CUdeviceptr from, size_t count);

  /// The kernel of that number; arguments that it has no parameters for are not passed.
  void launch(size_t kernel, const Grid &grid, const Arguments &arguments);

private:
  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<rt::cuda::Exchange> end_;
  rt::cuda::Module module_;
  std::vector<rt::cuda::CUfunction> functions_;
  std::vector<KernelSource> kernels_;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;
using Bits = std::vector<uint32_t>;

/// Calls f for each rank, all at the same time; the first failure is thrown.
void onAll(Ranks &ranks, const std::function<void(size_t rank, Rank &)> &f);

/// Cases on a rank's device: their launches, one behind the other, and what these left of each.
struct Work {
  std::function<void()> launch;
  std::function<std::vector<Bits>()> take;
};
using Place = std::function<Work(size_t rank, Rank &)>;

/// What each rank has of each case, [rank][case], behind the launches of all: once, or as a graph
/// that is replayed so often.
std::vector<std::vector<Bits>> play(Ranks &ranks, const Place &place, unsigned replays);

/// Element i of a case is within bound(i) of want[i] on rank 0, and all ranks have its bits.
void compare(llvm::ArrayRef<std::vector<Bits>> got, size_t number, Store type,
             llvm::ArrayRef<double> want, const std::function<double(size_t)> &bound,
             const std::function<std::string(size_t)> &where);

/// The last rank launches nothing: the others end, and say for whom they waited.
void expectFault(Ranks &ranks, const Place &place);

} // namespace gpt2c::exchange
