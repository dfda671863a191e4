// Which lowering an op has.
#pragma once

#include "codegen/StepBuilder.h"

namespace gpt2c {

/// Null: the op has no kernel.
Lowering loweringOf(OpCode code);

} // namespace gpt2c
