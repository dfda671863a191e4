#include "server/Tracing.h"

#include "server/http/Json.h"
#include "server/http/RandomId.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <algorithm>
#include <iterator>

namespace gpt2c::serve {

namespace {

constexpr size_t kMostSpans = 8192; ///< that wait
constexpr size_t kBatch = 512;
constexpr std::chrono::milliseconds kPause{500}, kPatience{3000};

bool isHex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool isZero(std::string_view text) { return text.find_first_not_of('0') == text.npos; }

} // namespace

//===-- the context -------------------------------------------------------------------------===//

/// version "-" 32 digits "-" 16 digits "-" flags; a later version may have more behind that.
std::optional<Trace> Trace::of(std::string_view header) {
  constexpr size_t length = 55;
  if (header.size() < length || (header.size() > length && header[length] != '-') ||
      header[2] != '-' || header[35] != '-' || header[52] != '-')
    return std::nullopt;
  const std::string_view version = header.substr(0, 2), id = header.substr(3, 32),
                         parent = header.substr(36, 16), flags = header.substr(53, 2);
  if (!isHex(version) || !isHex(id) || !isHex(parent) || !isHex(flags) || version == "ff" ||
      (version == "00" && header.size() > length) || isZero(id) || isZero(parent))
    return std::nullopt;
  const char low = flags[1];
  const int bits = low <= '9' ? low - '0' : low - 'a' + 10;
  return Trace{std::string(id), randomDigits(16), std::string(parent), (bits & 1) != 0};
}

Trace Trace::begin() { return {randomDigits(32), randomDigits(16), {}, true}; }

std::string Trace::header() const { return "00-" + id + "-" + span + (sampled ? "-01" : "-00"); }

Trace partOf(const Trace &trace) { return {trace.id, randomDigits(16), trace.span, trace.sampled}; }

//===-- OTLP --------------------------------------------------------------------------------===//

static void writeAttribute(JsonWriter &w, const Span::Attribute &attribute) {
  w.object().key("key").text(attribute.first).key("value").object();
  if (const auto *number = std::get_if<int64_t>(&attribute.second))
    w.key("intValue").text(std::to_string(*number));
  else
    w.key("stringValue").text(std::get<std::string>(attribute.second));
  w.end().end();
}

/// Integers of 64 bits are texts there, as in JSON of protobuf.
static void writeSpan(JsonWriter &w, const Span &span, std::chrono::nanoseconds toSystem) {
  const auto nanoseconds = [&](Span::Clock::time_point at) {
    return std::to_string(
        (std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()) + toSystem)
            .count());
  };
  w.object().key("traceId").text(span.trace.id).key("spanId").text(span.trace.span);
  if (!span.trace.parent.empty())
    w.key("parentSpanId").text(span.trace.parent);
  constexpr int internal = 1, server = 2;
  w.key("name").text(span.name).key("kind").integer(span.isServer ? server : internal);
  w.key("startTimeUnixNano").text(nanoseconds(span.begin));
  w.key("endTimeUnixNano").text(nanoseconds(span.end));
  w.key("attributes").array();
  for (const Span::Attribute &attribute : span.attributes)
    writeAttribute(w, attribute);
  w.end().key("status").object();
  if (span.failed)
    w.key("code").integer(2);
  w.end().end();
}

std::string otlpOf(const std::vector<Span> &spans) {
  using namespace std::chrono;
  const nanoseconds toSystem = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()) -
                               duration_cast<nanoseconds>(Span::Clock::now().time_since_epoch());
  JsonWriter w;
  w.object().key("resourceSpans").array().object().key("resource").object();
  w.key("attributes").array();
  writeAttribute(w, {"service.name", "gpt2c-serve"});
  writeAttribute(w, {"service.version", GPT2C_VERSION});
  w.end().end().key("scopeSpans").array().object();
  w.key("scope").object().key("name").text("gpt2c").key("version").text(GPT2C_VERSION).end();
  w.key("spans").array();
  for (const Span &span : spans)
    writeSpan(w, span, toSystem);
  w.end().end().end().end().end().end();
  return w.take();
}

//===-- sending -----------------------------------------------------------------------------===//

SpanSender::SpanSender(SpanTarget target, Metrics &metrics)
    : target_(std::move(target)), metrics_(metrics), thread_([this] { run(); }) {}

SpanSender::~SpanSender() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SpanSender::send(std::vector<Span> spans) {
  bool enough = false;
  {
    const std::lock_guard lock(mutex_);
    const size_t room = kMostSpans - waiting_.size(), taken = std::min(room, spans.size());
    std::move(spans.begin(), spans.begin() + std::ptrdiff_t(taken), std::back_inserter(waiting_));
    metrics_.spansDropped += int64_t(spans.size() - taken);
    enough = waiting_.size() >= kBatch;
  }
  if (enough)
    changed_.notify_one();
}

void SpanSender::run() {
  std::unique_lock lock(mutex_);
  while (!ending_ || !waiting_.empty()) {
    changed_.wait_for(lock, kPause, [&] { return ending_ || waiting_.size() >= kBatch; });
    if (waiting_.empty())
      continue;
    const auto count = std::ptrdiff_t(std::min(waiting_.size(), kBatch));
    std::vector<Span> batch(std::make_move_iterator(waiting_.begin()),
                            std::make_move_iterator(waiting_.begin() + count));
    waiting_.erase(waiting_.begin(), waiting_.begin() + count);
    lock.unlock();
    bool sent = false;
    try {
      sent = post(otlpOf(batch));
    } catch (const std::exception &) {
      sent = false; // no memory: what is left of it is for requests
    }
    (sent ? metrics_.spansSent : metrics_.spansDropped) += int64_t(batch.size());
    lock.lock();
    if (!sent && ending_) {
      metrics_.spansDropped += int64_t(waiting_.size());
      return;
    }
  }
}

/// Whether the collector has taken it. A connection of its own: there is one batch in half a
/// second.
bool SpanSender::post(const std::string &body) const {
  namespace net = boost::asio;
  namespace http = boost::beast::http;
  net::io_context context;
  boost::beast::tcp_stream stream(context);
  boost::beast::flat_buffer buffer;
  http::request<http::string_body> request(http::verb::post, target_.path, 11, body);
  request.set(http::field::host, target_.host + ":" + target_.port);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  request.prepare_payload();
  http::response<http::string_body> response;
  bool answered = false;
  boost::beast::error_code error;
  const auto found = net::ip::tcp::resolver(context).resolve(target_.host, target_.port, error);
  if (error)
    return false;
  stream.expires_after(kPatience);
  stream.async_connect(found, [&](boost::beast::error_code connected, const auto &) {
    if (connected)
      return;
    http::async_write(stream, request, [&](boost::beast::error_code written, size_t) {
      if (written)
        return;
      http::async_read(stream, buffer, response,
                       [&](boost::beast::error_code read, size_t) { answered = !read; });
    });
  });
  context.run();
  return answered && response.result_int() / 100 == 2;
}

} // namespace gpt2c::serve
