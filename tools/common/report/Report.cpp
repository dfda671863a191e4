#include "tools/common/report/Report.h"

#include "tools/runtime-common/Report.h"

#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"

#include <new>
#include <system_error>

namespace gpt2c {

llvm::Error flushOutput() {
  llvm::outs().flush();
  if (!llvm::outs().has_error())
    return llvm::Error::success();
  std::string why = llvm::outs().error().message();
  llvm::outs().clear_error();
  return makeError(ExitCode::Io, "cannot write to stdout: " + why);
}

int runTool(llvm::function_ref<llvm::Error()> body) {
  beginTool();
  llvm::install_bad_alloc_error_handler(
      [](void *, const char *reason, bool) { endOutOfMemory(reason); });
  llvm::Error error = llvm::Error::success();
  try {
    error = llvm::joinErrors(std::move(error), body());
  } catch (const std::bad_alloc &e) {
    endOutOfMemory(e.what());
  } catch (const std::system_error &e) {
    endOutOfMemory(e.what());
  }
  error = llvm::joinErrors(std::move(error), flushOutput());
  return static_cast<int>(printError(std::move(error), llvm::errs()));
}

} // namespace gpt2c
