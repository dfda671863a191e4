// One class: the routes, and how what they begin ends.
#include "server/Service.h"

#include "server/StatusPage.h"
#include "server/http/Exchange.h"
#include "server/http/RandomId.h"
#include "server/requests/EmbeddingRequest.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <new>

namespace gpt2c::serve {

bool equalInConstantTime(std::string_view a, std::string_view b) {
  // Of a, the client's, each byte counts, and as many are compared whatever b is.
  size_t different = a.size() ^ b.size();
  for (size_t i = 0; i < a.size(); ++i)
    different |= size_t(static_cast<unsigned char>(a[i]) ^
                        static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]));
  return different == 0;
}

Service::Service(ServiceOptions options)
    : options_(std::move(options)), flush_(std::make_shared<const std::function<void()>>(
                                        [delivery = delivery_] { delivery->flush(); })),
      spans_(options_.spans ? std::make_unique<SpanSender>(*options_.spans, *metrics_) : nullptr) {}
Service::~Service() = default;

void Service::setModel(std::shared_ptr<Model> model, std::shared_ptr<Model> embedder) {
  std::lock_guard lock(mutex_);
  model_.swap(model); // the ones before end outside of the lock, or with their last answer
  embedder_.swap(embedder);
}

std::shared_ptr<Model> Service::embedder() const {
  std::lock_guard lock(mutex_);
  if (embedder_)
    return embedder_;
  return model_ && !model_->generates() ? model_ : nullptr;
}

std::shared_ptr<Model> Service::model() const {
  std::lock_guard lock(mutex_);
  return model_;
}

size_t Service::active() const {
  std::lock_guard lock(mutex_);
  return active_.size() + compiling_;
}

void Service::cancelAll() {
  std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Exchange> &exchange : active_)
    exchange->cancel();
}

void Service::closeAll() {
  std::set<std::shared_ptr<Exchange>> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(active_);
  }
  for (const std::shared_ptr<Exchange> &exchange : all)
    exchange->close();
}

void Service::add(const std::shared_ptr<Exchange> &exchange) {
  std::lock_guard lock(mutex_);
  active_.insert(exchange);
}

void Service::remove(const std::shared_ptr<Exchange> &exchange) {
  std::lock_guard lock(mutex_);
  active_.erase(exchange);
}

//===-- answers -----------------------------------------------------------------------------===//

HttpResponse Service::errorResponse(const ApiError &error, const std::string &requestId) {
  HttpResponse response{.status = error.status, .body = bodyOf(error)};
  if (error.retryAfter)
    response.headers.emplace_back("Retry-After", std::to_string(error.retryAfter));
  if (!error.allow.empty())
    response.headers.emplace_back("Allow", error.allow);
  if (error.status == 401)
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (!requestId.empty())
    response.headers.emplace_back("X-Request-Id", requestId);
  return response;
}

void Service::count(const HttpRequest &request, int status) {
  sendSpans(request, status, {}, {});
  const bool known = status != 404 && status != 405;
  metrics_->answered(known ? request.path : "other", status);
  const bool watches = request.path == "/health" || request.path == "/metrics";
  if (options_.log && !(watches && status == 200))
    logLine(request, status, 0, {});
}

void Service::answer(const HttpRequest &request, Responder &responder, HttpResponse response) {
  count(request, response.status);
  addHeaders(request, response);
  responder.send(std::move(response));
}

/// Those by which a client finds its request again.
void Service::addHeaders(const HttpRequest &request, HttpResponse &response) {
  if (std::ranges::count(response.headers, "X-Request-Id",
                         &std::pair<std::string, std::string>::first) == 0)
    response.headers.emplace_back("X-Request-Id", request.requestId);
  if (request.trace)
    response.headers.emplace_back("traceparent", request.trace->header());
}

void Service::trace(HttpRequest &request) const {
  request.begun = Span::Clock::now();
  request.trace = Trace::of(request.traceParent);
  if (!request.trace && spans_ && request.method == "POST")
    request.trace = Trace::begin();
}

void Service::sendSpans(const HttpRequest &request, int status,
                        std::vector<Span::Attribute> attributes, std::vector<Span> parts) {
  if (!spans_ || !request.trace || !request.trace->sampled)
    return;
  attributes.insert(attributes.begin(), {{"http.request.method", request.method},
                                         {"url.path", request.path.substr(0, 200)},
                                         {"http.response.status_code", int64_t(status)},
                                         {"gpt2c.request_id", request.requestId}});
  parts.push_back({.trace = *request.trace,
                   .name = request.method + " " + request.path.substr(0, 200),
                   .isServer = true,
                   .failed = status >= 500,
                   .begin = request.begun,
                   .end = Span::Clock::now(),
                   .attributes = std::move(attributes)});
  spans_->send(std::move(parts));
}

