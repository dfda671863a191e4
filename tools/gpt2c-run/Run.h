// gpt2c-run: the parts of the tool.
#pragma once

#include "runtime/Session.h"
#include "runtime/Tokenizer.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

enum class OutputKind { Auto, Text, Ids, Json };

struct Prompts {
  std::vector<std::string> texts; ///< --prompt and --prompt-file
  std::vector<std::string> ids;   ///< --ids: "1,2,3"
};

struct GenerateFlags {
  int64_t newTokens = 32;
  bool ignoreEos = false;
  OutputKind output = OutputKind::Auto;
  std::string tokenizer;  ///< a folder or tokenizer.json in place of the plan's
  double loadSeconds = 0; ///< that the plan took until it was ready to run
};

/// Continues the prompts as one batch: tokens to stdout, a summary of times to stderr.
llvm::Error generate(rt::Session &session, const Prompts &prompts, const GenerateFlags &flags);

struct Tolerance {
  std::optional<double> relative; ///< of norm(difference) / norm(expected); absent: 1e-4, or
                                  ///< 1e-2 where the plan or the output is fp16
  std::optional<double> absolute; ///< of each element
};

/// Runs each ONNX test data set (input_<i>.pb, output_<i>.pb) as the exported graph and compares.
/// Fails with Quality when an output is out of tolerance.
llvm::Error runTestData(rt::Session &session, llvm::ArrayRef<std::string> folders,
                        const Tolerance &tolerance);

} // namespace gpt2c
