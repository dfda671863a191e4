// A generation on a thread of its own, whose tokens are taken by another one as they come.
#pragma once

#include "python/src/OneSession.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gpt2c::python {

/// One answer to one prompt.
struct Request {
  rt::Tokens prompt;
  rt::SamplingParams sampling;
  int64_t maxTokens = 16;
  int32_t eos = -1; ///< the token that ends a text; -1: none does
  bool ignoreEos = false;
  bool skipEosText = true; ///< the end-of-text token adds nothing to the text
  std::vector<int32_t> stopIds;
  std::vector<std::string> stops;
  bool includeStop = false; ///< the text ends with the stop string or token
};

/// A new token of an answer, or that an answer has ended, or both.
struct Event {
  size_t request = 0;
  std::optional<rt::Choice> choice;
  std::string text =
      {}; ///< bytes that can be shown now: whole characters, no part of a stop string
  std::string finish = {}; ///< "": not yet; "stop", "length" or "context"
  int stopString = -1;     ///< which of Request::stops ended it
  bool stopId = false;     ///< the token of this event, one of Request::stopIds, ended it
  double seconds = 0;      ///< from when the generation was asked for until this
};

/// Runs Session::generate for the requests as soon as it is the session's turn. Nothing here needs
/// the GIL. Events of one request are in order; the last one says why it ended.
class Generation {
public:
  /// Returns what is wrong with the requests before anything runs. `tokenizer` may be null where no
  /// request has stop strings; then texts are empty.
  Generation(SessionPtr session, std::shared_ptr<const rt::Tokenizer> tokenizer,
             std::vector<Request> requests, int64_t slide);
  /// Cancels.
  ~Generation();
  Generation(const Generation &) = delete;
  Generation &operator=(const Generation &) = delete;

  /// True when there are events to take, or none will come any more.
  bool waitFor(std::chrono::milliseconds time);
  /// The events since the last call; none behind stop().
  std::vector<Event> takeEvents();
  /// No event will come, and all are taken.
  bool ended();
  /// Why the generation failed; Ok where it did not or runs on.
  rt::Status status();
  /// Readable while there is something to take: for event loops.
  int fileDescriptor() const { return descriptor_; }

  /// Ends all answers before the next call of the device.
  void stop() { cancelled_ = true; }
  /// stop(), and waits for it.
  void cancel();
  /// cancel() of all generations of this process.
  static void cancelAll();

private:
  class Answer;
  void run();
  bool onToken(size_t index, const rt::Choice &choice);
  void push(Event event);
  void finish(rt::Status status);

  SessionPtr session_;
  std::shared_ptr<const rt::Tokenizer> tokenizer_;
  std::vector<Request> requests_;
  std::vector<std::unique_ptr<Answer>> answers_;
  int64_t slide_;
  int descriptor_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_; ///< of the three below
  std::condition_variable changed_;
  std::vector<Event> events_;
  bool done_ = false;
  rt::Status status_;
  std::mutex joining_;
  std::thread thread_;
};

} // namespace gpt2c::python
