// The reference of ops, from their signatures.
#pragma once

#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

/// docs/ir-ops.md.
void printOpDocs(llvm::raw_ostream &os);

} // namespace gpt2c
