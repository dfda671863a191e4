// Connections over sockets: whatever a client does, its connection and its pages end with it.
#include "server/http/HttpServer.h"
#include "ServiceToy.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>

namespace gpt2c::serve {
namespace {

namespace json = boost::json;

namespace net = boost::asio;
using tcp = net::ip::tcp;

class HttpServerTest : public ::testing::Test {
protected:
  void open(HttpOptions options = {}) {
    options.port = 0;
    service_ = std::make_unique<Service>(ServiceOptions{});
    service_->setModel(toy::model());
    auto made = HttpServer::listen(*service_, options);
    ASSERT_TRUE(made) << made.status().message();
    server_ = made.take();
  }

  tcp::socket connect() {
    tcp::socket socket(context_);
    socket.connect({net::ip::address_v4::loopback(), uint16_t(server_->port())});
    return socket;
  }

  static std::string request(bool stream, int tokens = 90) {
    const std::string body = json::serialize(json::object{
        {"prompt", "abc"}, {"max_tokens", tokens}, {"ignore_eos", true}, {"stream", stream}});
    return "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
           "Content-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  /// Whether this comes true within a minute.
  static bool becomes(const std::function<bool()> &what) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!what() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return what();
  }
  void expectNothingLeft() {
    EXPECT_TRUE(becomes([&] { return service_->metrics().connections == 0; }))
        << service_->metrics().connections << " connections are left";
    EXPECT_TRUE(becomes([&] {
      const rt::EngineStats s = service_->model()->engine().stats();
      return s.running + s.waiting + s.pagesUsed + s.pagesReserved == 0;
    }));
    EXPECT_EQ(service_->active(), 0U);
  }

  net::io_context context_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_; ///< ends first
};

TEST_F(HttpServerTest, WhoGoesAtAnyMomentLeavesNothing) {
  open();
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    tcp::socket socket = connect();
    std::string bytes = request(random() % 2 == 0);
    const bool whole = random() % 3 > 0;
    if (!whole)
      bytes.resize(random() % bytes.size());
    boost::system::error_code ignored;
    net::write(socket, net::buffer(bytes), ignored);
    if (whole && random() % 2) {
      std::string part(1 + random() % 2000, ' ');
      socket.read_some(net::buffer(part), ignored);
    }
    if (random() % 2) // with a reset
      socket.set_option(net::socket_base::linger(true, 0), ignored);
  }
  expectNothingLeft();
}

// A write that waits for its client holds the connection, and that what is to be written.
TEST_F(HttpServerTest, WhoDoesNotReadIsLetGo) {
  HttpOptions options;
  options.writeTimeout = std::chrono::milliseconds(50);
  open(options);
  std::vector<tcp::socket> silent;
  for (int i = 0; i < 4; ++i) {
    silent.push_back(connect());
    silent.back().set_option(net::socket_base::receive_buffer_size(1024));
    for (int n = 0; n < 40; ++n) { // one behind the other: more than the system keeps for them
      boost::system::error_code ignored;
      net::write(silent.back(), net::buffer(request(true)), ignored);
    }
  }
  silent.pop_back(); // one of them ends by itself
  silent.clear();
  expectNothingLeft();
}

/// How many answers of a status are there.
int countOf(const std::string &text, const std::string &status) {
  int count = 0;
  for (size_t at = 0; (at = text.find("HTTP/1.1 " + status, at)) != text.npos; ++at)
    ++count;
  return count;
}

// None of them begins within the one before: the stack is no deeper for many.
TEST_F(HttpServerTest, ManyRequestsAtOnceAreAnsweredInTurn) {
  open();
  constexpr int count = 6000;
  std::string bytes;
  for (int i = 0; i < count; ++i)
    bytes += "GET /health HTTP/1.1\r\n\r\n";
  bytes += request(false, 3) + "GET /version HTTP/1.0\r\n\r\n";
  tcp::socket socket = connect();
  std::thread writer([&] {
    boost::system::error_code ignored;
    net::write(socket, net::buffer(bytes), ignored);
  });
  std::string got;
  boost::system::error_code error;
  net::read(socket, net::dynamic_buffer(got), error);
  writer.join();
  EXPECT_EQ(countOf(got, "200"), count + 2);
  EXPECT_TRUE(got.ends_with("}")) << got.substr(got.size() - 100);
  expectNothingLeft();
}

// However a request comes in, it is the same one.
TEST_F(HttpServerTest, ARequestMayComeInPieces) {
  open();
  const std::string body = R"({"prompt": "abc", "max_tokens": 3})";
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                           "Content-Type: application/json\r\nConnection: close\r\n";
  const std::string whole =
      head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\n" +
                              body.substr(0, 5) + "\r\n1d\r\n" + body.substr(5) +
                              "\r\n0\r\nX-Trailer: b\r\n\r\n";
  ASSERT_EQ(body.size(), 5U + 0x1d);
  std::mt19937 random(3);
  for (int i = 0; i < 30; ++i) {
    const std::string &bytes = i % 2 ? chunked : whole;
    tcp::socket socket = connect();
    socket.set_option(tcp::no_delay(true));
    for (size_t at = 0; at < bytes.size();) {
      const size_t part = std::min(bytes.size() - at, i < 2 ? 1 : 1 + random() % bytes.size());
      net::write(socket, net::buffer(bytes.data() + at, part));
      at += part;
    }
    std::string got;
    boost::system::error_code error;
    net::read(socket, net::dynamic_buffer(got), error);
    EXPECT_EQ(countOf(got, "200"), 1) << got;
  }
  expectNothingLeft();
}

// As other servers take them: an empty line in front, a whole address for a path, and who speaks
// HTTP/1.0 is not told to continue.
TEST_F(HttpServerTest, RequestsOfUnusualForms) {
  open();
  const std::string body = R"({"prompt": "abc", "max_tokens": 3})";
  const std::string bytes = "\r\n\r\nGET http://a:1/health?b HTTP/1.1\r\n\r\n\r\n"
                            "HEAD https://a HTTP/1.1\r\n\r\n"
                            "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
                            "Expect: 100-continue\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n";
  tcp::socket socket = connect();
  net::write(socket, net::buffer(bytes));
  net::write(socket, net::buffer(body));
  std::string got;
  boost::system::error_code error;
  net::read(socket, net::dynamic_buffer(got), error);
  EXPECT_EQ(countOf(got, "200"), 3) << got;
  EXPECT_EQ(countOf(got, "100"), 0) << got;
  expectNothingLeft();
}

TEST_F(HttpServerTest, ADrainEndsWhatIsIdle) {
  open();
  std::vector<tcp::socket> idle;
  for (int i = 0; i < 10; ++i)
    idle.push_back(connect());
  EXPECT_TRUE(becomes([&] { return service_->metrics().connections == 10; }));
  service_->drain();
  server_->drain();
  expectNothingLeft();
}

TEST_F(HttpServerTest, TooManyConnectionsAreTold) {
  HttpOptions options;
  options.maxConnections = 2;
  open(options);
  std::vector<tcp::socket> two;
  two.push_back(connect());
  two.push_back(connect());
  EXPECT_TRUE(becomes([&] { return service_->metrics().connections == 2; }));
  tcp::socket third = connect();
  std::string got;
  boost::system::error_code error;
  net::read(third, net::dynamic_buffer(got), error);
  EXPECT_TRUE(got.starts_with("HTTP/1.1 503 ")) << got;
  two.clear();
  expectNothingLeft();
}

} // namespace
} // namespace gpt2c::serve
