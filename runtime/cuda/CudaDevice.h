// One CUDA device: context, stream, memory, modules, launches. Not thread-safe: one thread at a
// time.
#pragma once

#include "runtime/cuda/CudaApi.h"
#include "runtime/plan/Arch.h"

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpt2c::rt::cuda {

class CudaDevice;

/// Device memory, freed with its owner. It keeps the device alive. Without a device it is a part of
/// somebody else's.
class DeviceMemory {
public:
  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<CudaDevice> device, CUdeviceptr address, size_t bytes)
      : device_(std::move(device)), address_(address), bytes_(bytes) {}
  DeviceMemory(DeviceMemory &&other) noexcept { swap(other); }
  DeviceMemory &operator=(DeviceMemory &&other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory();

  CUdeviceptr address() const { return address_; }
  size_t bytes() const { return bytes_; }

private:
  void swap(DeviceMemory &other) {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
  }
  std::shared_ptr<CudaDevice> device_;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
};

/// Pinned host memory, which the device reads and writes without a copy in between.
class PinnedMemory {
public:
  PinnedMemory() = default;
  PinnedMemory(std::shared_ptr<CudaDevice> device, void *data)
      : device_(std::move(device)), data_(static_cast<std::byte *>(data)) {}
  PinnedMemory(PinnedMemory &&other) noexcept { swap(other); }
  PinnedMemory &operator=(PinnedMemory &&other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedMemory();

  std::byte *data() const { return data_; }

private:
  void swap(PinnedMemory &other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
  }
  std::shared_ptr<CudaDevice> device_;
  std::byte *data_ = nullptr;
};

/// A loaded module, unloaded with its owner.
class Module {
public:
  Module() = default;
  Module(std::shared_ptr<CudaDevice> device, CUmodule module)
      : device_(std::move(device)), module_(module) {}
  Module(Module &&other) noexcept { swap(other); }
  Module &operator=(Module &&other) noexcept {
    swap(other);
    return *this;
  }
  ~Module();

  /// A kernel, ready for `sharedBytes` of dynamic shared memory.
  Result<CUfunction> function(const std::string &name, unsigned sharedBytes) const;
  /// Where a variable is, and its bytes; zeros where the module has none of that name.
  std::pair<CUdeviceptr, size_t> variable(const std::string &name) const;

private:
  void swap(Module &other) {
    std::swap(device_, other.device_);
    std::swap(module_, other.module_);
  }
  std::shared_ptr<CudaDevice> device_;
  CUmodule module_ = nullptr;
};

/// The f16 matrix [rows, columns] at `address`, in boxes of boxRows x 64, swizzled by 128 bytes;
/// from capability 9.0 on. `rows` and `columns` are not zero, `address` is a multiple of 16 bytes,
/// as are the rows. With `matrices` the map is one of that many matrices behind each other.
Result<TensorMap> encodeTensorMap(const CudaApi &api, CUdeviceptr address, uint64_t rows,
                                  uint64_t columns, unsigned boxRows,
                                  std::optional<uint64_t> matrices = {});

struct Launch {
  CUfunction function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned sharedBytes = 0;
  /// May start before the launch before it has ended.
  bool programmatic = false;
  /// All blocks run at the same time, or the launch fails.
  bool cooperative = false;
};

class CudaDevice : public std::enable_shared_from_this<CudaDevice> {
public:
  static Result<std::shared_ptr<CudaDevice>> open(int ordinal = 0);
  ~CudaDevice();
  CudaDevice(const CudaDevice &) = delete;
  CudaDevice &operator=(const CudaDevice &) = delete;

  const CudaApi &api() const { return *api_; }
  CUstream stream() const { return stream_; }
  const std::string &name() const { return name_; }
  ComputeCapability capability() const { return capability_; }
  int multiprocessors() const { return multiprocessors_; }
  int maxSharedBytes() const { return maxSharedBytes_; }
  bool hasCooperativeLaunch() const { return cooperative_; }
  size_t freeBytes() const;
  /// Calls of the driver for memory, of the device and of the host, so far.
  uint64_t allocations() const { return allocations_; }
  /// One that the caller makes.
  void countAllocation() { ++allocations_; }
  /// As the driver counts devices.
  int ordinal() const { return device_; }
  /// 0 where the driver does not say.
  int attribute(DeviceAttribute which) const;
  /// "0000:3b:00.0"; empty where the driver does not say.
  std::string busId() const;

  /// Uninitialised memory; `what` names it in the error, which also says what was asked and what is
  /// free. Zero bytes give an empty object.
  Result<DeviceMemory> allocate(size_t bytes, const std::string &what);
  Result<PinnedMemory> allocatePinned(size_t bytes, const std::string &what);
  /// Copies are ordered with the stream's launches; upload() and download() return when they are
  /// done.
  Status upload(CUdeviceptr to, const void *from, size_t bytes);
  Status download(void *to, CUdeviceptr from, size_t bytes);
  /// A copy from pinned memory, which must not be written until it has ended.
  Status uploadPinned(CUdeviceptr to, const void *from, size_t bytes);
  /// A copy to pinned memory, which holds it when it has ended.
  Status beginDownload(void *to, CUdeviceptr from, size_t bytes);
  /// `rows` runs of `bytes` bytes: dense on the host, `pitch` apart on the device. They return when
  /// they are done.
  Status uploadRows(CUdeviceptr to, size_t pitch, const void *from, size_t bytes, size_t rows);
  Status downloadRows(void *to, CUdeviceptr from, size_t pitch, size_t bytes, size_t rows);
  Status zero(CUdeviceptr to, size_t bytes);
  Status synchronize();
  /// Whether all that was enqueued has ended.
  Result<bool> idle();
  bool isSameGpu(const CudaDevice &other) const { return context_ == other.context_; }
  /// Kernels of this device may read and write memory of `peer` from now on; Incompatible where the
  /// driver says that they cannot. The same device is its own peer.
  Status enableAccessTo(const CudaDevice &peer);
  /// A copy to memory of any device that this one has access to, in the order of its stream.
  Status copy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
  /// The same, which returns at once.
  Status beginCopy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
  /// Calls of this thread are for this device; all that copy, allocate or wait do that themselves.
  Status bindThread();

  /// Loads a cubin or PTX (ending in NUL). An image the device cannot run is Code::Incompatible
  /// with the driver's log.
  Result<Module> loadModule(std::span<const std::byte> image, const std::string &what);
  /// How many blocks of a kernel run on an SM at the same time.
  Result<int> residentBlocks(CUfunction function, unsigned threads, unsigned sharedBytes);
  /// How many clusters of so many blocks run at the same time.
  Result<int> residentClusters(CUfunction function, unsigned clusterBlocks, unsigned threads,
                               unsigned sharedBytes);
  /// `arguments` holds one pointer per parameter.
  Status launch(const Launch &launch, void **arguments);

private:
  CudaDevice() = default;
  Status initialise(int ordinal);

  const CudaApi *api_ = nullptr;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  void *staging_ = nullptr; ///< two pinned halves of kStagingBytes
  CUevent stagingFree_[2] = {};
  std::string name_;
  std::atomic<uint64_t> allocations_ = 0;
  ComputeCapability capability_;
  int multiprocessors_ = 0;
  int maxSharedBytes_ = 0;
  int cooperative_ = 0;
  friend class DeviceMemory;
  friend class Module;
  friend class PinnedMemory;
  friend class Timer;
};

/// Device time between two points of the stream.
class Timer {
public:
  Timer() = default;
  Timer(Timer &&other) noexcept { swap(other); }
  Timer &operator=(Timer &&other) noexcept {
    swap(other);
    return *this;
  }
  ~Timer();

  static Result<Timer> create(const std::shared_ptr<CudaDevice> &device);
  Status start();
  Status stop();
  /// The same within a graph being captured: each launch of the graph passes them.
  Status startInGraph();
  Status stopInGraph();
  /// From start to stop, once the stream has passed both.
  Result<double> milliseconds() const;
  /// Of what `work` enqueues, once it has ended.
  Result<double> milliseconds(const std::function<Status()> &work);

private:
  void swap(Timer &other) {
    std::swap(device_, other.device_);
    std::swap(events_, other.events_);
  }
  std::shared_ptr<CudaDevice> device_;
  CUevent events_[2] = {};
};

/// What happens between begin and finish on the device's stream becomes one graph, replayed with
/// launch().
class Graph {
public:
  Graph() = default;
  Graph(Graph &&other) noexcept { swap(other); }
  Graph &operator=(Graph &&other) noexcept {
    swap(other);
    return *this;
  }
  ~Graph();

  static Status beginCapture(CudaDevice &device);
  /// Ends the capture; `outcome` is the status of the captured calls, which wins over the capture's
  /// own.
  static Result<Graph> finishCapture(const std::shared_ptr<CudaDevice> &device, Status outcome);
  /// Does what a first launch would do besides. Ends when the device has.
  Status upload();
  Status launch();
  bool valid() const { return exec_ != nullptr; }

private:
  void swap(Graph &other) {
    std::swap(device_, other.device_);
    std::swap(exec_, other.exec_);
  }
  std::shared_ptr<CudaDevice> device_;
  CUgraphExec exec_ = nullptr;
};

} // namespace gpt2c::rt::cuda
