#include "tools/common/flags/DeviceName.h"

#include "ir/Error.h"

namespace gpt2c {

llvm::Expected<DeviceName> parseDeviceName(llvm::StringRef text) {
  const rt::Result<DeviceName> name = rt::parseDeviceName(text);
  if (!name)
    return makeError(ExitCode::Usage,
                     "--device=" + text + " is no device; there are auto, cuda, cuda:N and cpu");
  return *name;
}

} // namespace gpt2c
