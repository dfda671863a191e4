// Any bytes are a module or an error; a module prints to text that parses and prints to the same
// text, and verifies but for InPlace operands.
#include "ir/Text.h"
#include "ir/Verifier.h"

#include <cstdlib>

using namespace gpt2c;

static std::string text(const Module &m) {
  std::string out;
  llvm::raw_string_ostream os(out);
  print(m, os);
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto m = parseModule({reinterpret_cast<const char *>(data), size}, "fuzz");
  if (!m) {
    llvm::consumeError(m.takeError());
    return 0;
  }
  llvm::consumeError(verify(**m));
  std::string once = text(**m);
  auto again = parseModule(once, "again");
  if (!again) {
    llvm::errs() << once << llvm::toString(again.takeError());
    std::abort();
  }
  if (text(**again) != once) {
    llvm::errs() << once << "\nbecomes\n" << text(**again);
    std::abort();
  }
  return 0;
}
