// Attention over the KV state, shared by the ops that read it.
//
// The state is kv[layer, 2, slot, head, position, d]: keys at 0, values at 1 of the second axis. H
// heads of queries share its G heads, so many of them one after the other each. A state in i8 or
// f8e4m3 has rows of d + 4 bytes (ir/ops/StateRows.h).
#pragma once

#include "ir/Eval.h"
#include "ir/Format.h"

namespace gpt2c {

/// Bytes of the scale of a row of a state in that type; 0: rows have none.
constexpr int64_t kvScaleBytes(DType state) { return scaleBytes(rowFormat(state)); }

/// Checks that `heads` heads of queries share those of the state evenly.
llvm::Error checkKeyHeads(InferContext &c, int64_t heads, const Dim &stateHeads);
/// Checks kv, qkv, past and key_mask (operands 0 to 3) and operand `length`; gives result 0 its
/// type and returns that of the attention's value.
llvm::Expected<Type> inferAppendAttention(InferContext &c, unsigned length);
/// Appends to the state, which becomes output 0, and attends; the value in F32 or F64. With operand
/// `length` the value is that of each sequence's query number length[b] - 1.
llvm::Expected<Tensor> evalAppendAttention(EvalContext &c, unsigned length);
/// `op`'s result 1 is the value.
Cost appendAttentionCost(const Op &op);

} // namespace gpt2c
