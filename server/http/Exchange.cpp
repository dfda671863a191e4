#include "server/http/Exchange.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gpt2c::serve {

static double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

Exchange::Exchange(Service &service, std::shared_ptr<Model> model, GenerationRequest asked,
                   HttpRequest http, std::shared_ptr<Responder> responder)
    : service_(service), model_(std::move(model)), http_(std::move(http)),
      responder_(std::move(responder)),
      writer_(*model_, std::move(asked), service.options().streamInterval),
      times_(writer_.asked().choices()) {}

Exchange::~Exchange() {
  if (mailbox_)
    mailbox_->close();
}

//===-- begin -------------------------------------------------------------------------------===//

std::optional<ApiError> Exchange::start() {
  const GenerationRequest &asked = writer_.asked();
  // The engine's thread keeps the mailbox, never the exchange: what that holds ends elsewhere. A
  // whole answer wants endings alone, a stream its first token at once.
  constexpr size_t never = std::numeric_limits<size_t>::max();
  mailbox_ = std::make_shared<Mailbox>(
      [weak = weak_from_this(), responder = responder_] {
        responder->post([weak] {
          if (auto self = weak.lock())
            self->pump();
        });
      },
      asked.stream ? 1 : never, asked.stream ? size_t(service_.options().streamInterval) : never);
  int64_t prompt = 0;
  for (const Prompt &p : asked.prompts)
    prompt += int64_t(p.tokens.size()) * asked.n;
  const int64_t most = service_.options().maxQueuedTokens;
  const int64_t queued = service_.metrics_->queuedTokens.load();
  if (most && queued > 0 && queued + prompt > most)
    return ApiError{.status = 429,
                    .message = std::to_string(queued) + " prompt tokens wait already, and " +
                               std::to_string(most) + " may: try again later",
                    .code = "queue_full",
                    .retryAfter = 1};
  for (size_t i = 0; i < asked.choices(); ++i)
    if (auto error = submit(i)) {
      cancelChoices();
      return error;
    }
  service_.add(shared_from_this());
  responder_->onGone([weak = weak_from_this()] {
    if (auto self = weak.lock())
      self->gone();
  });
  if (asked.stream) {
    HttpResponse head{.contentType = "text/event-stream",
                      .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
    Service::addHeaders(http_, head);
    responder_->begin(std::move(head));
  }
  tick();
  return std::nullopt;
}

std::optional<ApiError> Exchange::submit(size_t choice) {
  const GenerationRequest &asked = writer_.asked();
  rt::Request request = asked.common;
  request.prompt = asked.prompts[choice / size_t(asked.n)].tokens;
  request.sampling.seed += choice % size_t(asked.n);
  const auto tokens = int64_t(request.prompt.size());
  // A request that can never run is told so, however many wait.
  const rt::Verdict verdict = rt::check(request, model_->engine().limits(), 0);
  if (verdict.refusal != rt::Refusal::None)
    return errorOf(verdict.refusal, verdict.status);
  service_.metrics_->queuedTokens.fetch_add(tokens);
  rt::Submitted submitted = model_->engine().submit(
      std::move(request),
      [mailbox = mailbox_, delivery = service_.delivery_, choice, metrics = service_.metrics_,
       tokens, waits = true](rt::Update &&update) mutable {
        if (std::exchange(waits, false))
          metrics->queuedTokens.fetch_sub(tokens);
        if (update.choice)
          metrics->newTokensTotal.fetch_add(1, std::memory_order_relaxed);
        delivery->put(mailbox, choice, std::move(update));
      },
      service_.flush_);
  if (submitted) {
    ids_.push_back(submitted.id);
    return std::nullopt;
  }
  service_.metrics_->queuedTokens.fetch_sub(tokens);
  return errorOf(submitted.refusal, submitted.status);
}

//===-- what comes --------------------------------------------------------------------------===//

void Exchange::pump() {
  if (over_ || writing_)
    return;
  for (const Mailbox::Item &item : mailbox_->take())
    take(item);
  if (writer_.asked().stream)
    write();
  else if (ended_ == times_.size())
    finish();
}

void Exchange::take(const Mailbox::Item &item) {
  const rt::Update &update = item.update;
  count(item.choice, item);
  writer_.take(item.choice, update);
  if (!update.ending)
    return;
  ++ended_;
  if (update.ending->reason == rt::Finish::Failed && !failure_) {
    failure_ = errorOf(update.ending->status);
    cancelChoices();
  }
  countEnd(item.choice);
}

void Exchange::count(size_t choice, const Mailbox::Item &item) {
  Times &t = times_[choice];
  Metrics &m = *service_.metrics_;
  if (item.update.choice) {
    if (t.first == Clock::time_point()) {
      t.first = item.at;
      m.firstToken.observe(seconds(item.at - begun_));
    } else {
      m.betweenTokens.observe(seconds(item.at - t.last));
    }
    t.last = item.at;
  }
  if (item.update.ending)
    t.ending = *item.update.ending;
}

void Exchange::countEnd(size_t choice) {
  const Times &t = times_[choice];
  Metrics &m = *service_.metrics_;
  ++m.ended[size_t(t.ending.reason)];
  m.promptTokensTotal += t.ending.promptTokens;
  if (t.first == Clock::time_point())
    return;
  m.promptTokens.observe(t.ending.promptTokens);
  m.newTokens.observe(t.ending.newTokens);
  m.whole.observe(seconds(t.last - begun_));
  m.queue.observe(std::max(0.0, seconds(t.ending.admitted - begun_)));
  m.prefill.observe(seconds(t.first - t.ending.admitted));
  m.decode.observe(seconds(t.last - t.first));
  if (t.ending.newTokens > 1)
    m.perOutputToken.observe(seconds(t.last - t.first) / (t.ending.newTokens - 1));
}

//===-- what goes ---------------------------------------------------------------------------===//

void Exchange::write() {
  if (failure_ || ended_ == times_.size())
    return finish();
  std::string events = writer_.events();
  if (events.empty())
    return;
  send(std::move(events));
}

void Exchange::send(std::string part) {
  lastWrite_ = Clock::now();
  writing_ = !responder_->write(std::move(part), [self = shared_from_this()] {
    self->writing_ = false;
    self->pump();
  });
}

void Exchange::finish() {
  if (timedOut_ && !failure_)
    failure_ = ApiError{.status = 504,
                        .message = "the answer took longer than the server allows",
                        .code = "timeout"};
  over_ = true;
  const bool stream = writer_.asked().stream;
  if (!stream) {
    HttpResponse response =
        failure_ ? Service::errorResponse(*failure_) : HttpResponse{.body = writer_.whole()};
    Service::addHeaders(http_, response);
    const int status = response.status;
    leave(status);
    responder_->send(std::move(response));
    return;
  }
  std::string last = writer_.events();
  last += failure_ ? AnswerWriter::failedEvents(*failure_) : writer_.lastEvents();
  leave(failure_ ? failure_->status : 200);
  responder_->end(std::move(last));
}

void Exchange::leave(int status) {
  over_ = true;
  mailbox_->close();
  responder_->after({}, nullptr);
  service_.metrics_->answered(http_.path, status);
  sendSpans(status);
  if (service_.options().log) {
    double queue = 0, prefill = 0, decode = 0;
    for (const Times &t : times_)
      if (t.first != Clock::time_point() && t.ending.admitted != Clock::time_point()) {
        queue = std::max(queue, seconds(t.ending.admitted - begun_));
        prefill = std::max(prefill, seconds(t.first - t.ending.admitted));
        decode = std::max(decode, seconds(t.last - t.first));
      }
    service_.logLine(http_, status, seconds(Clock::now() - begun_),
                     {{"prompt_tokens", double(writer_.promptTokens())},
                      {"new_tokens", double(writer_.newTokens())},
                      {"cached_tokens", double(writer_.cachedTokens())},
                      {"queue_ms", queue * 1e3},
                      {"prefill_ms", prefill * 1e3},
                      {"decode_ms", decode * 1e3}});
  }
  service_.remove(shared_from_this());
}

/// Of each choice the time that it waited, that its prompt took and that its answer took.
void Exchange::sendSpans(int status) {
  if (!service_.spans_ || !http_.trace)
    return;
  constexpr size_t most = 16; // choices
  std::vector<Span> parts;
  for (size_t i = 0; i < std::min(times_.size(), most); ++i) {
    const Times &t = times_[i];
    const Clock::time_point none, admitted = t.ending.admitted;
    const auto add = [&](const char *name, Clock::time_point begin, Clock::time_point end) {
      if (begin != none && end != none)
        parts.push_back({.trace = partOf(*http_.trace), .name = name, .begin = begin, .end = end});
    };
    add("queue", begun_, admitted);
    add("prefill", admitted, t.first);
    add("decode", t.first, t.last);
  }
  service_.sendSpans(http_, status,
                     {{"gen_ai.operation.name",
                       writer_.asked().chat ? std::string("chat") : std::string("text_completion")},
                      {"gen_ai.request.model", writer_.asked().model},
                      {"gen_ai.usage.input_tokens", writer_.promptTokens()},
                      {"gen_ai.usage.output_tokens", writer_.newTokens()},
                      {"gpt2c.cached_tokens", writer_.cachedTokens()}},
                     std::move(parts));
}

//===-- early ends --------------------------------------------------------------------------===//

void Exchange::cancelChoices() {
  for (const rt::RequestId id : ids_)
    model_->engine().cancel(id);
}

void Exchange::gone() {
  if (over_)
    return;
  cancelChoices();
  service_.metrics_->ended[size_t(rt::Finish::Caller)] += int64_t(times_.size() - ended_);
  leave(499); // as nginx logs it
}

void Exchange::close() {
  over_ = true;
  mailbox_->close();
}

void Exchange::cancel() {
  responder_->post([self = shared_from_this()] {
    if (!self->over_)
      self->cancelChoices();
  });
}

/// Comments into a stream that is silent, and the end of the time that a request may take.
void Exchange::tick() {
  if (over_)
    return;
  using std::chrono::milliseconds;
  const milliseconds ping = service_.options().pingInterval,
                     timeout = service_.options().requestTimeout;
  const Clock::time_point now = Clock::now();
  std::optional<Clock::time_point> next;
  if (timeout.count() && !timedOut_) {
    if (now - begun_ >= timeout) {
      timedOut_ = true;
      cancelChoices();
    } else {
      next = begun_ + timeout;
    }
  }
  if (writer_.asked().stream && ping.count()) {
    if (now - lastWrite_ >= ping && !writing_)
      send(": ping\n\n");
    const Clock::time_point due = std::max(lastWrite_, now - ping + milliseconds(1)) + ping;
    next = next ? std::min(*next, due) : due;
  }
  if (next)
    responder_->after(std::chrono::ceil<milliseconds>(*next - now), [weak = weak_from_this()] {
      if (auto self = weak.lock())
        self->tick();
    });
}

} // namespace gpt2c::serve
