// One request of generation on its way: its choices in the engine, what came of them, and the
// answer that is written of that. All but Mailbox is used on the connection's thread of control
// alone.
#pragma once

#include "server/AnswerWriter.h"
#include "server/Service.h"

namespace gpt2c::serve {

using Clock = std::chrono::steady_clock;

/// What the engine's thread puts in and a connection takes out.
class Mailbox {
public:
  struct Item {
    size_t choice;
    rt::Update update;
    Clock::time_point at;
  };

  /// `wake` is called once until the next take(): when an ending is there, or so many items,
  /// `first` the first time and `interval` later.
  Mailbox(std::function<void()> wake, size_t first, size_t interval)
      : wake_(std::move(wake)), enough_(first), interval_(interval) {}
  void put(Item item);
  std::vector<Item> take();
  /// Nothing is kept from now on and `wake` not called any more.
  void close();

private:
  std::mutex mutex_; ///< of what follows; held while wake_ is called
  std::function<void()> wake_;
  std::vector<Item> items_;
  size_t enough_;
  const size_t interval_;
  bool woken_ = false;
};

class Exchange : public std::enable_shared_from_this<Exchange> {
public:
  Exchange(Service &service, std::shared_ptr<Model> model, GenerationRequest asked,
           HttpRequest http, std::shared_ptr<Responder> responder);

  ~Exchange();
  Exchange(const Exchange &) = delete;
  Exchange &operator=(const Exchange &) = delete;

  /// Gives all choices to the engine, or none and says why not.
  std::optional<ApiError> start();
  /// Ends the answer as it is; from any thread.
  void cancel();
  /// The responder is used no more; where nothing else uses the exchange.
  void close();

private:
  struct Times {
    Clock::time_point first, last;
    rt::Ending ending;
  };

  std::optional<ApiError> submit(size_t choice);
  void pump();
  void take(const Mailbox::Item &item);
  void count(size_t choice, const Mailbox::Item &item);
  void countEnd(size_t choice);
  void write();
  void finish();
  void leave(int status);
  void sendSpans(int status);
  void gone();
  void tick();
  void cancelChoices();

  Service &service_;
  const std::shared_ptr<Model> model_;
  const HttpRequest http_;
  const std::shared_ptr<Responder> responder_;
  const Clock::time_point begun_ = Clock::now();
  AnswerWriter writer_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<rt::RequestId> ids_;
  std::vector<Times> times_; ///< of each choice
  size_t ended_ = 0;
  std::optional<ApiError> failure_;
  Clock::time_point lastWrite_ = begun_;
  bool writing_ = false, over_ = false, timedOut_ = false;
};

} // namespace gpt2c::serve
