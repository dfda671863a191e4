#include "tools/runtime-common/Quality.h"

#include "tools/runtime-common/Table.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <thread>

namespace gpt2c {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Tokens begin to begin + count - 1; the rows of logits behind the window's tokens from `first`
/// on score the tokens after them.
struct Window {
  int64_t begin, count, first;
};

std::vector<Window> windowsOf(int64_t tokens, int64_t window, int64_t stride) {
  std::vector<Window> out;
  int64_t next = 1; // the first token that is not scored and has one in front of it
  for (int64_t begin = 0; next < tokens; begin += stride) {
    int64_t end = std::min(begin + window, tokens);
    int64_t first = std::max(next, begin + 1);
    if (first < end)
      out.push_back({begin, end - begin, first - 1 - begin});
    next = std::max(next, end);
  }
  return out;
}

/// What stays of one row of logits.
struct RowStats {
  double logSum = 0; // log(sum_i exp(z_i))
  double nll = 0;
  int64_t argMax = 0; // the lowest index of the largest logit
  bool finite = true;
  double kl = 0, largestError = 0; // against the baseline
};

/// `weights` receives exp(z_i - max z), where it is as long as z.
RowStats statsOf(std::span<const float> z, int64_t target, std::span<double> weights) {
  bool finite = true;
  float largest = -std::numeric_limits<float>::infinity();
  for (float v : z) {
    finite &= std::fabs(v) <= std::numeric_limits<float>::max();
    largest = std::max(largest, v);
  }
  if (!finite)
    return {.logSum = infinity, .nll = infinity, .argMax = -1, .finite = false};
  double sum = 0;
  if (weights.empty())
    for (float v : z)
      sum += std::exp(double(v) - largest);
  else
    for (size_t i = 0; i < z.size(); ++i)
      sum += weights[i] = std::exp(double(z[i]) - largest);
  double logSum = largest + std::log(sum);
  return {.logSum = logSum,
          .nll = logSum - z[target],
          .argMax = std::ranges::find(z, largest) - z.begin()};
}

/// Fills in what compares `z` with the baseline's row `b`, of which `weights` are proportional to
/// the probabilities p.
void compareRows(std::span<const float> b, const RowStats &base, std::span<const double> weights,
                 std::span<const float> z, RowStats &row) {
  row.kl = row.largestError = infinity;
  if (!base.finite || !row.finite)
    return;
  // sum_i p_i (b_i - z_i) - (logSum_b - logSum_z), where p sums to one.
  double sum = 0, total = 0;
  float largest = 0;
  for (size_t i = 0; i < z.size(); ++i) {
    float difference = b[i] - z[i];
    largest = std::max(largest, std::fabs(difference));
    sum += weights[i] * (double(b[i]) - z[i]);
    total += weights[i];
  }
  row.kl = std::max(0.0, sum / total - (base.logSum - row.logSum));
  row.largestError = largest;
}

/// Calls f(i) for 0 <= i < n on several threads.
template <typename F> void parallelFor(int64_t n, int threads, F f) {
  auto part = [&](int t) {
    for (int64_t i = n * t / threads, end = n * (t + 1) / threads; i < end; ++i)
      f(i);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t)
    others.emplace_back(part, t);
  part(0);
  for (std::thread &t : others)
    t.join();
}

/// Sums of one model over the rows in their order, so that no thread count changes them.
struct Totals {
  QualityReport report;
  double nll = 0, difference = 0, differenceSquared = 0, kl = 0;
  double largestError = 0;
  int64_t agreements = 0;
  std::vector<double> kls;

  void add(const RowStats &row) {
    ++report.tokens;
    report.notFinite += !row.finite;
    nll += row.nll;
  }

  void compare(const RowStats &base, const RowStats &row) {
    double d = row.nll - base.nll;
    difference += d;
    differenceSquared += d * d;
    kl += row.kl;
    kls.push_back(row.kl);
    largestError = std::max(largestError, row.largestError);
    agreements += row.finite && row.argMax == base.argMax;
  }

