// The streams of a play against a server. Only Load.cpp and LoadStreams.cpp include this.
#pragma once

#include "tools/gpt2c-bench/EventReader.h"
#include "tools/gpt2c-bench/Load.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <atomic>
#include <chrono>
#include <memory>

namespace gpt2c {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = net::ip::tcp;
using Clock = std::chrono::steady_clock;

inline double milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

/// What an answer that is an error says.
std::string messageOf(const std::string &body);

/// What all streams of a play share.
struct Play {
  const std::vector<WorkloadRequest> &requests;
  const std::vector<std::string> wires;
  const LoadOptions &options;
  const std::vector<tcp::endpoint> endpoints;
  Clock::time_point start = {};      ///< when the workload's time is 0
  std::atomic<size_t> next = 0;      ///< request, with LoadOptions::streams
  std::atomic<size_t> connected = 0; ///< streams
};

/// What a thread has seen.
struct Tally {
  std::vector<double> first, between, perToken, whole, late;
  std::map<std::string, size_t> statuses;
  std::string firstProblem;
  size_t completed = 0, refused = 0, failed = 0;
  int64_t promptTokens = 0, outputTokens = 0, events = 0;
  Clock::time_point last = {};
};

class Worker;

/// A connection, with one request at a time.
class Stream : public std::enable_shared_from_this<Stream> {
public:
  explicit Stream(Worker &worker);
  void begin(size_t request, Clock::time_point due);

private:
  void connect();
  void send();
  void readHead();
  void readBody();
  void take(std::string_view event, Clock::time_point now);
  void end();
  void fail(const beast::error_code &error);
  void finish();

  Worker &worker_;
  beast::basic_stream<tcp, net::io_context::executor_type> socket_;
  beast::flat_buffer buffer_;
  std::optional<http::response_parser<http::string_body>> parser_;
  EventReader events_;
  size_t request_ = 0;
  Clock::time_point due_, first_, last_;
  int64_t tokens_ = 0, seen_ = 0; ///< of the answer: as it says, and events that brought some
  std::string error_;             ///< that came behind the head
  bool open_ = false, reused_ = false;
};

/// A thread and its streams.
class Worker {
public:
  Worker(Play &p, size_t number, size_t of) : play(p), number_(number), of_(of) {}

  /// Until its part of the requests is through.
  void run();
  /// A stream has come to the end of its request.
  void isFree(const std::shared_ptr<Stream> &stream);

  Play &play;
  net::io_context context{1};
  Tally tally;

private:
  void arrive();
  bool beginNext(const std::shared_ptr<Stream> &stream);

  const size_t number_, of_;
  net::steady_timer timer_{context};
  size_t due_ = 0; ///< the next request of this thread
  std::vector<std::shared_ptr<Stream>> free_;
};

} // namespace gpt2c
