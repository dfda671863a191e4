#include "tools/gpt2c-bench/Workload.h"

#include "tools/common/CommandLine.h"
#include "tools/common/RuntimeError.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

namespace gpt2c {

//===-- the file ----------------------------------------------------------------------------===//

static llvm::Error readPrompt(const llvm::json::Value &value, int32_t vocabulary,
                              std::mt19937_64 &random, rt::Tokens &prompt) {
  auto wrong = [] {
    return makeError(ExitCode::Usage, "\"prompt\" is a list of token ids or their number");
  };
  if (auto count = value.getAsInteger()) {
    if (*count < 1 || *count > INT32_MAX)
      return wrong();
    for (int64_t i = 0; i < *count; ++i)
      prompt.push_back(int32_t(random() % uint64_t(std::max(1, vocabulary))));
    return llvm::Error::success();
  }
  const llvm::json::Array *ids = value.getAsArray();
  if (!ids)
    return wrong();
  for (const llvm::json::Value &id : *ids) {
    auto number = id.getAsInteger();
    if (!number || *number < 0 || *number > INT32_MAX)
      return wrong();
    prompt.push_back(int32_t(*number));
  }
  return llvm::Error::success();
}

static llvm::Expected<WorkloadRequest> parseLine(llvm::StringRef line, int32_t vocabulary,
                                                 std::mt19937_64 &random) {
  auto value = llvm::json::parse(line);
  if (!value)
    return makeError(ExitCode::Usage, "no JSON: " + llvm::toString(value.takeError()));
  const llvm::json::Object *object = value->getAsObject();
  if (!object)
    return makeError(ExitCode::Usage, "a request is a JSON object");
  WorkloadRequest request;
  if (const llvm::json::Value *at = object->get("at")) {
    auto seconds = at->getAsNumber();
    if (!seconds || !(*seconds >= 0))
      return makeError(ExitCode::Usage, "\"at\" is a number of seconds of at least 0");
    request.at = *seconds;
  }
  auto most = object->getInteger("max_tokens");
  if (!most || *most < 1)
    return makeError(ExitCode::Usage, "\"max_tokens\" is a number of at least 1");
  request.maxTokens = *most;
  const llvm::json::Value *prompt = object->get("prompt");
  if (!prompt)
    return makeError(ExitCode::Usage, "\"prompt\" is missing");
  if (llvm::Error e = readPrompt(*prompt, vocabulary, random, request.prompt))
    return e;
  return request;
}

llvm::Expected<std::vector<WorkloadRequest>> readWorkload(const std::string &path,
                                                          int32_t vocabulary) {
  auto buffer = readInput(path);
  if (!buffer)
    return buffer.takeError();
  std::vector<WorkloadRequest> requests;
  llvm::StringRef rest = (*buffer)->getBuffer();
  std::mt19937_64 random(1); // lengths become the same tokens in every run
  for (int number = 1; !rest.empty(); ++number) {
    auto [line, behind] = rest.split('\n');
    rest = behind;
    if (line.trim().empty())
      continue;
    auto request = parseLine(line, vocabulary, random);
    if (!request)
      return inContext(path + ":" + std::to_string(number), request.takeError());
    requests.push_back(std::move(*request));
  }
  if (requests.empty())
    return makeError(ExitCode::Usage, "'" + path + "' has no requests");
  llvm::stable_sort(requests, [](auto &a, auto &b) { return a.at < b.at; });
  return requests;
}

void rearrive(std::vector<WorkloadRequest> &requests, double rate) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> gap(std::isfinite(rate) ? rate : 1);
  double at = 0;
  for (WorkloadRequest &r : requests)
    r.at = std::isfinite(rate) ? at += gap(random) : 0;
}

Spread spreadOf(const std::vector<double> &samples) {
  if (samples.empty())
    return {};
  const Quantiles q = quantiles(samples);
  return {std::accumulate(samples.begin(), samples.end(), 0.0) / double(samples.size()), q.median,
          q.p90, q.p99, *std::max_element(samples.begin(), samples.end())};
}

//===-- the play ----------------------------------------------------------------------------===//

namespace {

class Player {
public:
  Player(std::vector<WorkloadRequest> requests, const rt::SamplingParams &sampling,
         WorkloadResults &results)
      : requests_(std::move(requests)), sampling_(sampling), results_(results) {}

  llvm::Error play(rt::Session &session, int rowBudget) {
    rt::EngineOptions options;
    options.rowBudget = rowBudget;
    options.maxWaiting = int64_t(requests_.size()) + 1;
    options.onUpdate = [this](const rt::Update &u) { take(u); };
    auto made = rt::Engine::create(session, options);
    if (!made)
      return toError(made.status());
    engine_ = made.take();
    results_.rowBudget = engine_->rowBudget();
    results_.pageTokens = engine_->limits().pageTokens;
    if (llvm::Error e = warmUp())
      return e;
    const rt::EngineStats before = engine_->stats();
    start_ = Clock::now();
    if (llvm::Error e = run())
      return e;
    finish(before);
    return llvm::Error::success();
  }

private:
  using Clock = std::chrono::steady_clock;
  struct Live {
    double arrived, last = 0; ///< milliseconds since the start; last: of a token
    bool hasToken = false;
  };

  double now() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

