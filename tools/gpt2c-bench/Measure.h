// Measurements of one plan on one device.
#pragma once

#include "runtime/session/Session.h"
#include "tools/gpt2c-bench/Trace.h"

namespace gpt2c {

struct Quantiles {
  double median = 0, p90 = 0, p99 = 0;
};

/// Of at least one sample; p90 and p99 by the nearest rank.
Quantiles quantiles(std::vector<double> samples);

/// One row of the result. Times in milliseconds, for one prefill or one decode step of the whole
/// batch.
struct Row {
  const char *kind; // "prefill", "decode" or "forward"
  int batch = 0;
  int tokens = 0;      // prompt length, or tokens in the KV state before the first measured step
  int steps = 0;       // decode steps of one sample; else 1
  Quantiles wall = {}; // host clock around the blocking call
  /// Time between tokens of a caller that asks for one step after the other, waiting for each
  /// token; decode only.
  Quantiles between = {};
  double device = 0;           // median of the device's own clock; 0 where it has none
  double bytes = 0, flops = 0; // least work of one prefill or one step, see `leastWork`
};

struct MeasureOptions {
  std::vector<int> batches, prompts, depths;
  int decodeTokens = 64, repetitions = 10, warmup = 3;
  std::function<void(const std::string &)> progress;
  Trace *trace = nullptr; ///< gets a span for each sample
};

/// Prompts of `length` random tokens, equal for equal sizes.
std::vector<rt::Tokens> randomPrompts(const rt::Session &session, int batch, int length);

/// The fewest bytes and operations of `tokens` new tokens of each of `batch` sequences behind
/// `past` others: every weight read once, the KV state read and appended once, logits of the last
/// token only. A GPT-2 block does 24 width^2 operations for each token, its attention 4 width for
/// each pair of query and visible key.
void leastWork(const rt::Plan &plan, int batch, int tokens, int past, double &bytes, double &flops);

/// Random inputs of the exported graph of a plan without a KV state: the first axis of its first
/// input is `batch`, the last one `tokens`, where these have no fixed size; other sizes are the
/// least. Token ids are below the vocabulary's size, masks hide nothing.
rt::Result<std::vector<rt::HostTensor>> randomInputs(rt::Session &session, int batch, int tokens);

/// What a plan says of a step's bytes or operations; 0 where it says nothing.
double valueOf(const std::unique_ptr<plan::ExprT> &expr, const std::vector<int64_t> &symbols);

rt::Result<std::vector<Row>> measure(rt::Session &session, const MeasureOptions &options);

} // namespace gpt2c
