#include "tools/common/Report.h"

#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

int report(llvm::Error e) { return static_cast<int>(printError(std::move(e), llvm::errs())); }

} // namespace gpt2c
