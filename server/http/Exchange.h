// One request of generation on its way: its choices in the engine, what came of them, and the
// answer that is written of that. It is used on the connection's thread of control alone.
#pragma once

#include "server/AnswerWriter.h"
#include "server/Mailbox.h"
#include "server/Service.h"

namespace gpt2c::serve {

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
  void send(std::string part);
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
