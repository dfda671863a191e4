// Continuous batching: any number of requests over one plan, a token of each at a time.
//
// An engine is driven from one thread: none of its members may be called by two threads at once,
// and nothing in it waits but step(), for the device. Callbacks may call every member but step().
//
// What it promises, docs/engine.md has the reasons:
//  - The answer of a request is the one that Session::generate gives to its prompt alone, up to how
//    the device rounds: it depends neither on other requests nor on how the prompt was cut, nor on
//    what the prefix cache held.
//  - An admitted request never starts over: its pages are promised to it before it starts. Where
//    there are pages in host memory, requests may take turns on the device, and one may have more
//    pages than the device.
//  - Requests start in the order in which they came.
//  - Each request that was taken has exactly one ending.
//  - No memory of the device is allocated after create().
#pragma once

#include "runtime/engine/Admission.h"
#include "runtime/engine/PagePool.h"
#include "runtime/engine/PageSwap.h"
#include "runtime/session/Session.h"

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>

namespace gpt2c::rt {

using RequestId = uint64_t;

struct Ending {
  Finish reason = Finish::Length; ///< Caller: cancel()
  int32_t stopToken = -1;         ///< the one that ended it
  int32_t stopString = -1;        ///< the one of Request::stops that ended it
  Status status = {};             ///< why it failed
  int32_t promptTokens = 0, newTokens = 0;
  int32_t cachedTokens = 0; ///< of the prompt: found in the prefix cache
  /// When its pages were promised to it; the clock's epoch where it ended before.
  std::chrono::steady_clock::time_point admitted = {};
};

/// What became of a request: a token, its ending, or both.
struct Update {
  RequestId id = 0;
  std::optional<Choice> choice = {};
  std::string text = {}; ///< as of AnswerPiece; empty where there is no tokenizer
  std::optional<Ending> ending = {};
  /// Of a request's first update, where Request::promptLogprobs asks for it: the prompt's tokens
  /// behind the first. A token that cannot be has minus infinity.
  std::vector<Choice> prompt = {};
};

/// How the keys and values of a request come back that gave its room on the device to others.
enum class Comeback {
  /// Copied, or computed again where that takes less time and gives the same bits, as it does with
  /// a batch-invariant plan.
  Auto,
  Copied,
  Recomputed,
};

struct EngineOptions {
  /// Rows of one call: a row for each running sequence, and pieces of prompts in what is left. The
  /// more, the sooner a prompt is through; the fewer, the less it delays the others. 0: 512.
  int32_t rowBudget = 0;
  int32_t maxSequences = 0;  ///< running at once; 0: as many as the device takes
  int64_t maxWaiting = 4096; ///< requests that may wait
  uint64_t kvBytes = 0;      ///< for all pages; 0: what the plan or the device says
  /// Pages in host memory behind those of the device, or bytes for them; 0: none.
  int32_t hostPages = 0;
  uint64_t hostBytes = 0;
  Comeback comeback = Comeback::Auto;
  /// New tokens of a turn, at least, where requests wait for room on the device; 0: so many that
  /// copies take half of the time.
  int32_t turnTokens = 0;
  /// Pages in host memory have checksums: a request whose page is not as it left fails.
  bool checkHostPages = false;
  /// Requests share the pages of prompts that begin alike; else each has pages of its own.
  bool prefixCaching = true;
  /// Refuses to go on with a prompt behind which logits are NaN, as Session::generate does.
  bool checkPrompts = true;
  /// For texts and stop strings of requests that bring none; must outlive the engine.
  const Tokenizer *tokenizer = nullptr;
  /// Gets every update, in order, at the end of step() and of cancel(). Without it they are kept
  /// for poll().
  std::function<void(const Update &)> onUpdate = {};
};

struct EngineStats {
  int32_t waiting = 0, running = 0; ///< now
  int32_t pages = 0, pagesUsed = 0, pagesReserved = 0;
  int64_t calls = 0, rows = 0, segments = 0; ///< of the device
  int64_t promptRows = 0;                    ///< of rows: tokens of prompts
  /// Of rows: next tokens of sequences that turned out to have ended, or were cancelled.
  int64_t wastedRows = 0;
  int64_t newTokens = 0;
  /// Prompt tokens of admitted requests, and of these those found in the prefix cache.
  int64_t prefixQueries = 0, prefixHits = 0;
  int64_t ended[finishes] = {}; ///< by Finish
  /// New tokens that a constraint left no choice of, and that had no step of their own.
  int64_t forcedTokens = 0;
  /// Time during which a call was begun and its results were not taken: at least the device's own.
  double busySeconds = 0;
  uint64_t deviceAllocations = 0; ///< as of BackendStats
  /// Why the device's last call failed, where it is likely to take no more of them (Code::Cuda: a
  /// lost rank, a broken context); empty: it works.
  std::string lost;
  /// Of pages, where there are any in host memory: how many are there, and hold something.
  int32_t hostPages = 0, hostPagesUsed = 0;
  int32_t resting = 0;                  ///< of running: without a turn on the device
  int64_t turnsEnded = 0;               ///< that a request gave its room to others
  int64_t pagesOut = 0, pagesIn = 0;    ///< copied to host memory, and back
  double outSeconds = 0, inSeconds = 0; ///< during which they were copied
  uint64_t pageBytes = 0;               ///< of one page, all layers
  /// Pages that calls read in host memory, where they lie; those that cannot (false) refuse a
  /// request of more pages than the device has.
  int64_t pagesRead = 0;
  bool readsHostPages = false;
  int64_t recomputedTokens = 0; ///< of requests whose keys and values came back that way
  /// What decides: copying the keys and values of a token back, by the measured rate of copies, and
  /// computing them again, by what a row of a prompt took so far. 0: not known.
  double copySecondsPerToken = 0, recomputeSecondsPerToken = 0;
  double outBytesPerSecond = 0, inBytesPerSecond = 0; ///< as of PagedState
};

struct Submitted {
  RequestId id = 0;                ///< 0: refused
  Refusal refusal = Refusal::None; ///< why
  Status status;                   ///< the same for people
  explicit operator bool() const { return id != 0; }
};

class Engine {
public:
  /// What the model takes.
  struct Model {
    int32_t vocabulary = 0;
    int64_t context = 0;
    bool isBatchInvariant = false;
  };

