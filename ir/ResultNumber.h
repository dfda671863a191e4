// Values by number, for files that refer to those of a function's text.
#pragma once

#include "ir/Function.h"

namespace gpt2c {

/// The number of an op's result among the results of all ops of its function, from 0; and back,
/// null when there are fewer.
int resultNumber(const Value &result);
Value *resultAt(const Function &function, int number);

} // namespace gpt2c
