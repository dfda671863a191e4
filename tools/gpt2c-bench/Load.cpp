#include "tools/gpt2c-bench/Load.h"

#ifndef GPT2C_BOOST

namespace gpt2c {

static const rt::Status kNone(rt::Code::Unsupported,
                              "--url: this build has no client for HTTP, as it was made without "
                              "Boost's headers (libboost1.81-dev, libboost-dev)");

bool hasLoadClient() { return false; }
rt::Result<ServedModel> askServer(const LoadOptions &) { return kNone; }
rt::Result<LoadResults> playLoad(const std::vector<WorkloadRequest> &, const ServedModel &,
                                 const LoadOptions &) {
  return kNone;
}

} // namespace gpt2c

#else

#include "tools/gpt2c-bench/LoadStreams.h"
#include "tools/runtime-common/Files.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

#include <algorithm>
#include <thread>

namespace gpt2c {

namespace {

std::string headOf(const LoadOptions &o, const char *method, const char *route, size_t body) {
  std::string head = std::string(method) + " " + o.server.path + route +
                     " HTTP/1.1\r\nHost: " + o.server.host + ":" + o.server.port + "\r\n";
  if (!o.key.empty())
    head += "Authorization: Bearer " + o.key + "\r\n";
  if (body)
    head += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body) + "\r\n";
  return head + "\r\n";
}

/// A request as it goes over the wire.
std::string wireOf(const WorkloadRequest &request, size_t number, const ServedModel &model,
                   const LoadOptions &o) {
  const rt::SamplingParams &p = o.sampling;
  Json body{{"model", model.name},
            {"prompt", request.prompt},
            {"max_tokens", request.maxTokens},
            {"ignore_eos", true},
            {"stream", true},
            {"stream_options", {{"include_usage", true}}},
            {"temperature", p.temperature},
            {"seed", number}};
  if (p.topK > 0)
    body["top_k"] = p.topK;
  if (p.topP < 1)
    body["top_p"] = p.topP;
  if (p.repetitionPenalty != 1)
    body["repetition_penalty"] = p.repetitionPenalty;
  body.update(request.more);
  const std::string text = body.dump();
  return headOf(o, "POST", "/v1/completions", text.size()) + text;
}

//===-- a whole answer at a time ------------------------------------------------------------===//

struct WholeAnswer {
  unsigned status = 0;
  std::string body;
};

std::string nameOf(const HttpUrl &server) { return server.host + ":" + server.port; }

rt::Result<std::vector<tcp::endpoint>> resolve(const HttpUrl &server) {
  net::io_context context;
  beast::error_code error;
  std::vector<tcp::endpoint> out;
  for (const auto &entry : tcp::resolver(context).resolve(server.host, server.port, error))
    out.push_back(entry.endpoint());
  if (error || out.empty())
    return {rt::Code::Io, "cannot find " + nameOf(server) + ": " + error.message()};
  return out;
}

rt::Result<WholeAnswer> ask(const LoadOptions &o, const std::string &wire) {
  auto endpoints = resolve(o.server);
  if (!endpoints)
    return endpoints.status();
  net::io_context context;
  tcp::socket socket(context);
  beast::error_code error;
  net::connect(socket, *endpoints, error);
  if (!error)
    net::write(socket, net::buffer(wire), error);
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  if (!error)
    http::read(socket, buffer, response, error);
  if (error)
    return {rt::Code::Io, "no answer from " + nameOf(o.server) + ": " + error.message()};
  return WholeAnswer{response.result_int(), std::move(response.body())};
}

/// The first answer loads code and fills caches; whether it is one does not matter here.
rt::Status warmUp(const WorkloadRequest &like, const ServedModel &model, const LoadOptions &o) {
  WorkloadRequest request{.prompt = rt::Tokens(std::min<size_t>(like.prompt.size(), 64)),
                          .maxTokens = 4};
  for (size_t i = 0; i < request.prompt.size(); ++i)
    request.prompt[i] = int32_t((i * 7919 + 13) % size_t(std::max(1, model.vocabulary)));
  return ask(o, wireOf(request, 0, model, o)).status();
}

void append(std::vector<double> &to, const std::vector<double> &from) {
  to.insert(to.end(), from.begin(), from.end());
}

void add(Tally &all, const Tally &part) {
  append(all.first, part.first);
  append(all.between, part.between);
  append(all.perToken, part.perToken);
  append(all.whole, part.whole);
  append(all.late, part.late);
  for (const auto &[status, count] : part.statuses)
    all.statuses[status] += count;
  if (all.firstProblem.empty())
    all.firstProblem = part.firstProblem;
  all.completed += part.completed;
  all.refused += part.refused;
  all.failed += part.failed;
  all.promptTokens += part.promptTokens;
  all.outputTokens += part.outputTokens;
  all.events += part.events;
  all.last = std::max(all.last, part.last);
}

} // namespace

