// Which requests an engine takes, and when: arithmetic over counts, without state.
#pragma once

#include "runtime/device/Backend.h"
#include "runtime/text/AnswerStream.h"

#include <string>
#include <vector>

namespace gpt2c::rt {

/// A prompt to be continued. The engine knows the context: it sets AnswerRules::room.
struct Request : AnswerRules {
  Tokens prompt = {};
  SamplingParams sampling = {}; ///< greedy by default
  /// As SamplingParams::logprobs, for the prompt: how probable each of its tokens behind the first
  /// is, and how many of the most probable are reported beside it, at most mostReported. Such a
  /// prompt takes a step for each token, and nothing of it is looked up in the prefix cache.
  int32_t promptLogprobs = -1;
  /// The answer may end because the context is full. Else a request whose answer might is refused.
  bool fillsContext = false;
  /// Requests share pages of prompts with those of the same salt alone.
  std::string cacheSalt = {};
  /// In place of the engine's; must outlive the request.
  const Tokenizer *tokenizer = nullptr;
};

/// Why a request is not taken. All but Full hold for ever: the same request is refused again.
enum class Refusal {
  None,
  Prompt,     ///< it has no token
  Vocabulary, ///< a token that the model does not know, in the prompt or among stop tokens
  MaxTokens,  ///< it asks for no token
  Context,    ///< prompt and answer are longer than the context
  Pages,      ///< they need more pages than there are
  Sampling,   ///< a sampling parameter out of its range
  Stop,       ///< a stop string that cannot be looked for
  Full,       ///< as many requests wait as may: later there may be room
};

/// "context", as in metrics and JSON.
const char *nameOf(Refusal refusal);

struct EngineLimits {
  int32_t vocabulary = 0; ///< ids are below this
  int64_t context = 0;    ///< tokens of one sequence in the KV state
  int32_t pages = 0;      ///< of one sequence
  /// In host memory; not among the others where calls do not read them there.
  int32_t hostPages = 0;
  bool readsHostPages = false;
  std::string whyNotRead = {}; ///< PagedState's
  int32_t pageTokens = 0;
  int32_t sequences = 0; ///< running at once
  int64_t waiting = 0;   ///< requests that may wait
  bool hasTokenizer = false;
};

struct Verdict {
  Refusal refusal = Refusal::None;
  Status status; ///< for people, with the numbers; Ok where nothing is refused
};

/// Tokens whose keys and values a request needs in the state: nothing follows its last new token,
/// so that one is never computed further.
int64_t stateTokens(int64_t promptTokens, int64_t maxTokens);

int32_t pagesFor(int64_t tokens, int32_t pageTokens);

/// Whether the request can ever run within the limits, and, with `waiting` others before it, wait.
Verdict check(const Request &request, const EngineLimits &limits, int64_t waiting);

/// What a request needs, at a given moment.
struct Demand {
  int32_t pages = 0; ///< of prompt and answer
  int32_t hits = 0;  ///< of these: they hold the beginning of the prompt already
  int32_t idleHits =
      0; ///< of hits: pages that nobody uses, which therefore are no longer available
};

/// What there is at that moment.
struct Supply {
  int32_t unreserved = 0; ///< pages that are nobody's and promised to nobody
  int32_t running = 0;    ///< sequences
};

/// Whether every page that the request may come to need can be promised to it now.
bool admits(const Demand &demand, const Supply &supply, const EngineLimits &limits);

/// Why admits() is false, with the numbers: "needs 37 pages, 12 are free". Empty where it is true.
std::string whyNot(const Demand &demand, const Supply &supply, const EngineLimits &limits);

} // namespace gpt2c::rt
