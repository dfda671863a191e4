// New tokens of any sequences on the CPU device: @extend over a KV state in pages.
#pragma once

#include "ir/Function.h"
#include "runtime/device/Backend.h"
#include "runtime/device/PageSums.h"
#include "runtime/device/RowsCall.h"

#include <deque>

namespace gpt2c {

/// Memory that reads as zeros and is taken page by page as it is written; not valid where the
/// system refuses it.
Tensor lazyZeros(DType dtype, llvm::ArrayRef<int64_t> shape);

/// The pages of a backend and its calls of extend(), which are run as they begin.
class CpuRows {
public:
  /// Both outlive it.
  CpuRows(const Module &module, const rt::Plan &plan) : module_(module), plan_(plan) {}

  rt::PagedState state() const;
  rt::Status allocate(uint64_t bytes);
  /// `execute` runs @extend with each of these arguments, one after the other.
  using Arguments = std::vector<std::vector<Tensor>>;
  using Execute = llvm::function_ref<rt::Result<std::vector<std::vector<Tensor>>>(Arguments)>;
  /// In groups of at most `groupRows` rows.
  rt::Status extend(std::span<const rt::Segment> segments, int64_t groupRows, Execute execute);
  rt::Result<rt::RowsOutput> extended();
  rt::Status allocateHost(int32_t count, bool checks);
  /// The copies have ended when this returns.
  rt::Status move(std::span<const rt::PageMove> moves);
  rt::MovedPages moved() const { return moved_; }
  std::span<std::byte> hostPage(int32_t page);

private:
  std::span<std::byte> pageOf(int32_t page);
  Tensor zeroPages(int64_t count) const;

  rt::RowsLimits limits() const;
  rt::Result<std::vector<Tensor>> argumentsOf(const rt::RowsCall &call) const;
  rt::Result<rt::RowsOutput> outputOf(std::span<const rt::Segment> segments,
                                      const rt::RowsCall &call,
                                      const std::vector<Tensor> &results) const;

  const Module &module_;
  const rt::Plan &plan_;
  Tensor pages_; ///< of the device, and those of host memory behind them
  int32_t hostPages_ = 0;
  rt::PageSums sums_;
  rt::MovedPages moved_;
  double outBytesPerSecond_ = 0, inBytesPerSecond_ = 0;
  rt::Tokens choices_; ///< of the call begun last
  std::deque<rt::RowsOutput> extended_;
};

} // namespace gpt2c
