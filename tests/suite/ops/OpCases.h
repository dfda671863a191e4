// The op cases of cases.jsonl: an op, its operands, and outputs from a reference that shares no
// code with it (see generate.py).
#pragma once

#include "ir/Function.h"

#include <string>
#include <vector>

namespace gpt2c::suite {

struct CaseInput {
  Tensor tensor; // invalid: absent
  bool constant = false;
};

struct OpCase {
  std::string op, name;
  std::vector<NamedAttr> attrs;
  std::vector<CaseInput> inputs;
  std::vector<Tensor> outputs;
  double tolerance = 0;
  /// What a GPU's kernels may be off by beside the tolerance, of the first output; or invalid.
  Tensor slack;
  bool nativeOnly = false;

  /// "add 'broadcast'"
  std::string title() const { return op + " '" + name + "'"; }
};

/// Reads the file, cases.jsonl beside this header unless the first call names another, once. A line
/// that is not what generate.py writes ends the program.
const std::vector<OpCase> &allOpCases(llvm::StringRef path = {});

struct CaseFunction {
  std::unique_ptr<Function> function; // returns all results of the op
  Op *op = nullptr;
  std::vector<Tensor> arguments;
};
/// Whether a dimension of this size, larger than 1, becomes the symbol s<n>.
using IsSymbolic = llvm::function_ref<bool(int64_t)>;
/// A function of the one op. Fails as inference of the op fails.
llvm::Expected<CaseFunction> makeFunction(
    const OpCase &c, std::string name, IsSymbolic isSymbolic = [](int64_t) { return false; });

/// What differs between `actual` and `expected` by more than tolerance * (1 + |expected|), and the
/// element of `slack` where that is valid, or in shape; empty when nothing does.
std::string difference(const Tensor &actual, const Tensor &expected, double tolerance,
                       const Tensor &slack = {});

} // namespace gpt2c::suite
