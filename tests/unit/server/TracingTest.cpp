// The context of traces, and spans on their way to a collector.
#include "server/Tracing.h"
#include "ServiceToy.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include <set>

namespace gpt2c::serve {
namespace {

namespace json = boost::json;
namespace net = boost::asio;
namespace http = boost::beast::http;

const std::string kId = "4bf92f3577b34da6a3ce929d0e0e4736", kParent = "00f067aa0ba902b7";

TEST(Trace, IsReadAsTheStandardSays) {
  const std::string good = "00-" + kId + "-" + kParent + "-01";
  const std::optional<Trace> trace = Trace::of(good);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->id, kId);
  EXPECT_EQ(trace->parent, kParent);
  EXPECT_TRUE(trace->sampled);
  EXPECT_NE(trace->span, kParent);
  EXPECT_EQ(trace->header(), "00-" + kId + "-" + trace->span + "-01");
  EXPECT_FALSE(Trace::of("00-" + kId + "-" + kParent + "-00")->sampled);
  EXPECT_TRUE(Trace::of("00-" + kId + "-" + kParent + "-ff")->sampled);
  EXPECT_TRUE(Trace::of("cc-" + kId + "-" + kParent + "-01-what comes later"));
  for (const std::string &bad :
       {std::string(), good.substr(1), good + "-more", "ff-" + kId + "-" + kParent + "-01",
        "00-" + std::string(32, '0') + "-" + kParent + "-01",
        "00-" + kId + "-" + std::string(16, '0') + "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kParent + "-01",
        "00-" + kId + "-" + kParent + "-0x", "cc-" + kId + "-" + kParent + "-01.more",
        "00_" + kId + "-" + kParent + "-01"})
    EXPECT_FALSE(Trace::of(bad)) << bad;
  // What is read is never more than what is there.
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    text[random() % text.size()] = char(random() % 256);
    text.resize(random() % 70, '-');
    const auto made = Trace::of(text);
    EXPECT_TRUE(!made || made->id.size() + made->parent.size() + made->span.size() == 64U);
  }
}

/// Takes requests of HTTP one by one until it ends; 0 as a status: never answers.
class Collector {
public:
  explicit Collector(int status)
      : status_(status), acceptor_(context_, {net::ip::address_v4::loopback(), 0}),
        thread_([this] { run(); }) {}
  ~Collector() {
    ending_ = true;
    net::ip::tcp::socket wake(context_);
    boost::system::error_code ignored;
    wake.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  SpanTarget target() const {
    return {"127.0.0.1", std::to_string(acceptor_.local_endpoint().port()), "/v1/traces"};
  }
  std::vector<std::string> bodies; ///< complete when the sender has ended

private:
  void run() {
    std::vector<net::ip::tcp::socket> held;
    while (!ending_) {
      net::ip::tcp::socket socket = acceptor_.accept();
      if (ending_)
        return;
      if (!status_) {
        held.push_back(std::move(socket));
        continue;
      }
      boost::beast::flat_buffer buffer;
      http::request<http::string_body> request;
      boost::system::error_code error;
      http::read(socket, buffer, request, error);
      if (error)
        continue;
      EXPECT_EQ(request.target(), "/v1/traces");
      EXPECT_EQ(request[http::field::content_type], "application/json");
      bodies.push_back(request.body());
      const std::string answer =
          "HTTP/1.1 " + std::to_string(status_) + " x\r\nContent-Length: 0\r\n\r\n";
      net::write(socket, net::buffer(answer), error);
    }
  }

  const int status_;
  net::io_context context_;
  net::ip::tcp::acceptor acceptor_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

json::array spansOf(const std::string &body) {
  const json::value value = json::parse(body);
  const json::object &resource = value.at("resourceSpans").at(0).as_object();
  EXPECT_EQ(resource.at("resource").at("attributes").at(0).at("value").at("stringValue"),
            "gpt2c-serve");
  return resource.at("scopeSpans").at(0).at("spans").as_array();
}

TEST(Spans, OfARequestAreOneTree) {
  Collector collector(200);
  HttpRequest request = toy::post(
      "/v1/completions", {{"prompt", "abc"}, {"max_tokens", 5}, {"ignore_eos", true}, {"n", 2}});
  request.traceParent = "00-" + kId + "-" + kParent + "-01";
  {
    Service service({.spans = collector.target()});
    service.setModel(toy::model());
    auto ask = [&](const HttpRequest &what) {
      auto client = std::make_shared<toy::Client>();
      service.handle(what, client);
      client->wait();
      std::string header;
      for (const auto &[name, value] : client->response.headers)
        header = name == "traceparent" ? value : header;
      return header;
    };
    EXPECT_TRUE(ask(request).starts_with("00-" + kId + "-"));
    request.traceParent = "00-" + kId + "-" + kParent + "-00"; // which nobody samples
    EXPECT_TRUE(ask(request).starts_with("00-" + kId + "-"));
    request.traceParent = {};
    request.body = "{";
    EXPECT_EQ(ask(request).size(), 55U) << "it begins a trace of its own";
    EXPECT_EQ(ask({.method = "GET", .path = "/health"}), "");
  }
  json::array all;
  for (const std::string &body : collector.bodies)
    for (const json::value &span : spansOf(body))
      all.push_back(span);
  ASSERT_EQ(all.size(), 2U * 3 + 1 + 1);
  std::multiset<std::string> names;
  std::string root;
  for (const json::value &span : all) {
    names.insert(std::string(span.at("name").as_string()));
    EXPECT_LE(span.at("startTimeUnixNano").as_string(), span.at("endTimeUnixNano").as_string());
    if (span.at("kind").as_int64() == 2 && span.at("traceId").as_string() == kId) {
      EXPECT_EQ(span.at("parentSpanId").as_string(), kParent);
      root = std::string(span.at("spanId").as_string());
      const std::string attributes = json::serialize(span.at("attributes"));
      for (const char *part : {R"("gen_ai.usage.output_tokens","value":{"intValue":"10"})",
                               R"("http.response.status_code","value":{"intValue":"200"})"})
        EXPECT_NE(attributes.find(part), std::string::npos) << attributes;
    }
  }
  EXPECT_EQ(names,
            (std::multiset<std::string>{"POST /v1/completions", "POST /v1/completions", "decode",
                                        "decode", "prefill", "prefill", "queue", "queue"}));
  for (const json::value &span : all)
    EXPECT_TRUE(span.at("kind").as_int64() != 1 || span.at("parentSpanId").as_string() == root);
}

// A collector that is slow, away or unwilling costs spans and nothing else.
TEST(Spans, ThatNobodyTakesAreCounted) {
  for (const int status : {0, 503}) {
    Metrics metrics;
    auto collector = std::make_unique<Collector>(status);
    {
      SpanSender sender(collector->target(), metrics);
      for (int i = 0; i < 300; ++i)
        sender.send(std::vector<Span>(100));
      if (!status)
        collector.reset(); // the connections that it held end
    }
    EXPECT_EQ(metrics.spansDropped, 30000) << status;
    EXPECT_EQ(metrics.spansSent, 0) << status;
  }
}

} // namespace
} // namespace gpt2c::serve
