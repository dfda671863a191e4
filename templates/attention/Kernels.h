// The kernels of attention over the KV state, and where they put their launches.
#pragma once

#include "codegen/KernelCall.h"
#include "codegen/Lowering.h"
#include "schedule/attention/AttentionProblem.h"

namespace gpt2c {

/// What a kernel's record launches its kernel with.
struct AttentionLaunch {
  StepBuilder &b;
  Op &op; ///< append_attention or quantized_append_attention
  const AttentionProblem &p;
  ArgList &args;     ///< of all kernels of the family, by name
  Dim queries;       ///< of a sequence
  std::string extra; ///< what the step does besides: "+quantize"
  Dim bytes, flops;
  const Op *rope = nullptr; ///< that the kernel computes first
  bool appends = true;      ///< begin() has set it

  std::string name(llvm::StringRef stem) const { return b.pool().nextKernelName(stem); }
  const Dim &sequences() const { return op.operand(ops::AppendAttention::Qkv)->type.shape[0]; }
  /// To be called first: appends to the state by a kernel of its own unless this one does.
  llvm::Error begin(const AttentionConfig &c);
  /// Where parts of sums meet.
  void addParts(int splits);
  /// qkvMap and kvMap: rows of the call, a matrix for each sequence, and of the state, one for each
  /// head's keys or values, in boxes of 64.
  llvm::Error addMaps(const AttentionConfig &c);
  /// A block for each part of each query's keys; and for each tile of queries.
  std::array<plan::ExprT, 3> perQuery(int splits) const;
  std::array<plan::ExprT, 3> tiles(int queriesOfTile) const;
  llvm::Error launch(KernelSource kernel, const std::array<plan::ExprT, 3> &grid);
};

template <typename Config>
using AttentionKernelOf = KernelOf<AttentionProblem, AttentionLaunch, Config>;

#define ATTENTION_KERNEL(name) const AttentionKernel &name##Kernel();
#include "templates/attention/Kernels.def"
#undef ATTENTION_KERNEL

/// All of them, in order of preference.
llvm::ArrayRef<const AttentionKernel *> attentionKernels();
/// Every kernel and configuration that may compute it, the choice of the cost model first.
std::vector<AttentionCandidate> attentionCandidates(const AttentionProblem &p);
/// Whether the kernel that is taken for the plain problem does all of it.
bool leaderComputes(const AttentionProblem &p);

/// Every kernel with its configurations, or why it refuses or is not taken.
std::string explainAttention(const AttentionProblem &p);
/// Attention as explain takes it: "batch=8 seq=1 heads=12 head_dim=64 context=1024 f16 x f16".
llvm::Expected<AttentionProblem> parseAttentionProblem(llvm::StringRef text, const Target &target);

} // namespace gpt2c
