// Whether a graph treats every token by itself, apart from attention and embeddings.
#pragma once

#include "ir/Function.h"

#include <string>

namespace gpt2c {

/// A KV state replaces the tokens of earlier calls only where nothing but attention looks at other
/// tokens, and nothing but the tables of `embeddings` at where a token stands. Follows `root` back
/// to the attentions and embeddings; returns what may do either, empty when nothing does. `batch`
/// and `tokens` are the dimensions of the token ids.
std::string tokenMixing(Value *root, llvm::ArrayRef<Op *> embeddings, const Dim &batch,
                        const Dim &tokens);

} // namespace gpt2c
