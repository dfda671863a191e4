// Regular expressions over names of modules.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace gpt2c {

/// Whether the whole name matches, as re.fullmatch of Python says. Unsupported for what is no
/// pattern, is longer than 10,000 bytes, or takes too many steps.
llvm::Expected<bool> matchesWhole(llvm::StringRef pattern, llvm::StringRef name);

} // namespace gpt2c
