#include "server/Metrics.h"

#include <algorithm>
#include <charconv>

namespace gpt2c::serve {

namespace {

std::string numberText(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// A label's value between quotes.
std::string labelOf(const std::string &value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\')
      out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

/// The page as it grows: families of one label set.
class Page {
public:
  explicit Page(const std::string &model)
      : labels_("model_name=" + labelOf(model) + ",engine=\"0\"") {}

  void begin(const char *name, const char *type, const char *help) {
    const std::string full = "gpt2c:" + std::string(name);
    text_ += "# HELP " + full + " " + help + "\n# TYPE " + full + " " + type + "\n";
  }
  void line(const char *name, double value, const std::string &more = {}) {
    text_ += "gpt2c:" + std::string(name) + "{" + labels_ + (more.empty() ? "" : "," + more) +
             "} " + numberText(value) + "\n";
  }
  void gauge(const char *name, const char *help, double value) {
    begin(name, "gauge", help);
    line(name, value);
  }
  void counter(const char *name, const char *help, double value) {
    begin(name, "counter", help);
    line(name, value);
  }
  void histogram(const char *name, const char *help, const Histogram &values) {
    begin(name, "histogram", help);
    values.write(text_, "gpt2c:" + std::string(name), labels_);
  }
  std::string take() { return std::move(text_); }

private:
  std::string labels_, text_;
};

constexpr double kSeconds[] = {50e-6,  100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 750e-6, 0.001,
                               0.0015, 0.002,  0.003,  0.005,  0.0075, 0.01,   0.02,   0.03,
                               0.05,   0.075,  0.1,    0.2,    0.3,    0.5,    0.75,   1,
                               2,      5,      10,     20,     40,     80,     160};
constexpr double kTokens[] = {1,   2,    5,    10,   20,    50,    100,   200,
                              500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

} // namespace

std::span<const double> secondsBounds() { return kSeconds; }
std::span<const double> tokensBounds() { return kTokens; }

void Histogram::observe(double value) {
  const auto at = size_t(std::ranges::lower_bound(bounds_, value) - bounds_.begin());
  counts_[at].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

uint64_t Histogram::count() const {
  uint64_t all = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i)
    all += counts_[i].load(std::memory_order_relaxed);
  return all;
}

void Histogram::write(std::string &to, const std::string &name, const std::string &labels) const {
  const auto line = [&](const char *suffix, const std::string &more, const std::string &value) {
    to.append(name).append(suffix).append("{").append(labels).append(more).append("} ");
    to.append(value).append("\n");
  };
  uint64_t all = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    all += counts_[i].load(std::memory_order_relaxed);
    const std::string bound = i < bounds_.size() ? numberText(bounds_[i]) : "+Inf";
    line("_bucket", ",le=\"" + bound + "\"", std::to_string(all));
  }
  line("_sum", "", numberText(sum_.load(std::memory_order_relaxed)));
  line("_count", "", std::to_string(all));
}

void Metrics::answered(const std::string &path, int status) {
  std::lock_guard lock(mutex_);
  ++answers_[{path, status}];
}

static void writeEngine(Page &page, const rt::EngineStats &s) {
  page.gauge("num_requests_running", "Sequences that the engine runs.", s.running);
  page.gauge("num_requests_waiting", "Requests that wait for pages or a place.", s.waiting);
  page.gauge("kv_cache_usage_perc",
             "Part of the KV cache's pages that is in use or promised, 0 to 1.",
             s.pages ? double(s.pagesUsed + s.pagesReserved) / s.pages : 0);
  page.gauge("kv_cache_pages", "Pages of the KV cache.", s.pages);
  page.gauge("kv_cache_pages_used", "Pages that running sequences hold.", s.pagesUsed);
  page.gauge("kv_cache_pages_reserved", "Pages promised to running sequences.", s.pagesReserved);
  page.counter("num_preemptions_total",
               "Turns that ended for others, where there are pages in host memory.",
               double(s.turnsEnded));
  page.gauge("num_requests_resting", "Of those running: without a turn on the device.", s.resting);
  page.gauge("kv_cache_host_pages", "Of the KV cache's pages, those in host memory.", s.hostPages);
  page.gauge("kv_cache_host_pages_used", "Of these, those that hold something.", s.hostPagesUsed);
  page.counter("kv_cache_pages_out_total", "Pages copied to host memory.", double(s.pagesOut));
  page.counter("kv_cache_pages_in_total", "Pages copied back.", double(s.pagesIn));
  page.counter("kv_cache_pages_read_total", "Pages that calls read in host memory, where they lie.",
               double(s.pagesRead));
  page.counter("kv_cache_out_seconds_total", "Time of copies to host memory.", s.outSeconds);
  page.counter("kv_cache_in_seconds_total", "Time of copies back.", s.inSeconds);
  page.counter("kv_cache_recomputed_tokens_total",
               "Tokens whose keys and values came back by computing them again.",
               double(s.recomputedTokens));
  page.counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
               double(s.prefixQueries));
  page.counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
               double(s.prefixHits));
  page.counter("engine_calls_total", "Calls of the device.", double(s.calls));
  page.counter("engine_rows_total", "Rows of these calls.", double(s.rows));
  page.counter("engine_wasted_rows_total", "Rows computed for sequences that had ended.",
               double(s.wastedRows));
  page.counter("engine_busy_seconds_total", "Time in which the device had a call.", s.busySeconds);
  page.counter("engine_forced_tokens_total",
               "Tokens that a grammar left no choice of, without a step of their own.",
               double(s.forcedTokens));
  page.counter("device_allocations_total", "Allocations of the device's memory.",
               double(s.deviceAllocations));
}

std::string Metrics::page(const std::string &model, const rt::EngineStats *stats) const {
  Page page(model);
  if (stats)
    writeEngine(page, *stats);
  page.counter("prompt_tokens_total", "Prompt tokens of answers that ended.",
               double(promptTokensTotal));
  page.counter("generation_tokens_total", "Tokens generated.", double(newTokensTotal));
  page.begin("request_success_total", "counter", "Answers that ended, by why.");
  static constexpr const char *kReasons[rt::finishes] = {"length", "stop", "length", "abort",
                                                         "error"};
  for (const char *reason : {"length", "stop", "abort", "error"}) {
    int64_t all = 0;
    for (size_t i = 0; i < ended.size(); ++i)
      all += std::string_view(kReasons[i]) == reason ? ended[i].load() : 0;
    page.line("request_success_total", double(all),
              "finished_reason=\"" + std::string(reason) + "\"");
  }
  page.histogram("time_to_first_token_seconds", "From the request to its first token.", firstToken);
  page.histogram("inter_token_latency_seconds", "Between two tokens of an answer.", betweenTokens);
  page.histogram("request_time_per_output_token_seconds",
                 "Of each answer: time behind its first token, for each token.", perOutputToken);
  page.histogram("e2e_request_latency_seconds", "From the request to its last token.", whole);
  page.histogram("request_queue_time_seconds", "Until its pages were promised to it.", queue);
  page.histogram("request_prefill_time_seconds", "From there to the first token.", prefill);
  page.histogram("request_decode_time_seconds", "From the first token to the last.", decode);
  page.histogram("request_prompt_tokens", "Tokens of a prompt.", promptTokens);
  page.histogram("request_generation_tokens", "Tokens of an answer.", newTokens);
  page.counter("spans_sent_total", "Spans that the collector has taken.", double(spansSent));
  page.counter("spans_dropped_total", "Spans that it has not, or that were too many.",
               double(spansDropped));
  page.gauge("http_connections", "Open connections.", double(connections));
  page.begin("http_requests_total", "counter", "Answers of HTTP, by route and status.");
  std::lock_guard lock(mutex_);
  for (const auto &[key, count] : answers_)
    page.line("http_requests_total", double(count),
              "path=" + labelOf(key.first) + ",status=\"" + std::to_string(key.second) + "\"");
  return page.take();
}

} // namespace gpt2c::serve
