#include "tools/common/Report.h"

#include "runtime/plan/OutputFile.h"
#include "runtime/plan/PlanMapping.h"

#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include <unistd.h>

namespace gpt2c {

llvm::Error flushOutput() {
  llvm::outs().flush();
  if (!llvm::outs().has_error())
    return llvm::Error::success();
  std::string why = llvm::outs().error().message();
  llvm::outs().clear_error();
  return makeError(ExitCode::Io, "cannot write to stdout: " + why);
}

static constexpr const char *wayOut =
    "; the process has what its limits (ulimit -v, -u, cgroup) and the machine leave";

/// Ends the process at once, without memory: other threads go on, and destructors may wait for
/// them.
[[noreturn]] static void endOutOfMemory(const char *what) {
  for (const char *part : {"error: out of memory: ", what, wayOut, "\n"})
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0)
      break;
  rt::OutputFile::removeUnfinished();
  ::_exit(int(ExitCode::OutOfMemory));
}

/// In a thread of a pool an exception reaches nobody.
[[noreturn]] static void onTerminate() {
  if (std::exception_ptr e = std::current_exception()) {
    try {
      std::rethrow_exception(e);
    } catch (const std::bad_alloc &alloc) {
      endOutOfMemory(alloc.what());
    } catch (const std::system_error &system) {
      endOutOfMemory(system.what());
    } catch (...) {
    }
  }
  std::abort();
}

int runTool(llvm::function_ref<llvm::Error()> body) {
  std::set_terminate(onTerminate);
  llvm::install_bad_alloc_error_handler(
      [](void *, const char *reason, bool) { endOutOfMemory(reason); });
  rt::OutputFile::removeOnSignals();
  rt::endWhereAPlanIsCut();
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
