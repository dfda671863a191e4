// Requests that come as a file says, and how they are played through the engine in this process.
#pragma once

#include "runtime/engine/Engine.h"
#include "tools/gpt2c-bench/Output.h"
#include "tools/gpt2c-bench/Spread.h"
#include "tools/runtime-common/Json.h"

#include <optional>

namespace gpt2c {

struct WorkloadRequest {
  double at = 0; ///< seconds since the start
  rt::Tokens prompt;
  int64_t maxTokens = 0;
  Json more = Json::object(); ///< the line's other fields, for a server
};

/// One JSON object for each line: "at" (seconds; 0 where it is missing), "prefix" (tokens in front
/// of the prompt, the first so many of a list that is the same for all lines; 0 where it is
/// missing), "prompt" (token ids, or a number of tokens; tokens are drawn at random below
/// `vocabulary`) and "max_tokens". In the order of "at". Usage, with the line, where one is
/// something else.
rt::Result<std::vector<WorkloadRequest>> readWorkload(const std::string &path, int32_t vocabulary);

/// Arrivals of a Poisson process of `rate` requests a second in the place of those of the file;
/// infinite: all at once.
void rearrive(std::vector<WorkloadRequest> &requests, double rate);

struct WorkloadResults {
  std::string plan, precision, device, workload;
  size_t requests = 0, completed = 0, refused = 0, failed = 0;
  std::string firstProblem; ///< of those refused or failed
  double seconds = 0;       ///< first arrival to last ending
  int64_t promptTokens = 0, outputTokens = 0;
  Spread firstToken;    ///< ms from arrival, as the workload has it, to the first token
  Spread betweenTokens; ///< ms, all gaps of all answers
  Spread whole;         ///< ms from arrival to the ending
  Spread queue, running, rows, pages; ///< with each step
  rt::EngineStats engine;             ///< counts of the workload alone
  int32_t rowBudget = 0, pageTokens = 0;
  /// XXH3 of all answers' tokens, in the order of the requests: the same where all tokens are.
  uint64_t answers = 0;
};

/// Plays the requests against the clock: each is submitted when its time has come, whatever the
/// engine does at that moment. The seed of a request is its number.
rt::Result<WorkloadResults> playWorkload(rt::Session &session,
                                         std::vector<WorkloadRequest> requests,
                                         rt::EngineOptions options,
                                         const rt::SamplingParams &sampling);

void writeMarkdown(const WorkloadResults &results, std::ostream &os);
void writeCsv(const WorkloadResults &results, std::ostream &os);
Json jsonOf(const WorkloadResults &results);

} // namespace gpt2c
