// Requests that come as a file says, played against a server over HTTP.
#pragma once

#include "tools/gpt2c-bench/Workload.h"
#include "tools/runtime-common/HttpUrl.h"

namespace gpt2c {

/// What a server says of its first model.
struct ServedModel {
  std::string name;
  int32_t vocabulary = 0; ///< ids that prompts may have are below
};

struct LoadOptions {
  HttpUrl server;  ///< without /v1
  std::string key; ///< empty: none
  /// So many requests are under way at any time, and the times of the workload do not count; 0:
  /// requests come when the workload says, whatever became of those before.
  int streams = 0;
  rt::SamplingParams sampling;
};

struct LoadResults {
  std::string url, workload, model;
  int streams = 0, threads = 0; ///< threads: of this side
  size_t requests = 0, completed = 0, refused = 0, failed = 0;
  /// Answers by their HTTP status, "error" for an error behind the head, "connection" for one that
  /// ended or never was.
  std::map<std::string, size_t> statuses;
  std::string firstProblem;
  double seconds = 0; ///< first arrival to last ending
  int64_t promptTokens = 0, outputTokens = 0, events = 0;
  size_t mostConnections = 0;
  Spread firstToken;    ///< ms to the first token
  Spread betweenTokens; ///< ms between events with tokens of one answer
  Spread perToken;      ///< ms of an answer behind its first token, for each token
  Spread whole;         ///< ms to the end
  Spread late;          ///< ms by which a request was sent after its time
};

/// Whether this build has the client. Without it what follows is Unsupported.
bool hasLoadClient();

/// Asks /v1/models. Io where the server is not to be had or says something else.
rt::Result<ServedModel> askServer(const LoadOptions &options);

/// Plays the requests; what a server refuses is counted. The seed of a request is its number. One
/// request that is not of the workload runs before. Times count from when the workload has the
/// request, with `streams` from when it is sent.
rt::Result<LoadResults> playLoad(const std::vector<WorkloadRequest> &requests,
                                 const ServedModel &model, const LoadOptions &options);

void writeMarkdown(const LoadResults &results, std::ostream &os);
void writeCsv(const LoadResults &results, std::ostream &os);
Json jsonOf(const LoadResults &results);

} // namespace gpt2c