bool hasLoadClient() { return true; }

rt::Result<ServedModel> askServer(const LoadOptions &o) {
  rt::Result<WholeAnswer> answer = ask(o, headOf(o, "GET", "/v1/models", 0));
  if (!answer)
    return answer.status();
  if (answer->status != 200)
    return {rt::Code::Io, nameOf(o.server) + " answers " + std::to_string(answer->status) + ": " +
                              messageOf(answer->body) +
                              (answer->status == 401 ? " (OPENAI_API_KEY in the environment is "
                                                       "sent)"
                                                     : "")};
  std::string why;
  const Json value = parseJson(answer->body, why);
  const Json *first = nullptr;
  if (value.is_object())
    if (auto data = value.find("data"); data != value.end() && data->is_array() && !data->empty())
      first = &data->front();
  if (!first || !first->is_object() || !first->value("id", Json()).is_string())
    return {rt::Code::Io, nameOf(o.server) + " has no models at /v1/models"};
  ServedModel model{first->value("id", std::string()), 1000};
  if (const Json size = first->value("vocab_size", Json()); size.is_number_integer())
    model.vocabulary = int32_t(std::clamp<int64_t>(size.get<int64_t>(), 1, INT32_MAX));
  return model;
}

rt::Result<LoadResults> playLoad(const std::vector<WorkloadRequest> &requests,
                                 const ServedModel &model, const LoadOptions &o) {
  auto endpoints = resolve(o.server);
  if (!endpoints)
    return endpoints.status();
  if (rt::Status s = warmUp(requests.front(), model, o); !s.ok())
    return s;
  raiseFileLimit();
  std::vector<std::string> wires;
  wires.reserve(requests.size());
  for (const WorkloadRequest &request : requests)
    wires.push_back(wireOf(request, wires.size(), model, o));
  Play play{requests, std::move(wires), o, endpoints.take()};
  size_t threads = std::clamp(std::thread::hardware_concurrency() / 4, 1U, 8U);
  threads = std::min(threads, size_t(o.streams ? o.streams : INT32_MAX));
  std::vector<std::unique_ptr<Worker>> workers;
  for (size_t i = 0; i < threads; ++i)
    workers.push_back(std::make_unique<Worker>(play, i, threads));
  const auto begun = Clock::now() + std::chrono::milliseconds(10); // all threads are there by then
  const double begin = requests.front().at; // a trace may be cut out of a longer one
  play.start =
      begun - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(begin));
  {
    std::vector<std::jthread> running;
    for (const auto &worker : workers)
      running.emplace_back([&, to = worker.get()] {
        std::this_thread::sleep_until(begun);
        to->run();
      });
  }
  Tally all;
  for (const auto &worker : workers)
    add(all, worker->tally);
  LoadResults r;
  r.url = "http://" + nameOf(o.server) + o.server.path;
  r.model = model.name;
  r.streams = o.streams;
  r.threads = int(threads);
  r.requests = requests.size();
  r.completed = all.completed;
  r.refused = all.refused;
  r.failed = all.failed;
  r.statuses = all.statuses;
  r.firstProblem = all.firstProblem;
  r.seconds = milliseconds(all.last - begun) / 1e3;
  r.promptTokens = all.promptTokens;
  r.outputTokens = all.outputTokens;
  r.events = all.events;
  r.mostConnections = play.connected;
  r.firstToken = spreadOf(all.first);
  r.betweenTokens = spreadOf(all.between);
  r.perToken = spreadOf(all.perToken);
  r.whole = spreadOf(all.whole);
  r.late = spreadOf(all.late);
  return r;
}

} // namespace gpt2c

#endif
