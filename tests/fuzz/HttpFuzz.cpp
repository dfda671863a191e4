// Bytes of a client, one request: whatever they are, there is one answer, with a status that HTTP
// has and a body that is JSON or a stream of it, the engine is idle behind it, and no page is held.
#include "../unit/server/ServiceToy.h"

#include "server/http/HttpServer.h"

#include <cstdio>
#include <cstdlib>

using namespace gpt2c;
using namespace gpt2c::serve;

namespace {

void require(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "property violated: %s\n", what);
    std::abort();
  }
}

/// Bodies and heads to begin from.
const char *const kBodies[][2] = {
    {"/v1/completions",
     R"({"prompt": [1, 2], "max_tokens": 4, "n": 2, "echo": true, "logprobs": 2, "stop": ["a", "b"],
         "logit_bias": {"7": 1.5}, "seed": -1, "top_p": 0.5, "stream": true,
         "stream_options": {"include_usage": true}})"},
    {"/v1/completions", R"({"prompt": ["a", "bc"], "max_tokens": 0, "echo": true, "logprobs": 0})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "h\u00e9"}]},
                      {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}],
         "tools": [{"type": "function", "function": {"name": "f"}}], "max_tokens": 3,
         "logprobs": true, "top_logprobs": 2, "temperature": 0, "min_p": 0.1})"},
    {"/tokenize", R"({"prompt": "abc", "return_token_strs": true})"},
    {"/detokenize", R"({"tokens": [1, 2, 256]})"},
};

std::string seed(unsigned which) {
  const auto &[path, body] = kBodies[which % std::size(kBodies)];
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Request-Id: x\r\n"
         "Transfer-Encoding: chunked\r\n\r\n" +
         [&] {
           char size[16];
           std::snprintf(size, sizeof size, "%zx\r\n", std::string(body).size());
           return std::string(size);
         }() +
         body + "\r\n0\r\n\r\n";
}

/// What every run asks: made once.
struct Fixture {
  Fixture() { service.setModel(model = toy::model({.engine = {.maxWaiting = 16}})); }
  std::shared_ptr<Model> model;
  Service service{{.limits = {.prompts = 8, .choices = 4}, .pingInterval = {}}};
};

void checkStream(std::string_view body) {
  require(body.ends_with("data: [DONE]\n\n"), "a stream ends with [DONE]");
  for (size_t at = 0; at + 14 < body.size();) {
    const size_t end = body.find("\n\n", at);
    require(body.substr(at, 6) == "data: ", "an event has data");
    require(
        std::holds_alternative<boost::json::value>(parseJson(body.substr(at + 6, end - at - 6))),
        "an event is JSON");
    at = end + 2;
  }
}

void answer(Fixture &fixture, const HttpRequest &request) {
  const auto client = std::make_shared<toy::Client>();
  fixture.service.handle(request, client);
  client->wait();
  require(client->over, "there is an answer");
  const HttpResponse &r = client->response;
  require(r.status == 200 || (r.status >= 400 && r.status < 600), "a status of HTTP's");
  require(r.status < 500 || r.status == 503, "nothing fails");
  if (client->begun)
    checkStream(client->body);
  else if (r.contentType == "application/json")
    require(std::holds_alternative<boost::json::value>(parseJson(r.body)), "a body is JSON");
  const rt::EngineStats stats = fixture.model->engine().stats();
  require(stats.running + stats.waiting + stats.pagesUsed + stats.pagesReserved == 0,
          "nothing is left behind");
  require(fixture.service.active() == 0, "no answer is open");
}

} // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size, std::size_t maxSize);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size,
                                               std::size_t maxSize, unsigned random) {
  if (random % 8 == 0) {
    const std::string begin = seed(random / 8);
    if (begin.size() <= maxSize)
      size = begin.copy(reinterpret_cast<char *>(data), begin.size());
  }
  return LLVMFuzzerMutate(data, size, maxSize);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  static Fixture fixture;
  const std::string_view bytes(reinterpret_cast<const char *>(data), size);
  if (std::optional<HttpRequest> request = parseHttp(bytes, {})) {
    answer(fixture, *request);
    return 0;
  }
  // Of what is no HTTP the objects are bodies.
  const size_t begin = std::min(bytes.find('{'), bytes.size());
  const size_t end = bytes.rfind('}') + 1;
  answer(fixture, {.method = "POST",
                   .path = kBodies[size % std::size(kBodies)][0],
                   .body = std::string(bytes.substr(begin, std::max(begin, end) - begin)),
                   .contentType = "application/json"});
  return 0;
}
