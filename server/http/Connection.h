// One connection: reads a request, hands it to the service, writes its answer, reads the next. Only
// HttpServer.cpp and Connection.cpp include this.
#pragma once

#include "server/http/HttpServer.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <mutex>
#include <optional>
#include <unordered_set>

namespace gpt2c::serve {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = net::ip::tcp;

class Connection;

/// What all connections of a server share.
struct ConnectionSet {
  Service &service;
  HttpOptions options;

  size_t count();
  void add(Connection *connection);
  void remove(Connection *connection);
  void closeIdle();

  std::mutex mutex = {};
  std::unordered_set<Connection *> all = {};
};

class Connection : public Responder, public std::enable_shared_from_this<Connection> {
public:
  Connection(ConnectionSet &set, tcp::socket socket);
  ~Connection() override;
  Connection(const Connection &) = delete;
  Connection &operator=(const Connection &) = delete;

  void run();
  void closeIfIdle();

  void post(std::function<void()> work) override;
  void send(HttpResponse response) override;
  void begin(HttpResponse head) override;
  bool write(std::string part, std::function<void()> written) override;
  void end(std::string last) override;
  void abort() override;
  void onGone(std::function<void()> gone) override;
  void after(std::chrono::milliseconds time, std::function<void()> then) override;

private:
  void readNext();
  void skipEmptyLines();
  boost::beast::error_code feedParser();
  void readHead();
  void headIsRead();
  void readBody();
  void bodyIsRead();
  void failToRead(beast::error_code error);
  void refuse(HttpResponse response);
  std::string headOf(const HttpResponse &response, bool stream) const;
  bool sendNow();
  void flush();
  void flushed();
  void settle();
  void linger();
  void watch();
  void lost();
  void close();

  ConnectionSet &set_;
  beast::tcp_stream stream_;
  net::steady_timer timer_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  std::string queued_, sending_; ///< to be written, and being written
  std::vector<std::function<void()>> written_, writing_;
  std::function<void()> gone_;
  bool keepAlive_ = false, isHead_ = false;
  bool chunked_ = false;  ///< the client speaks HTTP/1.1: a stream is sent in chunks
  bool idle_ = true;      ///< between requests
  bool last_ = false;     ///< behind what is queued the answer ends
  bool watching_ = false; ///< for the client's end
  bool closed_ = false;
};

} // namespace gpt2c::serve
