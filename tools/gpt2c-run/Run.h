// gpt2c-run: the parts of the tool.
#pragma once

#include "runtime/grammar/Grammar.h"
#include "runtime/text/TextGeneration.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpt2c {

enum class OutputKind { Auto, Text, Ids, Json, JsonLines };

struct PromptText {
  std::string text;
  std::string line = {}; ///< "line 3 of FILE", of --prompt-lines; empty: of another flag
};

struct Prompts {
  std::vector<PromptText> texts; ///< --prompt, --prompt-file and --prompt-lines
  std::vector<std::string> ids;  ///< --ids: "1,2,3"
};

/// Which tokens answers may have.
struct ConstraintFlags {
  bool json = false;
  std::string schemaFile, grammarFile, regex;
  std::vector<std::string> choices, badWords;
  std::vector<int32_t> allowedIds;

  bool asksForGrammar() const {
    return json || !schemaFile.empty() || !grammarFile.empty() || !regex.empty() ||
           !choices.empty();
  }
};

struct GenerateFlags {
  int64_t newTokens = 32;
  int64_t minTokens = 0; ///< of these before the end of text or a stop
  bool ignoreEos = false;
  rt::AddBos addBos = rt::AddBos::Auto; ///< ahead of prompts that are texts
  rt::SamplingParams sampling;
  int64_t samples = 1; ///< answers to each prompt; the i-th draws with seed + i
  std::vector<std::string> stops;
  std::vector<int32_t> stopIds;
  int64_t slide = -1; ///< rt::GenerateOptions::slide
  bool echo = false;  ///< texts begin with the prompt
  OutputKind output = OutputKind::Auto;
  /// Prompts are turns of a chat, whose template makes a prompt of them.
  bool chat = false;
  std::string system;       ///< of a chat; empty: none
  std::string chatTemplate; ///< in place of the plan's; empty: that one
  bool advised = false;     ///< `sampling` is what the model's makers advise
  double loadSeconds = 0;   ///< that the plan took until it was ready to run
  std::string loadState;    ///< a file whose KV state the one prompt goes on from; empty: none
  std::string saveState;    ///< where the KV state goes behind the last answer; empty: nowhere
};

/// One answer to one prompt.
struct Answer {
  std::string prompt;       ///< empty where it was given as ids and there is no tokenizer
  std::string skipped = {}; ///< why there is no answer, of a line of --prompt-lines
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
const char *finishReason(const Answer &answer);

/// What a generation says besides its answers.
struct Outcome {
  std::string model, device;
  double loadSeconds = 0;
  rt::Generated generated;
};

void printJson(std::span<const Answer> answers, const Outcome &outcome, bool texts);
/// One object a line for each answer.
void printJsonLines(std::span<const Answer> answers, bool texts);
void printIds(std::span<const Answer> answers);
void printTexts(std::span<const Answer> answers);
/// `8 sequences, 96 prompt tokens in 8.1 ms; then 62.1 tokens/s (16.1 ms a step); CPU, 2 threads`
void printSummary(std::span<const Answer> answers, const Outcome &outcome, int64_t context);

/// Puts what the flags ask for into the sampling parameters of `to`.
rt::Status constrain(const ConstraintFlags &flags, const rt::Session &session,
                     const rt::Tokenizer *tokenizer, GenerateFlags &to);

/// Continues the prompts: answers to stdout, a summary of times to stderr. `tokenizer` may be null.
rt::Status generate(rt::Session &session, const rt::Tokenizer *tokenizer, const Prompts &prompts,
                    const GenerateFlags &flags);

/// Continues one text, or a chat, by turns with whoever writes to standard input, behind the
/// prompts. Ctrl-C ends an answer; without one it ends the program with 130.
rt::Status interact(rt::Session &session, const rt::Tokenizer &tokenizer, const Prompts &prompts,
                    const GenerateFlags &flags);

/// Runs the golden prompts of the plan on the session's device and prints a line for each check.
/// Fails with Quality when the device computes something else.
rt::Status runSelfTest(rt::Session &session);

} // namespace gpt2c
