#include "runtime/engine/Admission.h"

namespace gpt2c::rt {
namespace {

std::string counted(int64_t n, const char *what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

Verdict refuse(Refusal refusal, std::string message, Code code = Code::Usage) {
  return {refusal, Status(code, std::move(message))};
}

/// How many pages there are for one sequence, and what helps.
std::string whatPages(const EngineLimits &limits) {
  const std::string has = std::to_string(limits.pages);
  if (limits.hostPages == 0)
    return " tokens, the KV state has " + has +
           ": give it more memory, on the device or in host memory behind it, or ask for fewer "
           "tokens";
  if (limits.readsHostPages)
    return " tokens, the KV state has " + has + ": give it more memory, or ask for fewer tokens";
  const std::string why = limits.whyNotRead.empty() ? "" : " (" + limits.whyNotRead + ")";
  return " tokens, the device has " + has + ", and does not read the " +
         std::to_string(limits.hostPages) + " in host memory where they are" + why +
         ": give it more memory, or ask for fewer tokens";
}

/// The first id outside of the vocabulary; none: -1 as an index.
int64_t firstOutside(std::span<const int32_t> ids, int32_t vocabulary) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocabulary)
      return int64_t(i);
  return -1;
}

Verdict checkIds(std::span<const int32_t> ids, const char *what, int32_t vocabulary) {
  const int64_t i = firstOutside(ids, vocabulary);
  if (i < 0)
    return {};
  return refuse(Refusal::Vocabulary, std::string(what) + " " + std::to_string(i + 1) + " is " +
                                         std::to_string(ids[size_t(i)]) +
                                         "; the model's ids go from 0 to " +
                                         std::to_string(vocabulary - 1));
}

Verdict checkStops(const Request &request, const EngineLimits &limits) {
  if (!request.stops.empty() && !limits.hasTokenizer && !request.tokenizer)
    return refuse(Refusal::Stop, "stop strings need a tokenizer, and the plan has none: compile it "
                                 "with gpt2c --tokenizer, or give stop tokens");
  for (const std::string &stop : request.stops)
    if (stop.empty())
      return refuse(Refusal::Stop, "a stop string is empty");
  return checkIds(request.stopTokens, "stop token", limits.vocabulary);
}

} // namespace

const char *nameOf(Refusal refusal) {
  switch (refusal) {
  case Refusal::None:
    return "none";
  case Refusal::Prompt:
    return "prompt";
  case Refusal::Vocabulary:
    return "vocabulary";
  case Refusal::MaxTokens:
    return "max_tokens";
  case Refusal::Context:
    return "context";
  case Refusal::Pages:
    return "pages";
  case Refusal::Sampling:
    return "sampling";
  case Refusal::Stop:
    return "stop";
  case Refusal::Full:
    return "full";
  }
  return "";
}

int64_t stateTokens(int64_t promptTokens, int64_t maxTokens) {
  return promptTokens + maxTokens - 1;
}

int32_t pagesFor(int64_t tokens, int32_t pageTokens) {
  return int32_t((tokens + pageTokens - 1) / pageTokens);
}

Verdict check(const Request &request, const EngineLimits &limits, int64_t waiting) {
  if (request.prompt.empty())
    return refuse(Refusal::Prompt, "the prompt is empty: at least one token is needed");
  if (Verdict v = checkIds(request.prompt, "token", limits.vocabulary); !v.status.ok())
    return v;
  if (request.maxTokens < 1)
    return refuse(Refusal::MaxTokens, counted(request.maxTokens, "new token") +
                                          " are asked for: at least one is needed");
  if (request.minTokens < 0 || request.minTokens > request.maxTokens)
    return refuse(Refusal::MaxTokens, "min_tokens is " + std::to_string(request.minTokens) +
                                          "; it must be from 0 to max_tokens, which is " +
                                          std::to_string(request.maxTokens));
  const int64_t prompt = int64_t(request.prompt.size());
  const int64_t room = roomBehind(prompt, limits.context);
  if (request.fillsContext && room < 1)
    return refuse(Refusal::Context, "a prompt of " + counted(prompt, "token") +
                                        " is longer than the plan's context of " +
                                        std::to_string(limits.context));
  if (!request.fillsContext && request.maxTokens > room)
    return refuse(Refusal::Context, "a prompt of " + counted(prompt, "token") + " and " +
                                        counted(request.maxTokens, "new token") +
                                        " are more than the plan's context of " +
                                        std::to_string(limits.context) + "; at most " +
                                        std::to_string(std::max<int64_t>(0, room)) +
                                        " can follow this prompt");
  const int64_t newTokens = std::min(request.maxTokens, room);
  const int64_t tokens = stateTokens(prompt, newTokens);
  if (int32_t needed = pagesFor(tokens, limits.pageTokens); needed > limits.pages)
    return refuse(Refusal::Pages,
                  "a prompt of " + counted(prompt, "token") + " and " +
                      counted(newTokens, "new token") + " need " + counted(needed, "page") +
                      " of " + std::to_string(limits.pageTokens) + whatPages(limits),
                  Code::OutOfMemory);
  if (Status s = checkSampling(request.sampling, limits.vocabulary); !s.ok())
    return {Refusal::Sampling, std::move(s)};
  if (request.promptLogprobs < -1 || request.promptLogprobs > mostReported)
    return refuse(Refusal::Sampling,
                  "prompt_logprobs is " + std::to_string(request.promptLogprobs) +
                      "; it must be a number from 0 to " + std::to_string(mostReported));
  if (Verdict v = checkStops(request, limits); !v.status.ok())
    return v;
  if (waiting >= limits.waiting)
    return refuse(Refusal::Full,
                  counted(waiting, "request") + " wait already, which is the most: try again later",
                  Code::OutOfMemory);
  return {};
}

bool admits(const Demand &demand, const Supply &supply, const EngineLimits &limits) {
  return supply.running < limits.sequences &&
         demand.pages - demand.hits + demand.idleHits <= supply.unreserved;
}

std::string whyNot(const Demand &demand, const Supply &supply, const EngineLimits &limits) {
  if (admits(demand, supply, limits))
    return {};
  if (supply.running >= limits.sequences)
    return counted(supply.running, "sequence") + " run, which is the most";
  const int32_t needed = demand.pages - demand.hits + demand.idleHits;
  std::string text = "needs " + counted(needed, "page");
  if (demand.hits > demand.idleHits)
    text += " beside " + std::to_string(demand.hits - demand.idleHits) + " that others use, too";
  return text + ", " + std::to_string(supply.unreserved) +
         (supply.unreserved == 1 ? " is free" : " are free");
}

} // namespace gpt2c::rt