  /// Allocates the pages. Unsupported where plan or device have none. The backend must outlive the
  /// engine, and generates nothing else as long as that lives.
  static Result<std::unique_ptr<Engine>> create(Backend &backend, const Model &model,
                                                EngineOptions options = {});
  static Result<std::unique_ptr<Engine>> create(Session &session, EngineOptions options = {});
  /// Waits for the calls that were begun. Requests end without an update.
  ~Engine();

  /// Takes the request, which runs with the next steps, or refuses it at once.
  Submitted submit(Request request);
  /// Ends the request now; false where it has ended or never was. A row of it that the device
  /// computes already is computed for nobody.
  bool cancel(RequestId id);
  /// One call of the device: admits what fits, begins the call, and takes the results of the call
  /// before, which the device computed meanwhile, or of this one where nothing else can be done.
  /// An error is the device's; all requests that ran have failed with it, and the engine goes on
  /// with those that wait.
  Status step();
  /// The next update, oldest first.
  std::optional<Update> poll();
  /// The next update, stepping until there is one; none where the engine is idle. Of a step's error
  /// the updates of the requests that failed with it tell; it is returned where there are none.
  Result<std::optional<Update>> wait();

  /// Somebody else has used the backend since the last step: what pages held is not there any
  /// more. Only while the engine is idle.
  void forget();

