// A graph as it would be computed in a type of fewer digits.
#pragma once

#include "ir/Function.h"

namespace gpt2c {

/// A copy of `graph`, which computes in single precision, where every number that depends on data
/// is rounded to `type` and back once it is computed, and so are weights that it is computed with.
/// Data are elements of the arguments `data`; what their shapes alone say (positions, angles,
/// masks) stays as it is.
llvm::Expected<std::unique_ptr<Function>>
roundedGraph(const Function &graph, llvm::ArrayRef<const Value *> data, DType type);

} // namespace gpt2c
