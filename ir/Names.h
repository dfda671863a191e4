// The table behind `intern` (ir/Dim.h).
#pragma once

#include "llvm/ADT/StringRef.h"

namespace gpt2c {

/// Whether `s` was interned before: a name that was not is new to the process.
bool isInterned(llvm::StringRef s);

} // namespace gpt2c
