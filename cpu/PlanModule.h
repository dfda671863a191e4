// The IR that a plan was made from, with its constants in the plan's weights section.
#pragma once

#include "ir/Function.h"
#include "runtime/plan/PlanFile.h"

namespace gpt2c {

/// Parses plan->irText(). Constants borrow the plan's bytes and keep the plan open; nothing is
/// copied. Fails with PlanCorrupt.
llvm::Expected<std::unique_ptr<Module>> loadPlanModule(rt::Plan::Ptr plan);

} // namespace gpt2c
