// gpt2c-compare: the checks of a plan as a whole, which gpt2c-run hands over.
#pragma once

#include "runtime/session/Session.h"
#include "verify/Reference.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace gpt2c {

struct Tolerance {
  std::optional<double> relative; ///< of norm(difference) / norm(expected); absent: 1e-4, or
                                  ///< 1e-2 in fp16, 8e-2 in bf16
  std::optional<double> absolute; ///< of each element
};

/// Runs each ONNX test data set (input_<i>.pb, output_<i>.pb) as the exported graph and compares.
/// Fails with Quality when an output is out of tolerance.
llvm::Error runTestData(rt::Session &session, llvm::ArrayRef<std::string> folders,
                        const Tolerance &tolerance);

/// Compares the functions that the session's device runs with the exported graph. Fails with
/// Quality when one differs by more than its tolerance.
llvm::Error checkAgainst(rt::Session &session, const std::string &modelPath, VerifyMode mode);

} // namespace gpt2c
