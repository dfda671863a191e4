// A module compiled to a plan that only this process sees.
#pragma once

#include "codegen/Codegen.h"
#include "runtime/session/Session.h"

namespace gpt2c {

/// Makes the device that a plan runs on.
using OpenBackend = llvm::function_ref<rt::Result<std::unique_ptr<rt::Backend>>(rt::Plan::Ptr)>;

/// The plan of `module` on the device of `open`. Errors: those of generatePlan and of the device,
/// and Io: the plan is a temporary file, without a name once it is open.
llvm::Expected<std::unique_ptr<rt::Session>>
openGenerated(const Module &module, const CodegenOptions &options, OpenBackend open);
/// The same for a plan that was generated.
llvm::Expected<std::unique_ptr<rt::Session>> openGenerated(GeneratedPlan &plan, OpenBackend open);

} // namespace gpt2c
