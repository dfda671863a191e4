// append_attention over a state in pages, kv[page, layer, 2, head, P, d]: keys at 0, values at 1 of
// the third axis.
#pragma once

#include "ir/Eval.h"

namespace gpt2c {

/// What a piece says, in the order of its elements: rows row to row + count - 1 of qkv are tokens
/// position to position + count - 1 of the sequence whose token t is number t mod P of page
/// tables[table, t / P].
struct AttentionPiece {
  static constexpr int64_t words = 4;
  static constexpr int64_t mostTokens = 64; ///< as GPUs are given them
  int64_t row;
  int64_t count; ///< 0: the piece says nothing
  int64_t position;
  int64_t table;
};

/// Whether `op`, an append_attention, has its state in pages.
bool isPaged(const Op &op);
/// Checks the operands and gives the results their types.
llvm::Error inferPagedAttention(InferContext &c);
/// Appends the keys and values of all pieces, then attends, in F32 or F64.
llvm::Error evalPagedAttention(EvalContext &c);
Cost pagedAttentionCost(const Op &op);

} // namespace gpt2c
