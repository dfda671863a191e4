// Threads that stay: parts of an op on all of them.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstdint>

namespace gpt2c {

/// Calls f(i) for each i < parts, on productThreads() threads, and waits. Which thread takes which
/// part is open. Within a part, and while another thread is at it, all is done by the caller. What
/// a part throws is thrown here, and other parts may then be missing. RowInvariance is that of the
/// caller.
void forParts(int64_t parts, llvm::function_ref<void(int64_t)> f);

/// A number of parts for `work` operations that can be cut in `most`: one where it is little.
int64_t partsOf(double work, int64_t most);

} // namespace gpt2c
