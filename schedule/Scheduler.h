// Decides what the launches of a function are.
#pragma once

#include "schedule/DecodeForm.h"
#include "schedule/Schedule.h"
#include "schedule/Target.h"
#include "schedule/cost/Bounds.h"
#include "schedule/cost/Tuning.h"
#include "schedule/products/SumOrders.h"

#include "llvm/Support/Error.h"

namespace gpt2c {

/// The kernels there are, handed in by those who have them: each family in order of preference.
struct Kernels {
  LinearFamily linear;
  llvm::ArrayRef<const MlpKernel *> mlp;
  llvm::ArrayRef<const AttentionKernel *> attention;
  llvm::ArrayRef<const PagedKernel *> paged;
  llvm::ArrayRef<const DecodeKernel *> decode;
  /// Whether an op has launches of its own.
  bool (*lowers)(OpCode) = nullptr;
};

struct ScheduleOptions {
  Target target;
  /// A product computes the norm in front of it.
  bool fuseNorm = true;
  /// Keys of a prefix that sequences share are computed once for all of them, where calls say that
  /// there is one.
  bool prefixes = true;
  /// Products of fp32 operands may run on tensor cores, each as three products of TF32.
  bool tf32 = true;
  /// Tokens of a page of the KV state, where append_attention does not say it; 0: it is in no
  /// pages.
  int pageTokens = 0;
  /// Takes one of several configurations; none: the model's.
  Chooser choose = {};
  /// In a batch-invariant plan: the orders of sums. Nothing then is fused into a product whose form
  /// depends on the number of rows. Null: each version of a function is the fastest by itself.
  SumOrders *orders = nullptr;
};

/// Fails with ExitCode::Unsupported and all ops that have no kernel at all, or results whose size
/// depends on data. What one op's kernels refuse is a RefusedGroup.
llvm::Expected<Schedule> schedule(Function &f, const SymbolBounds &bounds,
                                  const ScheduleOptions &options, const Kernels &kernels);

} // namespace gpt2c
