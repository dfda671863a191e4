// Pages of the device and, behind them in the same range of addresses, pages in host memory: a
// kernel that is told a page's number finds it in either.
//
// Physical memory of both is mapped where it should be (cuMemMap), where the driver maps memory of
// the host. Else all is managed memory whose first part stays on the device and whose other part
// stays in host memory, where kernels read it over the link.
#pragma once

#include "runtime/cuda/CudaDevice.h"

#include <algorithm>

namespace gpt2c::rt::cuda {

class PageMemory {
public:
  /// At least `deviceBytes` bytes on the device and `hostPages` pages of `pageBytes` bytes behind.
  /// Unsupported, saying why, where the driver has no way to do that.
  static Result<std::unique_ptr<PageMemory>> create(const std::shared_ptr<CudaDevice> &device,
                                                    size_t deviceBytes, size_t hostPages,
                                                    size_t pageBytes);
  ~PageMemory();
  PageMemory(const PageMemory &) = delete;
  PageMemory &operator=(const PageMemory &) = delete;

  CUdeviceptr address() const { return address_; }
  size_t deviceBytes() const { return deviceBytes_; }
  /// The number of host memory's first page: those of the device and a gap are before it.
  int32_t firstHostPage() const { return firstHostPage_; }
  int32_t hostPages() const { return hostPages_; }
  /// Where the host finds that page. The device copies to and from there, too.
  std::byte *host() const {
    return reinterpret_cast<std::byte *>(address_ + CUdeviceptr(firstHostPage_) * pageBytes_);
  }

private:
  /// Memory that is mapped at an address.
  struct Piece {
    uint64_t handle = 0;
    CUdeviceptr at = 0;
    size_t bytes = 0;
  };
  explicit PageMemory(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
  /// Of the host, the nearest.
  int node() const { return std::max(0, device_->attribute(kHostNumaId)); }
  Status map();
  Status mapPiece(int location, int id, CUdeviceptr at, size_t bytes);
  Status manage();
  void release();
  void place(size_t granularity, size_t least, size_t hostPages, size_t pageBytes);

  std::shared_ptr<CudaDevice> device_;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;       ///< of all
  size_t deviceBytes_ = 0; ///< of these, from the first on: memory of the device
  std::vector<Piece> pieces_;
  bool isManaged_ = false;
  int32_t firstHostPage_ = 0, hostPages_ = 0;
  size_t pageBytes_ = 0;
};

} // namespace gpt2c::rt::cuda
