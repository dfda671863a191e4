#include "server/http/Connection.h"

#include <boost/asio/defer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <sys/socket.h>

namespace gpt2c::serve {

//===-- the set -----------------------------------------------------------------------------===//

size_t ConnectionSet::count() {
  std::lock_guard lock(mutex);
  return all.size();
}

void ConnectionSet::add(Connection *connection) {
  std::lock_guard lock(mutex);
  all.insert(connection);
  service.metrics().connections = int64_t(all.size());
}

void ConnectionSet::remove(Connection *connection) {
  std::lock_guard lock(mutex);
  all.erase(connection);
  service.metrics().connections = int64_t(all.size());
}

void ConnectionSet::closeIdle() {
  std::vector<std::shared_ptr<Connection>> living; // they end outside of the lock
  {
    std::lock_guard lock(mutex);
    for (Connection *connection : all)
      if (auto one = connection->weak_from_this().lock())
        living.push_back(std::move(one));
  }
  for (const std::shared_ptr<Connection> &connection : living)
    connection->post([connection] { connection->closeIfIdle(); });
}

Connection::Connection(ConnectionSet &set, tcp::socket socket)
    : set_(set), stream_(std::move(socket)), timer_(stream_.get_executor()),
      buffer_(set.options.maxHeaderBytes + 65536) {
  beast::error_code ignored;
  stream_.socket().non_blocking(true, ignored); // sendNow() waits for nobody
  set_.add(this);
}

Connection::~Connection() { set_.remove(this); }

//===-- requests ----------------------------------------------------------------------------===//

/// The path of a request's target, which proxies may send as http://HOST/PATH?QUERY.
static std::string pathOf(std::string_view target) {
  target = target.substr(0, target.find('?'));
  if (target.starts_with('/') || target.find("://") == target.npos)
    return std::string(target);
  target.remove_prefix(target.find("://") + 3);
  const size_t slash = target.find('/');
  return slash == target.npos ? "/" : std::string(target.substr(slash));
}

static HttpRequest requestOf(http::request<http::string_body> &&message) {
  HttpRequest out;
  auto text = [](auto view) { return std::string(view.data(), view.size()); };
  out.method = text(message.method_string());
  out.path = pathOf({message.target().data(), message.target().size()});
  out.contentType = text(message[http::field::content_type]);
  out.contentEncoding = text(message[http::field::content_encoding]);
  out.authorization = text(message[http::field::authorization]);
  out.requestId = text(message["X-Request-Id"]);
  out.traceParent = text(message["traceparent"]);
  out.body = std::move(message.body());
  return out;
}

std::optional<HttpRequest> parseHttp(std::string_view bytes, const HttpOptions &options) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(options.maxHeaderBytes);
  parser.body_limit(options.maxBodyBytes);
  parser.eager(true);
  beast::error_code error;
  while (!bytes.empty() && !parser.is_done()) {
    const size_t used = parser.put(net::buffer(bytes.data(), bytes.size()), error);
    if (error || used == 0)
      return std::nullopt;
    bytes.remove_prefix(used);
  }
  if (!parser.is_done())
    return std::nullopt;
  return requestOf(parser.release());
}

void Connection::run() {
  net::dispatch(stream_.get_executor(), [self = shared_from_this()] { self->readNext(); });
}

void Connection::readNext() {
  if (closed_)
    return;
  idle_ = true;
  skipEmptyLines();
  if (set_.service.draining() && buffer_.size() == 0)
    return close();
  if (buffer_.size() > 0) // any number of requests may be there: none begins within the one before
    return post([self = shared_from_this()] { self->readHead(); });
  stream_.expires_after(set_.options.idleTimeout);
  stream_.async_read_some(buffer_.prepare(4096),
                          [self = shared_from_this()](beast::error_code error, size_t bytes) {
                            if (error)
                              return self->close();
                            self->buffer_.commit(bytes);
                            self->skipEmptyLines();
                            self->buffer_.size() > 0 ? self->readHead() : self->readNext();
                          });
}

/// Some clients send one behind a body.
void Connection::skipEmptyLines() {
  const std::string_view there(static_cast<const char *>(buffer_.data().data()), buffer_.size());
  buffer_.consume(std::min(there.find_first_not_of("\r\n"), there.size()));
}