void Service::logLine(const HttpRequest &request, int status, double seconds,
                      const LogFields &more) {
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  JsonWriter json;
  json.object().key("time").text(time).key("id").text(request.requestId);
  json.key("method").text(request.method).key("path").text(request.path.substr(0, 200));
  json.key("status").integer(status);
  if (request.trace)
    json.key("trace").text(request.trace->id);
  std::string text = std::string(time) + " " + request.requestId + " " + request.method + " ";
  for (const char c : request.path.substr(0, 200)) // a line stays a line
    text += c > 0x20 && c < 0x7f ? c : '?';
  text += " " + std::to_string(status);
  if (request.trace)
    text += " trace=" + request.trace->id;
  auto add = [&](const char *name, double value) {
    JsonWriter number;
    number.number(double(int64_t(value * 1000)) / 1000);
    text += " " + std::string(name) + "=" + number.str();
    json.key(name).raw(number.str());
  };
  if (seconds > 0)
    add("ms", seconds * 1e3);
  for (const auto &[name, value] : more)
    add(name, value);
  json.end();
  options_.log(options_.jsonLog ? json.take() : text);
}

bool Service::authorised(const HttpRequest &request) const {
  if (options_.keys.empty())
    return true;
  std::string_view given = request.authorization;
  constexpr std::string_view scheme = "Bearer ";
  given.remove_prefix(given.starts_with(scheme) ? scheme.size() : given.size());
  bool equal = false;
  for (const std::string &key : options_.keys)
    equal |= equalInConstantTime(given, key) && !key.empty();
  return equal;
}

//===-- routes ------------------------------------------------------------------------------===//

struct KnownRoute {
  const char *path, *method;
  bool open;  ///< without a key
  bool model; ///< needs one
  bool body;  ///< takes JSON
};

namespace {

constexpr KnownRoute kRoutes[] = {
    {"/", "GET", true, false, false},
    {"/health", "GET", true, false, false},
    {"/v1/health", "GET", true, false, false},
    {"/version", "GET", true, false, false},
    {"/metrics", "GET", true, false, false},
    {"/v1/models", "GET", false, true, false},
    {"/v1/completions", "POST", false, true, true},
    {"/v1/chat/completions", "POST", false, true, true},
    {"/v1/embeddings", "POST", false, true, true},
    {"/tokenize", "POST", false, true, true},
    {"/detokenize", "POST", false, true, true},
    {"/admin/reload", "POST", false, false, false},
};

bool isJson(std::string_view type) {
  const std::string_view base = type.substr(0, type.find(';'));
  constexpr std::string_view json = "application/json";
  return base.size() >= json.size() &&
         std::ranges::equal(base.substr(0, json.size()), json,
                            [](char a, char b) { return (a | 0x20) == b || a == b; }) &&
         base.find_first_not_of(" \t", json.size()) == base.npos;
}

void writeModel(JsonWriter &w, const Model &model, const std::string &name) {
  w.object().key("id").text(name).key("object").text("model");
  w.key("created").integer(model.created()).key("owned_by").text("gpt2c");
  w.key("max_model_len").integer(model.context());
  w.key("vocab_size").integer(model.vocabulary()).end();
}

std::string modelsOf(const Model &model, const Model *embedder) {
  JsonWriter w;
  w.object().key("object").text("list").key("data").array();
  for (const Model *m : {&model, embedder == &model ? nullptr : embedder})
    for (size_t i = 0; m && i < m->names().size(); ++i)
      writeModel(w, *m, m->names()[i]);
  w.end().end();
  return w.take();
}

ApiError notReady(bool draining) {
  return {.status = 503,
          .message = draining ? "the server ends: it takes no new requests" : "Loading model",
          .code = draining ? "draining" : "loading",
          .retryAfter = draining ? 0 : 1};
}

} // namespace

/// Why a request is not for its route.
static std::optional<ApiError> refusal(const HttpRequest &request, const KnownRoute *&route) {
  constexpr std::string_view models = "/v1/models/";
  bool known = false;
  std::string allowed;
  for (const KnownRoute &r : kRoutes) {
    const bool hits = request.path == r.path || (request.path.starts_with(models) &&
                                                 std::string_view(r.path) == "/v1/models");
    known = known || hits;
    if (hits)
      allowed = r.method == std::string_view("GET") ? "GET, HEAD" : r.method;
    if (hits && (request.method == r.method ||
                 (request.method == "HEAD" && std::string_view(r.method) == "GET")))
      route = &r;
  }
  if (!known)
    return ApiError{.status = 404,
                    .message =
                        "there is nothing at this path; docs/serving/serving.md lists the routes",
                    .code = "unknown_route"};
  if (!route)
    return ApiError{
        .status = 405, .message = "this path does not take this method", .allow = allowed};
  return std::nullopt;
}

