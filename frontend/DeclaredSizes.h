// Names of sizes that an export gives to its inputs and its own graph contradicts.
#pragma once

#include "frontend/Symbols.h"
#include "ir/Function.h"

namespace gpt2c {

/// Two dimensions that the graph needs to be equal, or one of them 1.
using DimPairs = std::vector<std::pair<Dim, Dim>>;

/// A mask declared [batch, seq] that the graph joins with scores of past + seq keys: the names say
/// that there is no past. ONNX Runtime reads such names of no input, so neither are they a reason
/// to refuse what it runs: the size of an input [batch, n], other than ids, gets a name of its own
/// where that takes contradictions away. `assumed` are the pairs that inference met; returned is
/// what to warn of.
llvm::Expected<std::vector<std::string>> renameDeclaredSizes(Function &f, const DimPairs &assumed,
                                                             Symbols &symbols);

} // namespace gpt2c
