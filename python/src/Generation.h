// A generation, whose tokens are taken by another thread as they come.
#pragma once

#include "python/src/OneSession.h"
#include "runtime/text/AnswerStream.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gpt2c::python {

/// One answer to one prompt. Its tokenizer is the generation's.
using Request = rt::Request;

/// A piece of the answer to a request.
struct Event {
  size_t request = 0;
  rt::AnswerPiece piece = {};
  std::vector<rt::Choice> prompt = {}; ///< as of rt::Update
  double seconds = 0;                  ///< from when the generation was asked for until this
};

/// Gives the requests to the session's engine, together with those of other generations; where the
/// session has none, or answers slide over the context, runs Session::generate for them on a thread
/// of its own as soon as it is the session's turn. Nothing here needs the GIL. Events of one
/// request are in order; the last one says why it ended.
class Generation {
public:
  /// `tokenizer` may be null; then texts are empty. `engine`: the session's, or null. StatusError
  /// where it refuses a request; then none has run.
  Generation(SessionPtr session, std::shared_ptr<const rt::Tokenizer> tokenizer,
             std::vector<Request> requests, int64_t slide, rt::EngineThread *engine);
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
  void stop();
  /// stop(), and waits for it.
  void cancel();
  /// cancel() of all generations of this process.
  static void cancelAll();

private:
  void submit();
  void take(size_t index, rt::Update &&update);
  void run();
  bool onToken(size_t index, const rt::Choice &choice);
  void push(size_t index, rt::AnswerPiece piece, std::vector<rt::Choice> prompt = {});
  void finish(rt::Status status);
  void wake();

  SessionPtr session_;
  std::shared_ptr<const rt::Tokenizer> tokenizer_;
  std::vector<Request> requests_;
  int64_t slide_;
  rt::EngineThread *engine_;
  int descriptor_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_; ///< of the four below
  std::condition_variable changed_;
  std::vector<Event> events_;
  bool done_ = false;
  rt::Status status_;
  size_t running_;                        ///< requests of the engine that have not ended
  std::vector<rt::RequestId> ids_;        ///< their numbers
  std::vector<rt::AnswerStream> answers_; ///< without an engine
  std::mutex joining_;
  std::thread thread_;
};

} // namespace gpt2c::python