Service::Refused Service::check(HttpRequest &request) const {
  if (request.requestId.empty() || request.requestId.size() > 128 ||
      !std::ranges::all_of(request.requestId, [](char c) { return c > 0x20 && c < 0x7f; }))
    request.requestId = randomId("req-");
  Refused out;
  out.error = refusal(request, out.route);
  if (out.error)
    return out;
  const KnownRoute &route = *out.route;
  if (!route.open && !authorised(request))
    out.error = {
        .status = 401, .message = "the API key is missing or wrong", .code = "invalid_api_key"};
  else if (route.body && !isJson(request.contentType))
    out.error = {.status = 415,
                 .message = "a body is JSON: its Content-Type must be application/json"};
  else if (route.body && !request.contentEncoding.empty() && request.contentEncoding != "identity")
    out.error = {.status = 415,
                 .message = "a body is sent as it is: its Content-Encoding may be identity alone"};
  else if ((route.body && draining_) || (route.model && !model()))
    out.error = notReady(draining_);
  return out;
}

std::optional<HttpResponse> Service::refuse(HttpRequest &head) {
  const Refused refused = check(head);
  if (!refused.error)
    return std::nullopt;
  trace(head);
  count(head, refused.error->status);
  HttpResponse response = errorResponse(*refused.error);
  addHeaders(head, response);
  return response;
}

void Service::handle(HttpRequest request, const std::shared_ptr<Responder> &responder) {
  try {
    trace(request);
    const Refused refused = check(request);
    if (refused.error)
      return answer(request, *responder, errorResponse(*refused.error));
    dispatch(*refused.route, request, responder);
  } catch (const std::bad_alloc &) {
    responder->abort();
  } catch (const std::exception &e) {
    answer(request, *responder, errorResponse({.status = 500, .message = e.what()}));
  }
}

void Service::dispatch(const KnownRoute &route, const HttpRequest &request,
                       const std::shared_ptr<Responder> &responder) {
  auto fail = [&](const ApiError &error) {
    answer(request, *responder, errorResponse(error, request.requestId));
  };
  auto give = [&](std::string body, std::string type = "application/json") {
    answer(request, *responder, {.body = std::move(body), .contentType = std::move(type)});
  };
  const std::shared_ptr<Model> model = this->model();
  const std::string_view path = route.path;
  if (path == "/")
    return give(std::string(statusPage()), "text/html; charset=utf-8");
  if (path == "/version")
    return give(R"({"version":")" GPT2C_VERSION R"("})");
  if (path == "/metrics") {
    std::optional<rt::EngineStats> stats;
    if (model && model->generates())
      stats = model->engine().stats();
    return give(metrics_->page(model ? model->names().front() : "", stats ? &*stats : nullptr),
                "text/plain; version=0.0.4; charset=utf-8");
  }
  if (path == "/admin/reload") {
    if (options_.keys.empty() || !options_.reload)
      return fail({.status = 403, .message = "this route needs a server that has an API key"});
    const rt::Status status = options_.reload();
    if (!status.ok())
      return fail({.status = 409, .message = status.message()});
    return give(R"({"status":"loading"})");
  }
  const bool health = path == "/health" || path == "/v1/health";
  if ((health && draining_) || ((health || route.model) && !model))
    return fail(notReady(draining_));
  if (health) {
    if (const std::string lost = model->generates() ? model->engine().stats().lost : std::string();
        !lost.empty())
      return fail({.status = 503, .message = "the device failed: " + lost, .code = "device_lost"});
    return give(R"({"status":"ok"})");
  }
  if (path == "/v1/models") {
    const std::shared_ptr<Model> embedder = this->embedder();
    if (request.path == path)
      return give(modelsOf(*model, embedder.get()));
    const std::string name = request.path.substr(path.size() + 1);
    const Model *called = model->isCalled(name)                  ? model.get()
                          : embedder && embedder->isCalled(name) ? embedder.get()
                                                                 : nullptr;
    if (!called)
      return fail({.status = 404, .message = "there is no such model", .code = "model_not_found"});
    JsonWriter w;
    writeModel(w, *called, name);
    return give(w.take());
  }
  if (path == "/v1/embeddings")
    return embed(request, responder);
  if (!model->generates() && path.starts_with("/v1/"))
    return fail({.message = "the plan has no head over the vocabulary: this server has embeddings "
                            "alone, at /v1/embeddings",
                 .code = "no_generation"});
  generate(request, model, responder);
}

