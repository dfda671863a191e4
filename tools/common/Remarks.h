// How tools show what the passes remarked.
#pragma once

#include "passes/Pass.h"

namespace gpt2c {

/// `remark: recognise-gelu: message [/h.0/mlp/Mul, /h.0/mlp/Pow and 5 more]`; `missed:` for what
/// did not happen.
void printRemarks(llvm::ArrayRef<Remark> remarks, llvm::raw_ostream &os);

} // namespace gpt2c
