// The table of kernels, from their records.
#pragma once

#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

/// docs/kernels-table.md.
void printKernelDocs(llvm::raw_ostream &os);

} // namespace gpt2c
