#include "tools/common/DeviceName.h"

#include "ir/Error.h"

#include <climits>

namespace gpt2c {

llvm::Expected<DeviceName> parseDeviceName(llvm::StringRef text) {
  if (text == "auto")
    return DeviceName{};
  if (text == "cpu")
    return DeviceName{DeviceName::Kind::Cpu, 0};
  if (text == "cuda")
    return DeviceName{DeviceName::Kind::Cuda, 0};
  unsigned ordinal = 0;
  llvm::StringRef number = text;
  if (number.consume_front("cuda:") && !number.getAsInteger(10, ordinal) && ordinal <= INT_MAX)
    return DeviceName{DeviceName::Kind::Cuda, int(ordinal)};
  return makeError(ExitCode::Usage,
                   "--device=" + text + " is no device; there are auto, cuda, cuda:N and cpu");
}

} // namespace gpt2c