void Service::generate(const HttpRequest &request, const std::shared_ptr<Model> &model,
                       const std::shared_ptr<Responder> &responder) {
  auto fail = [&](const ApiError &error) {
    answer(request, *responder, errorResponse(error, request.requestId));
  };
  if (request.path.starts_with("/v1/"))
    model->engine().expect();
  auto parsed = parseJson(request.body);
  if (auto *error = std::get_if<ApiError>(&parsed))
    return fail(*error);
  const boost::json::value &body = std::get<boost::json::value>(parsed);
  if (request.path == "/tokenize" || request.path == "/detokenize") {
    auto made = request.path == "/tokenize" ? tokenize(body, *model) : detokenize(body, *model);
    if (auto *error = std::get_if<ApiError>(&made))
      return fail(*error);
    return answer(request, *responder, {.body = std::get<std::string>(std::move(made))});
  }
  auto read = request.path == "/v1/completions" ? readCompletion(body, *model, options_.limits)
                                                : readChat(body, *model, options_.limits);
  if (auto *error = std::get_if<ApiError>(&read))
    return fail(*error);
  HttpRequest head = request;
  head.body = {};
  auto asked = std::make_shared<GenerationRequest>(std::get<GenerationRequest>(std::move(read)));
  auto go = [this, model, asked, head, responder](const std::optional<ApiError> &error) {
    if (error)
      return answer(head, *responder, errorResponse(*error, head.requestId));
    begin(std::make_shared<Exchange>(*this, model, std::move(*asked), head, responder), head,
          *responder);
  };
  if (!asked->grammar)
    return go(std::nullopt);
  ++compiling_;
  const bool waits = grammars_.add([this, model, asked, responder, go] {
    std::optional<ApiError> error = compileGrammar(*asked, *model);
    responder->post([this, go, error = std::move(error)] {
      go(error);
      --compiling_;
    });
  });
  if (waits)
    return;
  --compiling_;
  fail({.status = 429,
        .message = std::to_string(kMostGrammars) + " requests wait for their grammar, which is "
                                                   "the most: try again later",
        .code = "queue_full",
        .retryAfter = 1});
}

/// Embeddings are made one after the other, on a thread of their own.
void Service::embed(const HttpRequest &request, const std::shared_ptr<Responder> &responder) {
  auto fail = [&](const ApiError &error) {
    answer(request, *responder, errorResponse(error, request.requestId));
  };
  const std::shared_ptr<Model> model = embedder();
  if (!model)
    return fail({.message = "this server has no embeddings: gpt2c-serve --embeddings=PLAN, of a "
                            "plan that gpt2c --output-hidden has made",
                 .code = "no_embeddings"});
  auto parsed = parseJson(request.body);
  if (auto *error = std::get_if<ApiError>(&parsed))
    return fail(*error);
  auto read = readEmbedding(std::get<boost::json::value>(parsed), *model, options_.limits,
                            options_.pooling);
  if (auto *error = std::get_if<ApiError>(&read))
    return fail(*error);
  HttpRequest head = request;
  head.body = {};
  auto asked = std::make_shared<EmbeddingRequest>(std::get<EmbeddingRequest>(std::move(read)));
  auto gone = std::make_shared<std::atomic<bool>>(false);
  responder->onGone([gone] { *gone = true; });
  ++compiling_;
  const bool waits = embeddings_.add([this, model, asked, head, gone, responder] {
    auto made = answerEmbedding(*asked, *model, [&] { return !*gone; });
    responder->post([this, asked, head, gone, responder, made = std::move(made)] {
      --compiling_;
      if (*gone)
        return count(head, 499); // as nginx logs it
      if (const auto *error = std::get_if<ApiError>(&made))
        return answer(head, *responder, errorResponse(*error, head.requestId));
      metrics_->promptTokensTotal += asked->tokens();
      answer(head, *responder, {.body = std::get<std::string>(made)});
    });
  });
  if (waits)
    return;
  --compiling_;
  fail({.status = 429,
        .message = std::to_string(kMostEmbeddings) + " requests wait for their embeddings, which "
                                                     "is the most: try again later",
        .code = "queue_full",
        .retryAfter = 1});
}

void Service::begin(const std::shared_ptr<Exchange> &exchange, const HttpRequest &request,
                    Responder &responder) {
  if (auto error = exchange->start())
    answer(request, responder, errorResponse(*error, request.requestId));
}

} // namespace gpt2c::serve
