#include "tools/gpt2c-bench/Workload.h"

#include "tools/runtime-common/Files.h"
#include "tools/runtime-common/Json.h"
#include "tools/runtime-common/Report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <sstream>
#include <thread>

#include <xxhash.h>

namespace gpt2c {

//===-- the file ----------------------------------------------------------------------------===//

/// A whole number from `least` to `most`; none where it is something else.
static std::optional<int64_t> wholeNumber(const Json &value, int64_t least,
                                          int64_t most = INT64_MAX) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
    return std::nullopt;
  const auto number = value.get<int64_t>();
  return number < least || number > most ? std::nullopt : std::optional(number);
}

static int32_t drawToken(std::mt19937_64 &random, int32_t vocabulary) {
  return int32_t(random() % uint64_t(std::max(1, vocabulary)));
}

/// What prompts begin with: the same tokens in all of them, as far as they go.
static rt::Status readPrefix(const Json &value, int32_t vocabulary, rt::Tokens &prompt) {
  const std::optional<int64_t> count = wholeNumber(value, 0, INT32_MAX);
  if (!count)
    return {rt::Code::Usage, "\"prefix\" is a number of tokens"};
  std::mt19937_64 random(2);
  for (int64_t i = 0; i < *count; ++i)
    prompt.push_back(drawToken(random, vocabulary));
  return {};
}

static rt::Status readPrompt(const Json &value, int32_t vocabulary, std::mt19937_64 &random,
                             rt::Tokens &prompt) {
  rt::Status wrong(rt::Code::Usage, "\"prompt\" is a list of token ids or their number");
  if (std::optional<int64_t> count = wholeNumber(value, 1, INT32_MAX)) {
    for (int64_t i = 0; i < *count; ++i)
      prompt.push_back(drawToken(random, vocabulary));
    return {};
  }
  if (!value.is_array())
    return wrong;
  for (const Json &id : value) {
    std::optional<int64_t> number = wholeNumber(id, 0, INT32_MAX);
    if (!number)
      return wrong;
    prompt.push_back(int32_t(*number));
  }
  return {};
}

static rt::Result<WorkloadRequest> parseLine(const std::string &line, int32_t vocabulary,
                                             std::mt19937_64 &random) {
  std::string why;
  const Json value = parseJson(line, why);
  if (value.is_discarded())
    return {rt::Code::Usage, "no JSON: " + why};
  if (!value.is_object())
    return {rt::Code::Usage, "a request is a JSON object"};
  WorkloadRequest request;
  if (auto at = value.find("at"); at != value.end()) {
    if (!at->is_number() || !(at->get<double>() >= 0))
      return {rt::Code::Usage, "\"at\" is a number of seconds of at least 0"};
    request.at = at->get<double>();
  }
  const std::optional<int64_t> most = wholeNumber(value.value("max_tokens", Json()), 1);
  if (!most)
    return {rt::Code::Usage, "\"max_tokens\" is a number of at least 1"};
  request.maxTokens = *most;
  if (auto prefix = value.find("prefix"); prefix != value.end())
    if (rt::Status s = readPrefix(*prefix, vocabulary, request.prompt); !s.ok())
      return s;
  auto prompt = value.find("prompt");
  if (prompt == value.end())
    return {rt::Code::Usage, "\"prompt\" is missing"};
  if (rt::Status s = readPrompt(*prompt, vocabulary, random, request.prompt); !s.ok())
    return s;
  request.more = value;
  for (const char *own : {"at", "max_tokens", "prefix", "prompt"})
    request.more.erase(own);
  return request;
}

rt::Result<std::vector<WorkloadRequest>> readWorkload(const std::string &path, int32_t vocabulary) {
  rt::Result<std::string> text = readInput(path);
  if (!text)
    return text.status();
  std::vector<WorkloadRequest> requests;
  std::mt19937_64 random(1); // lengths become the same tokens in every run
  std::istringstream lines(*text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos)
      continue;
    rt::Result<WorkloadRequest> request = parseLine(line, vocabulary, random);
    if (!request)
      return inContext(path + ":" + std::to_string(number), request.status());
    requests.push_back(request.take());
  }
  if (requests.empty())
    return {rt::Code::Usage, "'" + path + "' has no requests"};
  std::ranges::stable_sort(requests, {}, &WorkloadRequest::at);
  return requests;
}

void rearrive(std::vector<WorkloadRequest> &requests, double rate) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> gap(std::isfinite(rate) ? rate : 1);
  double at = 0;
  for (WorkloadRequest &r : requests)
    r.at = std::isfinite(rate) ? at += gap(random) : 0;
}

//===-- the play ----------------------------------------------------------------------------===//

namespace {

class Player {
public:
  Player(std::vector<WorkloadRequest> requests, const rt::SamplingParams &sampling,
         WorkloadResults &results)
      : requests_(std::move(requests)), sampling_(sampling), results_(results) {}

  rt::Status play(rt::Session &session, rt::EngineOptions options) {
    options.maxWaiting = int64_t(requests_.size()) + 1;
    options.onUpdate = [this](const rt::Update &u) { take(u); };
    auto made = rt::Engine::create(session, std::move(options));
    if (!made)
      return made.status();
    engine_ = made.take();
    results_.rowBudget = engine_->rowBudget();
    results_.pageTokens = engine_->limits().pageTokens;
    if (rt::Status s = warmUp(); !s.ok())
      return s;
    const rt::EngineStats before = engine_->stats();
    start_ = Clock::now();
    if (rt::Status s = run(); !s.ok())
      return s;
    finish(before);
    return {};
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
  rt::Status warmUp() {
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
        return s;
    return {};
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
    answers_[s.id];
  }

  void take(const rt::Update &u) {
    auto it = live_.find(u.id);
    if (it == live_.end())
      return; // the warm-up's
    Live &l = it->second;
    const double time = now();
    if (u.choice) {
      ++results_.outputTokens;
      answers_[u.id].push_back(u.choice->token);
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

  rt::Status run() {
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
        return s;
      sample(last);
    }
    results_.seconds = (now() - begin) / 1e3;
    return {};
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
    s.pagesOut -= before.pagesOut;
    s.pagesIn -= before.pagesIn;
    s.pagesRead -= before.pagesRead;
    s.outSeconds -= before.outSeconds;
    s.inSeconds -= before.inSeconds;
    for (const auto &[id, tokens] : answers_)
      results_.answers = XXH3_64bits_withSeed(tokens.data(), tokens.size() * sizeof(int32_t),
                                              results_.answers + tokens.size());
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
  std::map<rt::RequestId, rt::Tokens> answers_;
  std::vector<double> first_, between_, whole_, queue_, running_, rows_, pages_;
};

} // namespace

rt::Result<WorkloadResults> playWorkload(rt::Session &session,
                                         std::vector<WorkloadRequest> requests,
                                         rt::EngineOptions options,
                                         const rt::SamplingParams &sampling) {
  WorkloadResults results;
  results.precision = session.plan().meta().precision;
  results.device = session.backend().name();
  results.requests = requests.size();
  if (rt::Status s =
          Player(std::move(requests), sampling, results).play(session, std::move(options));
      !s.ok())
    return s;
  return results;
}

} // namespace gpt2c
