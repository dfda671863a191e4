#include "tools/common/Quality.h"

#include "ir/Error.h"
#include "tools/common/RuntimeError.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
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
RowStats statsOf(llvm::ArrayRef<float> z, int64_t target, llvm::MutableArrayRef<double> weights) {
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
  return {
      .logSum = logSum, .nll = logSum - z[target], .argMax = llvm::find(z, largest) - z.begin()};
}

/// Fills in what compares `z` with the baseline's row `b`, of which `weights` are proportional to
/// the probabilities p.
void compareRows(llvm::ArrayRef<float> b, const RowStats &base, llvm::ArrayRef<double> weights,
                 llvm::ArrayRef<float> z, RowStats &row) {
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
      llvm::sort(kls);
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
  Evaluator(llvm::ArrayRef<LogitsFunction> models, bool compare, llvm::ArrayRef<int32_t> tokens,
            const EvalOptions &options)
      : models_(models), compare_(compare), tokens_(tokens), options_(options),
        totals_(models.size()) {
    threads_ = options.threads > 0 ? options.threads
                                   : std::max(1, int(std::thread::hardware_concurrency()));
  }

  llvm::Error run(llvm::ArrayRef<Window> windows) {
    for (size_t done = 0; done < windows.size();) {
      // Windows of one length make a call.
      size_t end = done + 1;
      while (end < windows.size() && int64_t(end - done) < options_.batch &&
             windows[end].count == windows[done].count)
        ++end;
      if (llvm::Error e = runBatch(windows.slice(done, end - done)))
        return e;
      done = end;
      if (options_.progress)
        options_.progress(done, windows.size(),
                          std::exp(totals_[0].nll / double(totals_[0].report.tokens)));
    }
    return llvm::Error::success();
  }

  std::vector<QualityReport> finish() {
    std::vector<QualityReport> out;
    for (Totals &t : totals_)
      out.push_back(t.finish());
    return out;
  }

private:
  /// Those of all models.
  llvm::Expected<std::vector<rt::HostTensor>> logits(llvm::ArrayRef<Window> windows) {
    std::vector<rt::Tokens> sequences;
    for (const Window &w : windows) {
      llvm::ArrayRef<int32_t> ids = tokens_.slice(w.begin, w.count);
      sequences.emplace_back(ids.begin(), ids.end());
    }
    std::vector<rt::HostTensor> all(models_.size());
    std::vector<llvm::Error> errors;
    for (size_t m = 0; m < models_.size(); ++m)
      errors.push_back(llvm::Error::success());
    const int threads = options_.sideBySide ? int(models_.size()) : 1;
    parallelFor(int64_t(models_.size()), threads, [&](int64_t m) {
      if (auto out = models_[m](sequences))
        all[m] = std::move(*out);
      else
        errors[m] = llvm::joinErrors(std::move(errors[m]), out.takeError());
    });
    llvm::Error error = llvm::Error::success();
    for (llvm::Error &e : errors)
      error = llvm::joinErrors(std::move(error), std::move(e));
    if (error)
      return error;
    for (const rt::HostTensor &z : all) {
      assert(z.dtype == plan::DType::F32 && z.shape.size() == 3);
      if (vocab_ == 0)
        vocab_ = z.shape[2];
      if (z.shape[2] != vocab_)
        return makeError(ExitCode::Usage, "one model has logits of " + llvm::Twine(vocab_) +
                                              " tokens, another of " + llvm::Twine(z.shape[2]) +
                                              ": they cannot be compared");
    }
    return all;
  }

  llvm::Error runBatch(llvm::ArrayRef<Window> windows) {
    struct Place {
      int64_t row;
      int32_t target;
    };
    std::vector<Place> places;
    for (auto [i, w] : llvm::enumerate(windows))
      for (int64_t r = w.first; r < w.count - 1; ++r)
        places.push_back({int64_t(i) * w.count + r, tokens_[w.begin + r + 1]});

    auto fetched = logits(windows);
    if (!fetched)
      return fetched.takeError();
    const std::vector<rt::HostTensor> &all = *fetched;
    for (const Place &p : places)
      if (p.target < 0 || p.target >= vocab_)
        return makeError(ExitCode::Usage, "the text has the token " + llvm::Twine(p.target) +
                                              ", the logits go to " + llvm::Twine(vocab_ - 1));
    const bool compares = compare_ && models_.size() > 1;
    std::vector<RowStats> rows(places.size() * models_.size());
    parallelFor(int64_t(places.size()), threads_, [&](int64_t i) {
      thread_local std::vector<double> weights; // of the baseline
      weights.resize(compares ? vocab_ : 0);
      RowStats *row = &rows[i * models_.size()];
      auto z = [&](size_t m) {
        return llvm::ArrayRef(all[m].values<float>().data() + places[i].row * vocab_, vocab_);
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
    return llvm::Error::success();
  }

  llvm::ArrayRef<LogitsFunction> models_;
  bool compare_;
  llvm::ArrayRef<int32_t> tokens_;
  const EvalOptions &options_;
  std::vector<Totals> totals_;
  int threads_;
  int64_t vocab_ = 0;
};

} // namespace

LogitsFunction logitsOf(rt::Session &session) {
  return [&session](std::span<const rt::Tokens> sequences) -> llvm::Expected<rt::HostTensor> {
    rt::Result<rt::HostTensor> out = session.logits(sequences);
    if (!out)
      return toError(out.status());
    return out.take();
  };
}

llvm::Expected<std::vector<QualityReport>> evaluate(llvm::ArrayRef<LogitsFunction> models,
                                                    bool compare, llvm::ArrayRef<int32_t> tokens,
                                                    const EvalOptions &options) {
  assert(!models.empty() && options.batch > 0);
  int64_t stride = options.stride ? options.stride : options.window;
  if (options.window < 2 || stride < 1 || stride > options.window)
    return makeError(ExitCode::Usage, "a window of " + llvm::Twine(options.window) +
                                          " tokens and a stride of " + llvm::Twine(stride) +
                                          " do not fit: a window has at least 2 tokens, and the "
                                          "stride is 1 to the window");
  if (options.maxTokens > 0 && size_t(options.maxTokens) < tokens.size())
    tokens = tokens.take_front(options.maxTokens);
  if (tokens.size() < 2)
    return makeError(ExitCode::Usage, "the text has " + llvm::Twine(tokens.size()) +
                                          " tokens; a perplexity takes at least 2");
  Evaluator evaluator(models, compare, tokens, options);
  if (llvm::Error e = evaluator.run(windowsOf(int64_t(tokens.size()), options.window, stride)))
    return e;
  return evaluator.finish();
}

int64_t evalBatch(int64_t window, int64_t vocab, int64_t maxBatch) {
  int64_t most = (int64_t(16) << 20) / std::max<int64_t>(1, window * vocab * 4);
  return std::clamp<int64_t>(most, 1, std::max<int64_t>(1, maxBatch));
}

llvm::Expected<double> parseShare(llvm::StringRef flag, llvm::StringRef text) {
  llvm::StringRef number = text;
  bool percent = number.consume_back("%");
  double value;
  if (number.trim().getAsDouble(value) || !(value >= 0))
    return makeError(ExitCode::Usage, flag + "=" + text + " is no share: write 1% or 0.01");
  return percent ? value / 100 : value;
}

static std::string number(double v) {
  std::string out;
  llvm::raw_string_ostream(out) << llvm::format("%.4g", v);
  return out;
}

llvm::Error checkLimits(const QualityReport &report, const QualityLimits &limits) {
  llvm::Error out = llvm::Error::success();
  auto fail = [&](const std::string &message) {
    out = llvm::joinErrors(std::move(out), makeError(ExitCode::Quality, message));
  };
  if (report.notFinite)
    fail(llvm::formatv("{0} of {1} rows of logits hold a NaN or an infinity", report.notFinite,
                       report.tokens));
  if (!report.baseline)
    return out;
  // A NaN is never within a limit.
  const QualityReport::Comparison &c = *report.baseline;
  if (limits.maxIncrease && !(c.increase <= *limits.maxIncrease))
    fail(llvm::formatv("the perplexity is {0:f4}, {1:f3} % above the baseline's; the limit is "
                       "{2:f3} %",
                       report.perplexity, c.increase * 100, *limits.maxIncrease * 100));
  if (limits.maxKl && !(c.klMean <= *limits.maxKl))
    fail("the mean KL divergence from the baseline is " + number(c.klMean) + "; the limit is " +
         number(*limits.maxKl));
  return out;
}

llvm::json::Object toJson(const QualityReport &report) {
  auto number = [](double v) {
    return std::isfinite(v) ? llvm::json::Value(v) : llvm::json::Value(nullptr);
  };
  llvm::json::Object out{{"tokens", report.tokens},
                         {"nll", number(report.nll)},
                         {"perplexity", number(report.perplexity)},
                         {"not_finite", report.notFinite}};
  if (report.baseline) {
    const QualityReport::Comparison &c = *report.baseline;
    out["perplexity_increase"] = number(c.increase);
    out["perplexity_increase_error"] = number(c.increaseError);
    out["kl_mean"] = number(c.klMean);
    out["kl_p99"] = number(c.klP99);
    out["top1_agreement"] = number(c.agreement);
    out["largest_logit_error"] = number(c.largestError);
  }
  return out;
}

} // namespace gpt2c
