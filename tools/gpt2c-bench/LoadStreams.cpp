#ifdef GPT2C_BOOST

#include "tools/gpt2c-bench/LoadStreams.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

#include <charconv>
#include <utility>

namespace gpt2c {

/// Nothing that a server does takes longer.
constexpr std::chrono::seconds kPatience{120};

/// What an answer that is an error says.
std::string messageOf(const std::string &body) {
  std::string why;
  const Json value = parseJson(body, why);
  if (value.is_object())
    if (auto error = value.find("error"); error != value.end() && error->is_object())
      if (auto message = error->find("message"); message != error->end() && message->is_string())
        return *message;
  return body.substr(0, 200);
}

/// The number behind `key` in an event, or 0.
static int64_t numberBehind(std::string_view event, std::string_view key) {
  const size_t at = event.rfind(key);
  int64_t number = 0;
  if (at != event.npos)
    std::from_chars(event.data() + at + key.size(), event.data() + event.size(), number);
  return number;
}

//===-- a stream ----------------------------------------------------------------------------===//

Stream::Stream(Worker &worker) : worker_(worker), socket_(worker.context) {}

void Stream::begin(size_t request, Clock::time_point due) {
  request_ = request;
  due_ = due;
  first_ = last_ = {};
  tokens_ = seen_ = 0;
  error_.clear();
  events_ = {};
  worker_.tally.late.push_back(milliseconds(Clock::now() - due));
  reused_ = open_;
  open_ ? send() : connect();
}

void Stream::connect() {
  socket_.expires_after(kPatience);
  buffer_.clear();
  socket_.async_connect(worker_.play.endpoints, [self = shared_from_this()](beast::error_code error,
                                                                            const tcp::endpoint &) {
    if (error)
      return self->fail(error);
    beast::error_code ignored;
    self->socket_.socket().set_option(tcp::no_delay(true), ignored);
    self->open_ = true;
    ++self->worker_.play.connected;
    self->send();
  });
}

void Stream::send() {
  parser_.emplace();
  parser_->eager(true);
  parser_->body_limit(boost::none);
  socket_.expires_after(kPatience);
  net::async_write(socket_, net::buffer(worker_.play.wires[request_]),
                   [self = shared_from_this()](beast::error_code error, size_t) {
                     error ? self->fail(error) : self->readHead();
                   });
}

void Stream::readHead() {
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](beast::error_code error, size_t) {
                            if (error)
                              return self->fail(error);
                            self->reused_ = false;
                            self->parser_->is_done() ? self->end() : self->readBody();
                          });
}

void Stream::readBody() {
  socket_.expires_after(kPatience);
  http::async_read_some(
      socket_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, size_t) {
        if (error)
          return self->fail(error);
        auto &message = self->parser_->get();
        if (message.result() == http::status::ok) {
          const Clock::time_point now = Clock::now();
          self->events_.push(message.body(),
                             [&](std::string_view event) { self->take(event, now); });
          message.body().clear();
        }
        self->parser_->is_done() ? self->end() : self->readBody();
      });
}

void Stream::take(std::string_view event, Clock::time_point now) {
  Tally &tally = worker_.tally;
  if (event.starts_with("{\"error\"")) {
    error_ = messageOf(std::string(event));
    return;
  }
  if (event.find("\"choices\":[{") != event.npos) {
    if (first_ == Clock::time_point()) {
      first_ = now;
      tally.first.push_back(milliseconds(now - due_));
    } else {
      tally.between.push_back(milliseconds(now - last_));
    }
    last_ = now;
    ++seen_;
    return;
  }
  if (event.find("\"usage\":{") != event.npos) {
    tokens_ = numberBehind(event, "\"completion_tokens\":");
    tally.promptTokens += numberBehind(event, "\"prompt_tokens\":");
  }
}

/// An answer has come whole.
void Stream::end() {
  Tally &tally = worker_.tally;
  const auto &message = parser_->get();
  const unsigned status = message.result_int();
  const bool failed = status != 200 || !error_.empty();
  ++tally.statuses[!error_.empty() ? "error" : std::to_string(status)];
  if (failed) {
    ++(status == 429 ? tally.refused : tally.failed);
    if (tally.firstProblem.empty())
      tally.firstProblem = "request " + std::to_string(request_ + 1) + ": " +
                           (error_.empty() ? messageOf(message.body()) : error_);
  } else {
    ++tally.completed;
    tally.whole.push_back(milliseconds(Clock::now() - due_));
  }
  const int64_t tokens = std::max(tokens_, seen_); // not every server tells how many
  tally.outputTokens += tokens;
  tally.events += seen_;
  if (tokens > 1 && seen_ > 1)
    tally.perToken.push_back(milliseconds(last_ - first_) / double(tokens - 1));
  if (!message.keep_alive()) {
    socket_.close();
    open_ = false;
  }
  finish();
}

void Stream::fail(const beast::error_code &error) {
  socket_.close();
  open_ = false;
  if (std::exchange(reused_, false)) // the server may have closed it meanwhile
    return connect();
  Tally &tally = worker_.tally;
  ++tally.failed;
  ++tally.statuses["connection"];
  tally.outputTokens += seen_;
  tally.events += seen_;
  if (tally.firstProblem.empty())
    tally.firstProblem = "request " + std::to_string(request_ + 1) + ": " + error.message();
  finish();
}

void Stream::finish() {
  worker_.tally.last = Clock::now();
  socket_.expires_never();
  worker_.isFree(shared_from_this());
}

//===-- a thread ----------------------------------------------------------------------------===//

void Worker::run() {
  due_ = number_;
  if (const auto streams = size_t(play.options.streams))
    for (size_t i = number_; i < streams; i += of_)
      beginNext(std::make_shared<Stream>(*this));
  else
    arrive();
  context.run();
}

bool Worker::beginNext(const std::shared_ptr<Stream> &stream) {
  const size_t index = play.next.fetch_add(1);
  if (index >= play.requests.size())
    return false;
  stream->begin(index, Clock::now());
  return true;
}

void Worker::isFree(const std::shared_ptr<Stream> &stream) {
  if (!play.options.streams)
    free_.push_back(stream);
  else // not from within the handler of the one before
    net::post(context, [this, stream] { beginNext(stream); });
}

/// Begins the requests whose time has come, and waits for the next one's.
void Worker::arrive() {
  for (; due_ < play.requests.size(); due_ += of_) {
    const Clock::time_point due =
        play.start + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(play.requests[due_].at));
    if (due > Clock::now()) {
      timer_.expires_at(due);
      timer_.async_wait([this](beast::error_code) { arrive(); });
      return;
    }
    std::shared_ptr<Stream> stream;
    if (free_.empty()) {
      stream = std::make_shared<Stream>(*this);
    } else {
      stream = std::move(free_.back());
      free_.pop_back();
    }
    stream->begin(due_, due);
  }
}

} // namespace gpt2c

#endif