/// Gives the parser what has come: most requests are there with the first read, and need no other
/// turn of this thread of control.
beast::error_code Connection::feedParser() {
  beast::error_code error;
  while (!error && buffer_.size() > 0 && !parser_->is_done() &&
         (parser_->eager() || !parser_->is_header_done()))
    buffer_.consume(parser_->put(buffer_.data(), error));
  return error == http::error::need_more ? beast::error_code() : error;
}

void Connection::readHead() {
  if (closed_)
    return;
  idle_ = false;
  parser_.emplace();
  parser_->header_limit(set_.options.maxHeaderBytes);
  parser_->body_limit(set_.options.maxBodyBytes);
  if (const beast::error_code error = feedParser())
    return failToRead(error);
  if (parser_->is_header_done())
    return headIsRead();
  stream_.expires_after(set_.options.readTimeout);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](beast::error_code error, size_t) {
                            error ? self->failToRead(error) : self->headIsRead();
                          });
}

/// What is refused by its head has its answer before its body was read.
void Connection::headIsRead() {
  auto &message = parser_->get();
  keepAlive_ = message.keep_alive();
  chunked_ = message.version() >= 11;
  isHead_ = message.method() == http::verb::head;
  HttpRequest head = requestOf(http::request<http::string_body>(message.base()));
  const bool hasBody = !parser_->is_done();
  if (hasBody) {
    if (std::optional<HttpResponse> response = set_.service.refuse(head))
      return refuse(std::move(*response));
    if (chunked_ && beast::iequals(message[http::field::expect], "100-continue")) {
      net::async_write(stream_, net::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25),
                       [self = shared_from_this()](beast::error_code error, size_t) {
                         error ? self->close() : self->readBody();
                       });
      return;
    }
  }
  readBody();
}

void Connection::readBody() {
  parser_->eager(true);
  if (const beast::error_code error = feedParser())
    return failToRead(error);
  if (parser_->is_done())
    return bodyIsRead();
  stream_.expires_after(set_.options.readTimeout);
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](beast::error_code error, size_t) {
                     error ? self->failToRead(error) : self->bodyIsRead();
                   });
}

void Connection::bodyIsRead() {
  stream_.expires_never();
  HttpRequest request = requestOf(parser_->release());
  parser_.reset();
  set_.service.handle(std::move(request), shared_from_this());
}

void Connection::failToRead(beast::error_code error) {
  ApiError told;
  if (error == http::error::header_limit)
    told = {.status = 431,
            .message = "the head is longer than " + std::to_string(set_.options.maxHeaderBytes) +
                       " bytes"};
  else if (error == http::error::body_limit)
    told = {.status = 413,
            .message =
                "the body is longer than " + std::to_string(set_.options.maxBodyBytes) + " bytes"};
  else if (error != http::error::end_of_stream && error != http::error::partial_message &&
           error.category() == http::make_error_code(http::error::bad_target).category())
    told = {.status = 400, .message = "this is no HTTP: " + error.message()};
  else
    return close();
  set_.service.metrics().answered("other", told.status);
  refuse(Service::errorResponse(told));
}

/// An answer to a request that was not read whole: behind it the connection ends.
void Connection::refuse(HttpResponse response) {
  keepAlive_ = false;
  send(std::move(response));
}

//===-- answers -----------------------------------------------------------------------------===//

static std::string_view reasonOf(int status) {
  if (status == 431)
    return "Request Header Fields Too Large";
  const auto text = http::obsolete_reason(http::status(status));
  return {text.data(), text.size()};
}

