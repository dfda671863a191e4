#include "tools/common/verification/GeneratedSession.h"

#include "ir/Error.h"
#include "tools/common/RuntimeError.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"

namespace gpt2c {

llvm::Expected<std::unique_ptr<rt::Session>>
openGenerated(const Module &module, const CodegenOptions &options, OpenBackend open) {
  auto plan = generatePlan(module, options);
  if (!plan)
    return plan.takeError();
  return openGenerated(**plan, open);
}

llvm::Expected<std::unique_ptr<rt::Session>> openGenerated(GeneratedPlan &plan, OpenBackend open) {
  llvm::SmallString<128> path;
  if (std::error_code ec = llvm::sys::fs::createTemporaryFile("gpt2c", "plan", path))
    return makeError(ExitCode::Io, "cannot make a temporary file: " + ec.message());
  auto remove = llvm::make_scope_exit([&] { llvm::sys::fs::remove(path); });
  if (rt::Status s = rt::writePlan(std::string(path), plan.contents); !s.ok())
    return toError(s);
  rt::OpenOptions unverified;
  unverified.verifyWeights = false;
  auto opened = rt::Plan::open(std::string(path), unverified);
  if (!opened)
    return toError(opened.status());
  auto backend = open(*opened);
  if (!backend)
    return toError(backend.status());
  return std::make_unique<rt::Session>(*opened, backend.take());
}

} // namespace gpt2c
