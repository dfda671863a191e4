// append_attention over a KV state in pages: its kernels.
#pragma once

#include "codegen/Grid.h"
#include "codegen/Lowering.h"
#include "schedule/Schedule.h"
#include "templates/attention/prefix/AttentionPrefix.h"

namespace gpt2c {

/// fp16 or bf16, or fp32 by 3xTF32.
struct AttentionPagesConfig : PagedConfig {};
/// Pieces of prompts by wgmma, in two or four groups.
struct AttentionPagesWgmmaConfig : PagedConfig {};
/// The same of heads of a multiple of 16 from 64 to 256, in one group and a warp that copies.
struct AttentionPagesWideConfig : PagedConfig {};
/// Keys are summed up in the order of their positions, whatever else the piece has: one group, and
/// no splits.
struct AttentionPagesOrderedConfig : PagedConfig {};

std::string nameOf(const AttentionPagesConfig &c);
std::string nameOf(const AttentionPagesWgmmaConfig &c);
std::string nameOf(const AttentionPagesWideConfig &c);
std::string nameOf(const AttentionPagesOrderedConfig &c);
KernelSource attentionPages(llvm::StringRef name, const AttentionPagesConfig &config);
KernelSource attentionPages(llvm::StringRef name, const AttentionPagesWgmmaConfig &config);
KernelSource attentionPages(llvm::StringRef name, const AttentionPagesWideConfig &config);
KernelSource attentionPages(llvm::StringRef name, const AttentionPagesOrderedConfig &config);
Grid gridOf(const PagedConfig &c, const plan::ExprT &pieces);
/// Of attention_prefix in front of a kernel, for calls of up to so many sequences.
AttentionPrefixConfig prefixOf(const PagedConfig &c, int64_t sequences);

/// What a kernel's record launches its kernel with.
struct PagedLaunch {
  StepBuilder &b;
  Op &op;
  const PagedProblem &p;
  StepBuilder::Args &args;

  std::string name(llvm::StringRef stem) const { return b.pool().nextKernelName(stem); }
  /// With room for what the splits of the grid add up.
  llvm::Error launch(KernelSource kernel, const PagedConfig &c) const;
};

template <typename Config> using PagedKernelOf = KernelOf<PagedProblem, PagedLaunch, Config>;

/// All of them, in order of preference.
llvm::ArrayRef<const PagedKernel *> pagedKernels();
/// Every kernel with its configurations, or why it refuses or is not taken.
std::string explainPaged(const PagedProblem &p);
/// Attention over pages as explain takes it: "pages rows=256 pieces=8 heads=12 head_dim=64 f16".
llvm::Expected<PagedProblem> parsePagedProblem(llvm::StringRef text, const Target &target);

llvm::Error emitPaged(StepBuilder &b, const PagedGroup &group);

} // namespace gpt2c
