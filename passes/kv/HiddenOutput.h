// The hidden states behind the last layer as an output of the graph, for embeddings.
#pragma once

#include "ir/Function.h"

#include "llvm/Support/Error.h"

namespace gpt2c {

/// The name of that output.
inline constexpr char hiddenOutputName[] = "last_hidden_state";

/// Of an imported graph: in the place of its logits it gives what the product that makes them
/// takes, [batch, tokens, width], under the name above. Nothing is changed where it gives that
/// already. Usage, with why, where the graph has no such product behind rows of every token.
llvm::Error outputHidden(Function &f);

} // namespace gpt2c
