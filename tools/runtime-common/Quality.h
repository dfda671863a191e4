// How well models predict a text, and how far they are from a baseline.
//
// The text is one row of tokens x_0 .. x_{n-1}. It is cut into windows of `window` tokens, each
// `stride` behind the one before; a model sees one window at a time. The first window scores all
// its tokens but the first, the others those that no window before them has scored, and never their
// own first: with stride = window (no overlap) the window's first token has nothing to be predicted
// from. This is how perplexities of GPT-2 are usually given for PyTorch.
//
// With the row of logits z in front of token x, each a float32:
//   nll = log(sum_i exp(z_i)) - z_x            perplexity = exp(mean nll)
//   KL  = sum_i p_i (log p_i - log q_i)        p = softmax(baseline), q = softmax(model)
// in nats. Exponentials and all sums are float64.
#pragma once

#include "runtime/session/Session.h"

#include "tools/runtime-common/Json.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c {

/// The logits behind every token of `sequences` of one length, f32[batch, seq, vocab].
using LogitsFunction =
    std::function<rt::Result<rt::HostTensor>(std::span<const rt::Tokens> sequences)>;

/// Those of a plan. The session must outlive the function.
LogitsFunction logitsOf(rt::Session &session);

struct EvalOptions {
  int64_t window = 0;    ///< tokens a model sees at once, at least 2
  int64_t stride = 0;    ///< 1 to window; 0: window
  int64_t maxTokens = 0; ///< only the first so many tokens of the text; 0: all
  int64_t batch = 1;     ///< windows in one call of a model
  int threads = 0;       ///< of the statistics; 0: one for each core
  /// Models run at the same time, which pays on a GPU: while one computes, results of others are on
  /// their way.
  bool sideBySide = false;
  /// Called after each batch with the windows done and their number, and the first model's
  /// perplexity so far.
  std::function<void(int64_t done, int64_t windows, double perplexity)> progress = nullptr;
};

struct QualityReport {
  int64_t tokens = 0;    ///< scored
  double nll = 0;        ///< mean, in nats
  double perplexity = 0; ///< exp(nll); infinity where a row of logits is not finite
  int64_t notFinite = 0; ///< rows with a logit that is NaN or infinite; they count as scored

  /// Against the baseline, over the same rows.
  struct Comparison {
    double increase = 0;          ///< perplexity / baseline's perplexity - 1
    double increaseError = 0;     ///< standard error of `increase` over the tokens of the text
    double klMean = 0, klP99 = 0; ///< p99 by the nearest rank
    double agreement = 0;         ///< share of rows whose largest logit has the baseline's index
    double largestError = 0;      ///< largest |logit - baseline's logit|
  };
  std::optional<Comparison> baseline = std::nullopt;
};

/// Runs the models over the text, window by window; a report for each. With `compare` the first
/// model is the baseline of the others.
rt::Result<std::vector<QualityReport>> evaluate(std::span<const LogitsFunction> models,
                                                bool compare, std::span<const int32_t> tokens,
                                                const EvalOptions &options);

/// The windows of one call such that a call's logits stay near 16 MiB: a model keeps a few copies
/// of them, and the allocator gives larger ones back to the system after every call.
int64_t evalBatch(int64_t window, int64_t vocab, int64_t maxBatch);

/// What a model may lose against its baseline.
struct QualityLimits {
  std::optional<double> maxIncrease = std::nullopt; ///< of the perplexity, as a share: 0.01 for 1%
  std::optional<double> maxKl = std::nullopt;       ///< of the mean, in nats
};

/// "1%" or "0.01"; an error of usage that begins with `flag` where the text is neither.
rt::Result<double> parseShare(const std::string &flag, const std::string &text);

/// A sentence for every limit that `report` exceeds, and for rows that are not finite, which is
/// never within limits.
std::vector<std::string> limitsExceeded(const QualityReport &report, const QualityLimits &limits);

/// The report's numbers by name; those that are not finite are null.
Json toJson(const QualityReport &report);

} // namespace gpt2c
