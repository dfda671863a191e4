// A checkpoint's files from untrusted bytes: config.json where the first byte is '{', else a
// safetensors file. What the readers give fits the file, and is an error else.
#include "frontend/checkpoint/Architectures.h"
#include "frontend/checkpoint/Safetensors.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace gpt2c;
  llvm::StringRef bytes(reinterpret_cast<const char *>(data), size);
  if (bytes.starts_with("{")) {
    auto config = Config::parse(bytes, "fuzz");
    if (!config) {
      llvm::consumeError(config.takeError());
      return 0;
    }
    (void)readDecoder(*config);
    llvm::consumeError(config->takeError());
    return 0;
  }
  auto entries = readSafetensors(bytes, "fuzz");
  if (!entries) {
    llvm::consumeError(entries.takeError());
    return 0;
  }
  for (const SafetensorsEntry &entry : *entries)
    if (entry.offset > size || entry.bytes > size - entry.offset)
      std::abort();
  return 0;
}
