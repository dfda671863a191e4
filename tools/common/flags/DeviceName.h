// What --device names.
#pragma once

#include "runtime/device/DeviceName.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace gpt2c {

using rt::DeviceName;

/// auto, cuda, cuda:N or cpu. Error: Usage, with the names that there are.
llvm::Expected<DeviceName> parseDeviceName(llvm::StringRef text);

} // namespace gpt2c
