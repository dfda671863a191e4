// How the groups of a schedule become launches, and the kernels that schedules are made for.
#pragma once

#include "codegen/StepBuilder.h"
#include "schedule/Scheduler.h"

namespace gpt2c {

/// All kernels there are.
const Kernels &allKernels();
/// The launches of a group.
llvm::Error emit(StepBuilder &b, const Group &group);
/// Schedules `f` for the builder's target and builds its steps; what else `options` say of the
/// target is not looked at.
llvm::Error build(StepBuilder &b, Function &f, ScheduleOptions options = {});

} // namespace gpt2c