  QualityReport finish() {
    double n = double(report.tokens);
    report.nll = nll / n;
    report.perplexity = std::exp(report.nll);
    if (!kls.empty()) {
      std::ranges::sort(kls);
      double mean = difference / n;
      double variance = std::max(0.0, differenceSquared / n - mean * mean);
      double ratio = std::exp(mean);
      size_t rank = static_cast<size_t>(std::ceil(0.99 * n));
      report.baseline = {.increase = ratio - 1,
                         .increaseError = ratio * std::sqrt(variance / n),
                         .klMean = kl / n,
                         .klP99 = kls[rank - 1],
                         .agreement = double(agreements) / n,
                         .largestError = largestError};
    }
    return report;
  }
};

class Evaluator {
public:
  Evaluator(std::span<const LogitsFunction> models, bool compare, std::span<const int32_t> tokens,
            const EvalOptions &options)
      : models_(models), compare_(compare), tokens_(tokens), options_(options),
        totals_(models.size()) {
    threads_ = options.threads > 0 ? options.threads
                                   : std::max(1, int(std::thread::hardware_concurrency()));
  }

  rt::Status run(std::span<const Window> windows) {
    for (size_t done = 0; done < windows.size();) {
      // Windows of one length make a call.
      size_t end = done + 1;
      while (end < windows.size() && int64_t(end - done) < options_.batch &&
             windows[end].count == windows[done].count)
        ++end;
      if (rt::Status s = runBatch(windows.subspan(done, end - done)); !s.ok())
        return s;
      done = end;
      if (options_.progress)
        options_.progress(done, windows.size(),
                          std::exp(totals_[0].nll / double(totals_[0].report.tokens)));
    }
    return {};
  }

  std::vector<QualityReport> finish() {
    std::vector<QualityReport> out;
    for (Totals &t : totals_)
      out.push_back(t.finish());
    return out;
  }

private:
  /// Those of all models.
  rt::Result<std::vector<rt::HostTensor>> logits(std::span<const Window> windows) {
    std::vector<rt::Tokens> sequences;
    for (const Window &w : windows) {
      std::span<const int32_t> ids = tokens_.subspan(w.begin, w.count);
      sequences.emplace_back(ids.begin(), ids.end());
    }
    std::vector<rt::HostTensor> all(models_.size());
    std::vector<rt::Status> errors(models_.size());
    const int threads = options_.sideBySide ? int(models_.size()) : 1;
    parallelFor(int64_t(models_.size()), threads, [&](int64_t m) {
      rt::Result<rt::HostTensor> out = models_[m](sequences);
      errors[m] = out.status();
      if (out)
        all[m] = out.take();
    });
    for (const rt::Status &error : errors)
      if (!error.ok())
        return error;
    for (const rt::HostTensor &z : all) {
      assert(z.dtype == plan::DType::F32 && z.shape.size() == 3);
      if (vocab_ == 0)
        vocab_ = z.shape[2];
      if (z.shape[2] != vocab_)
        return {rt::Code::Usage, "one model has logits of " + std::to_string(vocab_) +
                                     " tokens, another of " + std::to_string(z.shape[2]) +
                                     ": they cannot be compared"};
    }
    return all;
  }

  rt::Status runBatch(std::span<const Window> windows) {
    struct Place {
      int64_t row;
      int32_t target;
    };
    std::vector<Place> places;
    for (size_t i = 0; i < windows.size(); ++i)
      for (int64_t r = windows[i].first; r < windows[i].count - 1; ++r)
        places.push_back({int64_t(i) * windows[i].count + r, tokens_[windows[i].begin + r + 1]});

    auto fetched = logits(windows);
    if (!fetched)
      return fetched.status();
    const std::vector<rt::HostTensor> &all = *fetched;
    for (const Place &p : places)
      if (p.target < 0 || p.target >= vocab_)
        return {rt::Code::Usage, "the text has the token " + std::to_string(p.target) +
                                     ", the logits go to " + std::to_string(vocab_ - 1)};
    const bool compares = compare_ && models_.size() > 1;
    std::vector<RowStats> rows(places.size() * models_.size());
    parallelFor(int64_t(places.size()), threads_, [&](int64_t i) {
      thread_local std::vector<double> weights; // of the baseline
      weights.resize(compares ? vocab_ : 0);
      RowStats *row = &rows[i * models_.size()];
      auto z = [&](size_t m) {
        return all[m].values<float>().subspan(size_t(places[i].row * vocab_), size_t(vocab_));
      };
      row[0] = statsOf(z(0), places[i].target, weights);
      for (size_t m = 1; m < models_.size(); ++m) {
        row[m] = statsOf(z(m), places[i].target, {});
        if (compares)
          compareRows(z(0), row[0], weights, z(m), row[m]);
      }
    });
    for (size_t i = 0; i < places.size(); ++i)
      for (size_t m = 0; m < models_.size(); ++m) {
        const RowStats *row = &rows[i * models_.size()];
        totals_[m].add(row[m]);
        if (compares && m > 0)
          totals_[m].compare(row[0], row[m]);
      }
    return {};
  }