std::string Connection::headOf(const HttpResponse &response, bool stream) const {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head += reasonOf(response.status);
  head += "\r\nContent-Type: " + response.contentType + "\r\nServer: gpt2c\r\n";
  for (const auto &[name, value] : response.headers)
    head.append(name).append(": ").append(value).append("\r\n");
  if (!stream)
    head += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  else if (chunked_)
    head += "Transfer-Encoding: chunked\r\n";
  head += keepAlive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

void Connection::send(HttpResponse response) {
  keepAlive_ = keepAlive_ && !set_.service.draining();
  gone_ = nullptr;
  queued_ += headOf(response, false);
  if (!isHead_)
    queued_ += response.body;
  last_ = true;
  flush();
}

void Connection::begin(HttpResponse head) {
  keepAlive_ = keepAlive_ && chunked_ && !set_.service.draining();
  queued_ += headOf(head, true);
  flush();
}

static void addChunk(std::string &to, std::string_view part, bool chunked) {
  if (part.empty())
    return;
  if (!chunked) {
    to += part;
    return;
  }
  std::array<char, 20> size;
  const auto end = std::to_chars(size.data(), size.data() + size.size(), part.size(), 16).ptr;
  to.append(size.data(), end);
  to += "\r\n";
  to += part;
  to += "\r\n";
}

bool Connection::write(std::string part, std::function<void()> written) {
  if (closed_)
    return false;
  addChunk(queued_, part, chunked_);
  if (sendNow())
    return true;
  written_.push_back(std::move(written));
  flush();
  return false;
}

void Connection::end(std::string last) {
  gone_ = nullptr;
  addChunk(queued_, last, chunked_);
  if (chunked_)
    queued_ += "0\r\n\r\n";
  last_ = true;
  flush();
}

/// What is queued mostly goes into the socket's buffer whole: without a timer, and without another
/// turn of this thread of control. Errors are left to who waits for a write.
bool Connection::sendNow() {
  if (closed_ || !sending_.empty())
    return false;
  beast::error_code error;
  const size_t sent = stream_.socket().write_some(net::buffer(queued_), error);
  queued_.erase(0, error ? 0 : sent);
  return !error && queued_.empty();
}

void Connection::flush() {
  if (closed_ || !sending_.empty() || queued_.empty())
    return;
  if (sendNow())
    return settle();
  sending_.swap(queued_);
  writing_.swap(written_);
  stream_.expires_after(set_.options.writeTimeout);
  net::async_write(stream_, net::buffer(sending_),
                   [self = shared_from_this()](beast::error_code error, size_t) {
                     error ? self->lost() : self->flushed();
                   });
}

void Connection::flushed() {
  stream_.expires_never();
  sending_.clear();
  if (sending_.capacity() > 65536)
    sending_ = {};
  for (const std::function<void()> &written : std::exchange(writing_, {}))
    written();
  if (!queued_.empty())
    return flush();
  settle();
}

/// All that was queued has gone.
void Connection::settle() {
  if (queued_.capacity() > 65536)
    queued_ = {};
  if (!last_ || closed_)
    return;
  last_ = false;
  if (keepAlive_)
    return readNext();
  beast::error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(std::chrono::seconds(2));
  linger();
}

/// Reads what the client still sends until it closes: a connection that is closed over bytes that
/// nobody read takes the answer with it.
void Connection::linger() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(4096),
                          [self = shared_from_this()](beast::error_code error, size_t) {
                            error ? self->close() : self->linger();
                          });
}

//===-- ends --------------------------------------------------------------------------------===//

void Connection::post(std::function<void()> work) {
  // From a thread of the server it is that one's next work, which wakes nobody up.
  net::defer(stream_.get_executor(), std::move(work));
}

void Connection::onGone(std::function<void()> gone) {
  gone_ = std::move(gone);
  watch();
}

/// Waits until there is something to read: the end, or the beginning of a next request.
void Connection::watch() {
  if (watching_ || closed_ || !gone_)
    return;
  watching_ = true;
  stream_.socket().async_wait(
      tcp::socket::wait_read, [self = shared_from_this()](beast::error_code error) {
        self->watching_ = false;
        if (error || !self->gone_ || self->closed_)
          return;
        char byte = 0;
        const ssize_t there =
            ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (there == 0 || (there < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
          return self->lost();
        if (there < 0)
          self->watch();
      });
}

void Connection::after(std::chrono::milliseconds time, std::function<void()> then) {
  timer_.cancel();
  if (!then || closed_)
    return;
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this(), then = std::move(then)](beast::error_code error) {
    if (!error && !self->closed_)
      then();
  });
}

/// The client has gone.
void Connection::lost() {
  close();
  if (const std::function<void()> gone = std::exchange(gone_, nullptr))
    gone();
}

void Connection::abort() { lost(); }

void Connection::closeIfIdle() {
  if (idle_ && buffer_.size() == 0)
    close();
}

void Connection::close() {
  if (closed_)
    return;
  closed_ = true;
  beast::error_code ignored;
  timer_.cancel();
  stream_.socket().close(ignored);
  // What waits for a write may hold this connection.
  written_.clear();
  writing_.clear();
  queued_ = {};
}

} // namespace gpt2c::serve
