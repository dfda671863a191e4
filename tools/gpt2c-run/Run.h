// gpt2c-run: the parts of the tool.
#pragma once

#include "runtime/text/TextGeneration.h"
#include "verify/Reference.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

enum class OutputKind { Auto, Text, Ids, Json, JsonLines };

struct Prompts {
  std::vector<std::string> texts; ///< --prompt, --prompt-file and --prompt-lines
  std::vector<std::string> ids;   ///< --ids: "1,2,3"
};

struct GenerateFlags {
  int64_t newTokens = 32;
  bool ignoreEos = false;
  rt::SamplingParams sampling;
  int64_t samples = 1; ///< answers to each prompt; the i-th draws with seed + i
  std::vector<std::string> stops;
  std::vector<int32_t> stopIds;
  int64_t slide = -1; ///< rt::GenerateOptions::slide
  bool echo = false;  ///< texts begin with the prompt
  OutputKind output = OutputKind::Auto;
  std::string tokenizer;  ///< a folder or tokenizer.json in place of the plan's
  double loadSeconds = 0; ///< that the plan took until it was ready to run
};

/// One answer to one prompt.
struct Answer {
  std::string prompt; ///< empty where it was given as ids and there is no tokenizer
  rt::Tokens promptIds, ids;
  std::string text;               ///< cut where a stop string begins; with --echo behind the prompt
  std::vector<rt::Choice> chosen; ///< with log probabilities where they were asked for
  rt::Finish finish = rt::Finish::Length;
  std::string stop; ///< the string or token that ended it, for people; empty: none
  /// As of rt::TextAnswer.
  double firstTokenSeconds = 0, lastTokenSeconds = 0;
  std::optional<double> tokensPerSecond;
};

/// "stop", "length" or "context", as JSON has it.
llvm::StringRef finishReason(const Answer &answer);

/// What a generation says besides its answers.
struct Outcome {
  std::string model, device;
  double loadSeconds = 0;
  rt::Generated generated;
};

void printJson(llvm::ArrayRef<Answer> answers, const Outcome &outcome, bool texts);
/// One object a line for each answer.
void printJsonLines(llvm::ArrayRef<Answer> answers, bool texts);
void printIds(llvm::ArrayRef<Answer> answers);
void printTexts(llvm::ArrayRef<Answer> answers);
/// `8 sequences, 96 prompt tokens in 8.1 ms; then 62.1 tokens/s (16.1 ms a step); CPU, 2 threads`
void printSummary(llvm::ArrayRef<Answer> answers, const Outcome &outcome, int64_t context);

/// Continues the prompts: answers to stdout, a summary of times to stderr.
llvm::Error generate(rt::Session &session, const Prompts &prompts, const GenerateFlags &flags);

/// Continues one text by turns with whoever writes to standard input, behind the prompts. Ctrl-C
/// ends an answer; without one it ends the program with 130.
llvm::Error interact(rt::Session &session, const Prompts &prompts, const GenerateFlags &flags);

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

/// Runs the golden prompts of the plan on the session's device and prints a line for each check.
/// Fails with Quality when the device computes something else.
llvm::Error selfTest(rt::Session &session);

} // namespace gpt2c
