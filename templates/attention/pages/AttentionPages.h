// attention_pages: append_attention over a KV state in pages.
#pragma once

#include "codegen/Grid.h"
#include "codegen/Lowering.h"

namespace gpt2c {

struct AttentionPagesConfig {
  Scalar x = Scalar::F16; ///< or BF16, or F32 by 3xTF32: of rows and state
  int headDim = 0, heads = 0, kvHeads = 0;
  int pageTokens = 64;
  int window = 0;     ///< keys that a query sees; 0: all up to its own
  int warps = 4;      ///< of a group, 16 tokens each
  int groups = 1;     ///< of warps that share the keys of a piece of more than 16 tokens
  bool wgmma = false; ///< pieces of prompts by wgmma; attention_pages_wgmma.cuh
  int splits = 1;     ///< of the grid: blocks that share the keys of a piece of up to 16 tokens
  /// Keys are summed up in the order of their positions, whatever else the piece has: no splits.
  bool ordered = false;
  /// The most tokens of a piece.
  int pieceTokens() const { return 16 * warps; }
};

KernelSource attentionPages(llvm::StringRef name, const AttentionPagesConfig &config);
Grid gridOf(const AttentionPagesConfig &c, const plan::ExprT &pieces);

llvm::Error lowerPagedAttention(StepBuilder &b, Op &op);

} // namespace gpt2c
