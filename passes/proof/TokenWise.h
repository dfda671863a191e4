// Whether a graph treats every token by itself, apart from attention and embeddings.
#pragma once

#include "passes/Remark.h"

#include <optional>

namespace gpt2c {

/// A KV state replaces the tokens of earlier calls only where nothing but attention looks at other
/// tokens, and nothing but the tables of `embeddings` at where a token stands. Follows `root` back
/// to the attentions and embeddings; returns what may do either, if anything does. `batch` and
/// `tokens` are the dimensions of the token ids.
std::optional<Obstacle> tokenMixing(Value *root, llvm::ArrayRef<Op *> embeddings, const Dim &batch,
                                    const Dim &tokens);

/// Whether each row of the result of `op` follows from the same row of its operands, where rows are
/// `batch` times `tokens`.
bool isTokenWise(const Op &op, const Dim &batch, const Dim &tokens);

} // namespace gpt2c
