// Lowering of attention over the KV state.
#pragma once

#include "templates/quantize/Quantize.h"

namespace gpt2c {

llvm::Error lowerAppendAttention(StepBuilder &b, Op &op);
llvm::Error lowerQuantizedAppendAttention(StepBuilder &b, Op &op);

} // namespace gpt2c
