// Sums and columns of all ranks: all_reduce, all_gather.
#pragma once

#include "codegen/Grid.h"
#include "codegen/Lowering.h"
#include "schedule/Schedule.h"

#include <optional>

namespace gpt2c {

/// `n`: columns. Elements of `bias` and `residual` count where there are such operands.
struct AllReduceConfig {
  Scalar x = Scalar::F32, y = Scalar::F32;
  std::optional<Scalar> bias = {}, residual = {};
  int64_t n = 0, ranks = 2;
  bool statistics = false; ///< of parts of 32 columns
};
/// What products have sent, in type x; n is a multiple of 8.
struct AllReduceSentConfig : AllReduceConfig {};
/// Likewise of tiles that receive, where ranks share a device.
struct AllReduceReceivedConfig : AllReduceConfig {};
struct AllGatherConfig {
  bool wide = true; ///< elements of 4 bytes, or of 2
  int64_t n = 0, ranks = 2;
};

KernelSource allReduce(llvm::StringRef name, const AllReduceConfig &config);
KernelSource allReduceSent(llvm::StringRef name, const AllReduceSentConfig &config);
KernelSource allReduceReceived(llvm::StringRef name, const AllReduceReceivedConfig &config);
KernelSource allGather(llvm::StringRef name, const AllGatherConfig &config);
/// Of either, for `count` words; of allReduceReceived for as many pairs of sums.
Grid exchangeGrid(const plan::ExprT &count);
/// Of allReduceSent, of a device with so many multiprocessors.
Grid sentGrid(const plan::ExprT &count, int64_t processors);

llvm::Error emitAllReduce(StepBuilder &b, const AllReduceGroup &group);
llvm::Error lowerAllGather(StepBuilder &b, Op &op);

} // namespace gpt2c
