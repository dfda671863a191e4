// What the routes do, apart from sockets. All members may be called from any thread.
#pragma once

#include "server/Mailbox.h"
#include "server/Metrics.h"
#include "server/Model.h"
#include "server/WorkQueue.h"
#include "server/http/Http.h"
#include "server/requests/GenerationRequest.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

namespace gpt2c::serve {

struct ServiceOptions {
  std::vector<std::string> keys = {}; ///< any of them opens /v1, /tokenize, /detokenize, /admin
  RequestLimits limits = {};
  int64_t maxQueuedTokens = 0; ///< prompt tokens of requests without a token yet; 0: any number
  int32_t streamInterval = 1;  ///< new tokens of an event, at least
  rt::Pooling pooling = rt::Pooling::Last;        ///< of embeddings that do not say one
  std::chrono::milliseconds pingInterval{30'000}; ///< of comments in a stream; 0: none
  std::chrono::milliseconds requestTimeout{0};    ///< 0: none
  /// A line of the log, without its end.
  std::function<void(const std::string &)> log = {};
  bool jsonLog = false;
  std::optional<SpanTarget> spans = {}; ///< none: no spans are sent
  /// Loads the plan again, for /admin/reload: Ok where that was begun.
  std::function<rt::Status()> reload = {};
};

class Exchange;
struct KnownRoute;

/// Requests that may wait for their grammar, and for their embeddings.
inline constexpr size_t kMostGrammars = 256, kMostEmbeddings = 1024;

class Service {
public:
  explicit Service(ServiceOptions options);
  ~Service();
  Service(const Service &) = delete;
  Service &operator=(const Service &) = delete;

  /// What is served from now on; null: nothing, it is being loaded. Embeddings are the second
  /// one's, where that is there.
  void setModel(std::shared_ptr<Model> model, std::shared_ptr<Model> embedder = nullptr);
  std::shared_ptr<Model> model() const;
  /// Who makes embeddings; null where nobody does.
  std::shared_ptr<Model> embedder() const;
  /// Nothing new is taken: /health says 503.
  void drain() { draining_ = true; }
  bool draining() const { return draining_; }
  /// Answers that are being made.
  size_t active() const;
  /// Ends all of them.
  void cancelAll();

  /// Forgets them, where no responder is used any more.
  void closeAll();
  /// Who brings what engines say to the responders.
  Delivery &delivery() { return *delivery_; }

  /// What a request is told as soon as its head is known; nothing where its body is wanted.
  std::optional<HttpResponse> refuse(HttpRequest &head);
  /// Answers now or later, by the responder. Nothing is thrown.
  void handle(HttpRequest request, const std::shared_ptr<Responder> &responder);

  /// For who answers in the service's name before a request is whole.
  static HttpResponse errorResponse(const ApiError &error, const std::string &requestId = {});

  const ServiceOptions &options() const { return options_; }
  Metrics &metrics() { return *metrics_; }

private:
  friend class Exchange;
  using LogFields = std::vector<std::pair<const char *, double>>;

  struct Refused {
    std::optional<ApiError> error;
    const KnownRoute *route = nullptr;
  };
  Refused check(HttpRequest &request) const;
  void dispatch(const KnownRoute &route, const HttpRequest &request,
                const std::shared_ptr<Responder> &responder);
  void generate(const HttpRequest &request, const std::shared_ptr<Model> &model,
                const std::shared_ptr<Responder> &responder);
  void begin(const std::shared_ptr<Exchange> &exchange, const HttpRequest &request,
             Responder &responder);
  void embed(const HttpRequest &request, const std::shared_ptr<Responder> &responder);
  void count(const HttpRequest &request, int status);
  void answer(const HttpRequest &request, Responder &responder, HttpResponse response);
  bool authorised(const HttpRequest &request) const;
  void add(const std::shared_ptr<Exchange> &exchange);
  void remove(const std::shared_ptr<Exchange> &exchange);
  void logLine(const HttpRequest &request, int status, double seconds, const LogFields &more);
  void trace(HttpRequest &request) const;
  /// The span of a whole request that ends now, and `parts` of it.
  void sendSpans(const HttpRequest &request, int status, std::vector<Span::Attribute> attributes,
                 std::vector<Span> parts);
  static void addHeaders(const HttpRequest &request, HttpResponse &response);

  const ServiceOptions options_;
  /// The engine's threads count, too, and may end later.
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  const std::shared_ptr<Delivery> delivery_ = std::make_shared<Delivery>();
  const rt::EngineThread::OnStep flush_;    ///< delivers a step
  const std::unique_ptr<SpanSender> spans_; ///< null: none are sent
  std::atomic<bool> draining_ = false;
  mutable std::mutex mutex_; ///< of what follows
  std::shared_ptr<Model> model_, embedder_;
  std::set<std::shared_ptr<Exchange>> active_;
  std::atomic<size_t> compiling_ = 0; ///< requests that wait for their grammar or embeddings
  WorkQueue grammars_{kMostGrammars}; ///< they end first: they use the others
  WorkQueue embeddings_{kMostEmbeddings};
};

/// Whether two texts are equal, in a time that does not tell where they differ.
bool equalInConstantTime(std::string_view a, std::string_view b);

} // namespace gpt2c::serve
