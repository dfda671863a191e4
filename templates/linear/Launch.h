// Where the kernels of products put their launches.
#pragma once

#include "codegen/KernelCall.h"
#include "codegen/Lowering.h"
#include "schedule/Schedule.h"
#include "templates/linear/parts/Epilogue.h"

namespace gpt2c {

/// A product on its way to a launch: x, w, y, m, n, k and the operands of the epilogue are in
/// `args`.
struct LinearCall {
  Dim m;
  Value *y = nullptr; ///< that the launch stores
  StepBuilder::Args args;
  Epilogue epilogue;
  std::string what;
  Dim bytes, flops;
};

/// What a kernel's record launches its kernel with.
struct LinearLaunch {
  StepBuilder &b;
  Op &op;
  LinearCall &call;
  const LinearProblem &p;
  Op *norm = nullptr;                  ///< that p.fused.norm stands for
  const AllReduceGroup *sum = nullptr; ///< that p.fused.end stands for

  std::string name(llvm::StringRef stem) const { return b.pool().nextKernelName(stem); }
  int64_t processors() const { return p.target.multiprocessors; }
  /// Launches a kernel with the grid of its configuration.
  template <typename Config> llvm::Error launch(KernelSource kernel, const Config &c) const {
    return b.launch(op, call.what, std::move(kernel), call.args,
                    gridOf(c, b.expr(call.m), p.n, processors()), call.bytes, call.flops);
  }
  /// Launches a grid of tiles whose parts of K meet in memory.
  template <typename Config> llvm::Error launchTiles(KernelSource kernel, const Config &c) const {
    if (c.splitK > 1) {
      int64_t partial = c.splitK * p.rows * p.n * 4,
              count = divideCeilSigned(p.rows, c.bm) * divideCeilSigned(p.n, c.bn);
      call.args["partial"] = b.sharedScratch("linear-partial-" + std::to_string(partial), partial);
      call.args["counters"] =
          b.sharedScratch("linear-counters-" + std::to_string(count), count * 4);
    }
    return launch(std::move(kernel), c);
  }

  /// The norm of rows that the kernel reads: gain, shift, epsilon.
  llvm::Error addNorm() const;
  /// A norm that is folded into the epilogue, by sums of the weights: rowSums, shiftSums, gain
  /// (null for ones), epsilon.
  llvm::Error addNormSums() const;
  /// The same of a norm without gain and shift, by the statistics that x was left with:
  /// xStatistics, rowSums, epsilon.
  llvm::Error addNormStatistics() const;
  /// Where the statistics of y are left, of `width` columns each.
  void addStatistics(int width) const;
  /// Where the largest elements of that many parts of each row are left; y is optional then.
  void addLargest(int64_t parts) const;
  /// Tensor maps of x and w in boxes of bm and bn rows; they count in halves: those of a row.
  void addMaps(int bm, int bn, int64_t ofX, int64_t ofW) const;
  /// Activations as exact as results in fp16 need them, for those and for bf16.
  void halveActivations() const;
};

} // namespace gpt2c