  /// Nothing runs, waits or is on its way.
  bool idle() const {
    return waiting_.empty() && running_.empty() && calls_.empty() && !(swap_ && swap_->isMoving());
  }
  EngineStats stats() const;
  const EngineLimits &limits() const { return limits_; }
  int32_t rowBudget() const { return rowBudget_; }
  const PagePool &pool() const { return pool_; }
  /// Why the first request that waits does: "needs 37 pages, 12 are free". Empty where none waits
  /// or it starts with the next step.
  std::string whyWaiting() const;

private:
  struct Sequence;
  struct Part {
    RequestId id;
    int32_t rows;
    bool isPrompt; ///< rows of the prompt
    bool chooses;  ///< its choice is a new token of the sequence
    bool logits;
    bool reports; ///< the device reports log probabilities
    bool scores;  ///< what is behind it is the prompt's next token
    /// Its choice, whatever the device makes of it; below 0: not known ahead.
    int32_t known;
  };
  using Call = std::vector<Part>; ///< one for each segment
  struct NextCall;
  using Running = std::map<RequestId, std::unique_ptr<Sequence>>; ///< in the order they came
  using Clock = std::chrono::steady_clock;

  Engine(Backend &backend, const EngineLimits &limits, int32_t rowBudget, bool isBatchInvariant,
         EngineOptions options);

  PageEntry rootOf(const std::string &salt);
  Demand demandOf(const Sequence &s) const;
  Supply supply() const;
  void admit();
  void adopt(Sequence &s);
  void publish(Sequence &s);

  // Turns on the device, where there are pages in host memory.
  Status takeTurns();
  std::pair<int64_t, int32_t> nextTurn(const Sequence &s) const;
  bool growTurn(Sequence &s);
  void readFirst(Sequence &s, int32_t count);
  void letGo(const Sequence &s, int32_t index);
  void bringBack();
  void beginTurns();
  void endTurn(Sequence &s);
  void forgetState(Sequence &s);
  bool recomputes(const Sequence &s) const;
  int64_t turnTokens() const;
  int64_t room(const Sequence &s) const;
  double copySeconds(int64_t tokens) const;
  double recomputeSeconds(int64_t tokens) const;
  void release(Sequence &s);
  void time(const Call &call);
  void exchange(int32_t &page, int32_t by);
  void merged(const Sequence &s, int32_t index, int32_t mine, int32_t other);
  void addTurns(EngineStats &now) const;

  bool waitsForHost() const;
  void planNextTokens(NextCall &next);
  std::vector<Sequence *> findNextTokens(int64_t &ahead);
  void planPrompts(NextCall &next);
  void addSegment(NextCall &next, Sequence &s, int32_t rows, int32_t carry);
  Status begin(NextCall &next);
  Status collect();
  void take(Sequence &s, const Part &part, int32_t next, std::span<const float> logits,
            const LogprobReport *report);
  void score(Sequence &s, int32_t next, std::span<const float> logits, const LogprobReport *report);
  void accept(Sequence &s, Choice choice);
  void acceptForced(Sequence &s, int32_t token);
  void end(RequestId id, AnswerPiece piece, Status status = {});
  void giveBack(Sequence &s);
  Status fail(Status status);
  void deliver();

  Backend &backend_;
  EngineOptions options_;
  EngineLimits limits_;
  int32_t rowBudget_;
  PagedState paged_; ///< of the backend
  bool isBatchInvariant_;
  std::unique_ptr<PageSwap> swap_; ///< null: all pages are on the device
  PagePool pool_;
  std::deque<RequestId> resting_; ///< wait for a turn, in that order; some may have ended
  int32_t turns_ = 0;             ///< sequences that have one
  RequestId lastId_ = 0;
  Running waiting_, running_;
  std::map<std::string, PageEntry> roots_; ///< by Request::cacheSalt
  std::deque<Call> calls_;                 ///< begun and not collected, at most two
  std::deque<Update> updates_;
  EngineStats counted_;
  Clock::time_point busySince_, collected_;
  double stepSeconds_ = 0; ///< of a call without rows of prompts, on the average of the last
  double promptSeconds_ = 0, promptRows_ = 0; ///< of calls with many, the older the less
  bool delivering_ = false, stepping_ = false;
};

} // namespace gpt2c::rt
