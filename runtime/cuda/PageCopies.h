// Pages in pinned host memory, and their copies on streams of their own, one for each way.
#pragma once

#include "runtime/cuda/CudaDevice.h"
#include "runtime/device/PageSums.h"
#include "runtime/device/Rows.h"

#include <array>
#include <deque>
#include <memory>

namespace gpt2c::rt::cuda {

class PageCopies {
public:
  /// `count` pages of `pageBytes` bytes, at `host` or, null, in pinned memory of its own. `pages`:
  /// the first page of the device; its contents stay. Copies one to and fro to see how fast that
  /// is.
  static Result<std::unique_ptr<PageCopies>> create(const std::shared_ptr<CudaDevice> &device,
                                                    CUdeviceptr pages, std::byte *host,
                                                    int32_t count, uint64_t pageBytes, bool checks);
  /// Waits for copies under way.
  ~PageCopies();
  PageCopies(const PageCopies &) = delete;
  PageCopies &operator=(const PageCopies &) = delete;

  /// As Backend::movePages().
  Status begin(std::span<const PageMove> moves);
  /// As Backend::movedPages().
  Result<MovedPages> ended(bool waits);

  int32_t count() const { return count_; }
  double bytesPerSecond(bool out) const { return rates_[out]; }
  std::span<std::byte> page(int32_t hostPage) const {
    return {host_ + size_t(hostPage) * pageBytes_, pageBytes_};
  }

private:
  struct Flying {
    CUevent begin, end;
    int32_t hostPage;
  };
  struct Lane {
    CUstream stream = nullptr;
    std::deque<Flying> flying;
  };

  PageCopies(std::shared_ptr<CudaDevice> device, CUdeviceptr pages, std::byte *host, int32_t count,
             uint64_t pageBytes, bool checks)
      : device_(std::move(device)), pages_(pages), host_(host), count_(count),
        pageBytes_(pageBytes), sums_(count, checks) {}
  Status initialise();
  Result<CUevent> event();
  Status beginOne(const PageMove &move);
  Result<bool> takeFirst(bool out, bool waits);
  Status measure();

  std::shared_ptr<CudaDevice> device_;
  CUdeviceptr pages_;
  std::byte *host_;
  int32_t count_;
  uint64_t pageBytes_;
  PinnedMemory memory_; ///< empty where host_ is somebody else's
  PageSums sums_;
  std::array<Lane, 2> lanes_; ///< in, out
  CUevent called_ = nullptr;  ///< behind the calls that a copy follows
  std::vector<CUevent> spare_;
  MovedPages moved_;
  std::array<double, 2> rates_{}; ///< in, out
};

} // namespace gpt2c::rt::cuda