  /// The first calls of a device load code. Of a request that is in no workload; its text is of no
  /// use to the prefix cache but by chance.
  llvm::Error warmUp() {
    const rt::EngineLimits &limits = engine_->limits();
    rt::Request r;
    r.maxTokens = 4;
    r.sampling = sampling_;
    const int64_t longest =
        std::min(limits.context, int64_t(limits.pages) * limits.pageTokens) - r.maxTokens + 1;
    r.prompt.resize(size_t(std::clamp<int64_t>(longest, 1, engine_->rowBudget())));
    for (size_t i = 0; i < r.prompt.size(); ++i)
      r.prompt[i] = int32_t((i * 7919 + 13) % size_t(std::max(1, limits.vocabulary)));
    engine_->submit(std::move(r));
    while (!engine_->idle())
      if (rt::Status s = engine_->step(); !s.ok())
        return toError(s);
    return llvm::Error::success();
  }

  void problem(const std::string &what, const std::string &message) {
    if (results_.firstProblem.empty())
      results_.firstProblem = what + ": " + message;
  }

  void submit(size_t index) {
    WorkloadRequest &from = requests_[index];
    rt::Request r;
    r.prompt = std::move(from.prompt);
    r.maxTokens = from.maxTokens;
    r.sampling = sampling_;
    r.sampling.seed = index;
    const size_t tokens = r.prompt.size();
    rt::Submitted s = engine_->submit(std::move(r));
    if (!s) {
      ++results_.refused;
      return problem("request " + std::to_string(index + 1), s.status.message());
    }
    results_.promptTokens += int64_t(tokens);
    live_[s.id] = {.arrived = from.at * 1e3};
  }

  void take(const rt::Update &u) {
    auto it = live_.find(u.id);
    if (it == live_.end())
      return; // the warm-up's
    Live &l = it->second;
    const double time = now();
    if (u.choice) {
      ++results_.outputTokens;
      (l.hasToken ? between_ : first_).push_back(time - (l.hasToken ? l.last : l.arrived));
      l.hasToken = true;
      l.last = time;
    }
    if (!u.ending)
      return;
    const bool failed = u.ending->reason == rt::Finish::Failed;
    ++(failed ? results_.failed : results_.completed);
    if (failed)
      problem("a request failed", u.ending->status.message());
    else
      whole_.push_back(time - l.arrived);
    live_.erase(it);
  }

  llvm::Error run() {
    const double begin = requests_.front().at * 1e3; // a trace may be cut out of a longer one
    start_ -= std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double, std::milli>(begin));
    rt::EngineStats last = engine_->stats();
    for (size_t next = 0; next < requests_.size() || !engine_->idle();) {
      for (; next < requests_.size() && requests_[next].at * 1e3 <= now(); ++next)
        submit(next);
      if (engine_->idle()) {
        if (next < requests_.size())
          sleepUntilNear(requests_[next].at * 1e3);
        continue;
      }
      if (rt::Status s = engine_->step(); !s.ok())
        return toError(s);
      sample(last);
    }
    results_.seconds = (now() - begin) / 1e3;
    return llvm::Error::success();
  }

  /// Who sleeps wakes up late, which is not the engine's time: the last millisecond is spent awake.
  void sleepUntilNear(double time) const {
    if (const double left = time - now() - 1; left > 0)
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(left));
  }

  void sample(rt::EngineStats &last) {
    const rt::EngineStats s = engine_->stats();
    if (s.calls > last.calls) {
      queue_.push_back(s.waiting);
      running_.push_back(double(s.segments - last.segments));
      rows_.push_back(double(s.rows - last.rows));
      pages_.push_back(s.pagesUsed);
    }
    last = s;
  }

  void finish(const rt::EngineStats &before) {
    rt::EngineStats s = engine_->stats();
    s.calls -= before.calls;
    s.rows -= before.rows;
    s.segments -= before.segments;
    s.promptRows -= before.promptRows;
    s.wastedRows -= before.wastedRows;
    s.newTokens -= before.newTokens;
    s.prefixQueries -= before.prefixQueries;
    s.prefixHits -= before.prefixHits;
    s.busySeconds -= before.busySeconds;
    results_.engine = s;
    results_.firstToken = spreadOf(first_);
    results_.betweenTokens = spreadOf(between_);
    results_.whole = spreadOf(whole_);
    results_.queue = spreadOf(queue_);
    results_.running = spreadOf(running_);
    results_.rows = spreadOf(rows_);
    results_.pages = spreadOf(pages_);
  }

  std::vector<WorkloadRequest> requests_;
  rt::SamplingParams sampling_;
  WorkloadResults &results_;
  std::unique_ptr<rt::Engine> engine_;
  Clock::time_point start_;
  std::map<rt::RequestId, Live> live_;
  std::vector<double> first_, between_, whole_, queue_, running_, rows_, pages_;
};

} // namespace

llvm::Expected<WorkloadResults> playWorkload(rt::Session &session,
                                             std::vector<WorkloadRequest> requests, int rowBudget,
                                             const rt::SamplingParams &sampling) {
  WorkloadResults results;
  results.precision = session.plan().meta().precision;
  results.device = session.backend().name();
  results.requests = requests.size();
  if (llvm::Error e = Player(std::move(requests), sampling, results).play(session, rowBudget))
    return e;
  return results;
}

} // namespace gpt2c