  std::span<const LogitsFunction> models_;
  bool compare_;
  std::span<const int32_t> tokens_;
  const EvalOptions &options_;
  std::vector<Totals> totals_;
  int threads_;
  int64_t vocab_ = 0;
};

} // namespace

LogitsFunction logitsOf(rt::Session &session) {
  return [&session](std::span<const rt::Tokens> sequences) { return session.logits(sequences); };
}

rt::Result<std::vector<QualityReport>> evaluate(std::span<const LogitsFunction> models,
                                                bool compare, std::span<const int32_t> tokens,
                                                const EvalOptions &options) {
  assert(!models.empty() && options.batch > 0);
  int64_t stride = options.stride ? options.stride : options.window;
  if (options.window < 2 || stride < 1 || stride > options.window)
    return {rt::Code::Usage, "a window of " + std::to_string(options.window) +
                                 " tokens and a stride of " + std::to_string(stride) +
                                 " do not fit: a window has at least 2 tokens, and the stride is 1 "
                                 "to the window"};
  if (options.maxTokens > 0 && size_t(options.maxTokens) < tokens.size())
    tokens = tokens.first(size_t(options.maxTokens));
  if (tokens.size() < 2)
    return {rt::Code::Usage, "the text has " + std::to_string(tokens.size()) +
                                 " tokens; a perplexity takes at least 2"};
  Evaluator evaluator(models, compare, tokens, options);
  if (rt::Status s = evaluator.run(windowsOf(int64_t(tokens.size()), options.window, stride));
      !s.ok())
    return s;
  return evaluator.finish();
}

int64_t evalBatch(int64_t window, int64_t vocab, int64_t maxBatch) {
  int64_t most = (int64_t(16) << 20) / std::max<int64_t>(1, window * vocab * 4);
  return std::clamp<int64_t>(most, 1, std::max<int64_t>(1, maxBatch));
}

rt::Result<double> parseShare(const std::string &flag, const std::string &text) {
  std::string number = text;
  const bool percent = number.ends_with('%');
  if (percent)
    number.pop_back();
  number.erase(0, number.find_first_not_of(' '));
  number.erase(number.find_last_not_of(' ') + 1);
  double value = 0;
  const char *end = number.data() + number.size();
  const std::from_chars_result read = std::from_chars(number.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || !(value >= 0))
    return {rt::Code::Usage, flag + "=" + text + " is no share: write 1% or 0.01"};
  return percent ? value / 100 : value;
}

static std::string fourDigits(double v) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.4g", v);
  return text;
}

std::vector<std::string> limitsExceeded(const QualityReport &report, const QualityLimits &limits) {
  std::vector<std::string> out;
  if (report.notFinite)
    out.push_back(std::to_string(report.notFinite) + " of " + std::to_string(report.tokens) +
                  " rows of logits hold a NaN or an infinity");
  if (!report.baseline)
    return out;
  // A NaN is never within a limit.
  const QualityReport::Comparison &c = *report.baseline;
  if (limits.maxIncrease && !(c.increase <= *limits.maxIncrease))
    out.push_back("the perplexity is " + fixed(report.perplexity, 4) + ", " +
                  fixed(c.increase * 100, 3) + " % above the baseline's; the limit is " +
                  fixed(*limits.maxIncrease * 100, 3) + " %");
  if (limits.maxKl && !(c.klMean <= *limits.maxKl))
    out.push_back("the mean KL divergence from the baseline is " + fourDigits(c.klMean) +
                  "; the limit is " + fourDigits(*limits.maxKl));
  return out;
}

Json toJson(const QualityReport &report) {
  Json out{{"tokens", report.tokens},
           {"nll", report.nll},
           {"perplexity", report.perplexity},
           {"not_finite", report.notFinite}};
  if (report.baseline) {
    const QualityReport::Comparison &c = *report.baseline;
    out["perplexity_increase"] = c.increase;
    out["perplexity_increase_error"] = c.increaseError;
    out["kl_mean"] = c.klMean;
    out["kl_p99"] = c.klP99;
    out["top1_agreement"] = c.agreement;
    out["largest_logit_error"] = c.largestError;
  }
  return out;
}

} // namespace gpt2c
