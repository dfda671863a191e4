// Where tests look for larger models, texts and tokenizer vectors.
#pragma once

#include <cstdlib>
#include <string>

namespace gpt2c {

/// $GPT2C_SHARED_DIR, or the folder the build was configured with. It may be absent: tests that
/// need it are then skipped.
inline std::string sharedDir() {
  const char *given = std::getenv("GPT2C_SHARED_DIR");
  return given && *given ? given : GPT2C_SHARED_DIR;
}

} // namespace gpt2c
