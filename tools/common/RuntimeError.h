// Between the runtime's errors and the compiler's.
#pragma once

#include "ir/Error.h"
#include "runtime/Status.h"

namespace gpt2c {

/// The same code and message; success for Ok.
inline llvm::Error toError(const rt::Status &status) {
  if (status.ok())
    return llvm::Error::success();
  return makeError(ExitCode(int(status.code())), status.message());
}

} // namespace gpt2c
