// append_attention over a KV state in pages: the problem, its kernels, and the choice among them.
#pragma once

#include "codegen/Grid.h"
#include "codegen/Lowering.h"
#include "schedule/AttentionProblem.h"
#include "schedule/Kernel.h"

namespace gpt2c {

/// What the configurations of all its kernels have.
struct PagedConfig {
  Scalar x = Scalar::F16; ///< of rows and state
  int headDim = 0, heads = 0, kvHeads = 0;
  int pageTokens = 64;
  int window = 0; ///< keys that a query sees; 0: all up to its own
  int warps = 4;  ///< of a group, 16 tokens each
  int groups = 1; ///< of warps that share the keys of a piece of more than 16 tokens
  int splits = 1; ///< of the grid: blocks that share the keys of a piece of up to 16 tokens

  /// The most tokens of a piece.
  int pieceTokens() const { return 16 * warps; }
};

/// fp16 or bf16, or fp32 by 3xTF32.
struct AttentionPagesConfig : PagedConfig {};
/// Pieces of prompts by wgmma, in two or four groups.
struct AttentionPagesWgmmaConfig : PagedConfig {};
/// Keys are summed up in the order of their positions, whatever else the piece has: one group, and
/// no splits.
struct AttentionPagesOrderedConfig : PagedConfig {};

std::string nameOf(const AttentionPagesConfig &c);
std::string nameOf(const AttentionPagesWgmmaConfig &c);
std::string nameOf(const AttentionPagesOrderedConfig &c);
KernelSource attentionPages(llvm::StringRef name, const AttentionPagesConfig &config);
KernelSource attentionPages(llvm::StringRef name, const AttentionPagesWgmmaConfig &config);
KernelSource attentionPages(llvm::StringRef name, const AttentionPagesOrderedConfig &config);
Grid gridOf(const PagedConfig &c, const plan::ExprT &pieces);

struct PagedProblem {
  PagedConfig config; ///< types, heads and pages
  Scalar kv = Scalar::F16;
  int64_t rows = 1, pieces = 1; ///< of a call, at most
  bool prompts = false;         ///< most calls have one: few segments
  bool oneOrder = false;        ///< a row has the same bits whatever else there is
  bool tf32 = true;             ///< tensor cores may multiply fp32
  Target target = {};

  using Ability = AttentionAbility;
  AttentionAbilities wants() const;
  int64_t blocks() const { return pieces * config.heads; }
};
inline const Target &targetOf(const PagedProblem &p) { return p.target; }

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

using PagedKernel = Kernel<PagedProblem, PagedLaunch>;
template <typename Config> using PagedKernelOf = KernelOf<PagedProblem, PagedLaunch, Config>;

/// All of them, in order of preference.
llvm::ArrayRef<const PagedKernel *> pagedKernels();
/// Every kernel with its configurations, or why it refuses or is not taken.
std::string explainPaged(const PagedProblem &p);
/// Attention over pages as explain takes it: "pages rows=256 pieces=8 heads=12 head_dim=64 f16".
llvm::Expected<PagedProblem> parsePagedProblem(llvm::StringRef text, const Target &target);

llvm::Error lowerPagedAttention(StepBuilder &b, Op &op);

} // namespace gpt2c
