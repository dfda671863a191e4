#include "tools/gpt2c-bench/Measure.h"

#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/sampling/Logits.h"
#include "tools/runtime-common/Report.h"

#include <chrono>
#include <cmath>
#include <random>

namespace gpt2c {

Quantiles quantiles(std::vector<double> samples) {
  std::ranges::sort(samples);
  auto rank = [&](double q) {
    size_t i = static_cast<size_t>(std::ceil(q * double(samples.size())));
    return samples[std::min(samples.size(), std::max<size_t>(i, 1)) - 1];
  };
  size_t n = samples.size();
  double median = n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
  return {median, rank(0.9), rank(0.99)};
}

void leastWork(const rt::Plan &plan, int batch, int tokens, int past, double &bytes,
               double &flops) {
  const plan::KvPlanT &kv = *plan.meta().kv;
  double width = double(kv.heads) * kv.head_dim, rows = double(batch) * tokens;
  double before = double(kv.layers) - 1; // of the last layer only keys and values are of all tokens
  double weights = 0;
  for (const auto &w : plan.meta().weights)
    weights += w->packed < 0 ? double(w->bytes) : 0;
  bytes = weights + double(batch) * (past + tokens) * double(kv.bytes_per_token);
  double pairs = double(batch) * (double(tokens) * past + double(tokens) * (tokens + 1) / 2);
  flops = (rows * (before * 24 + 4) + double(batch) * 20) * width * width +
          (pairs * before + double(batch) * (past + tokens)) * 4 * width +
          double(batch) * 2 * width * plan.meta().vocab_size;
}

double valueOf(const std::unique_ptr<plan::ExprT> &expr, const std::vector<int64_t> &symbols) {
  rt::Result<int64_t> value = expr ? rt::evalExpr(*expr, symbols) : rt::Result<int64_t>(0);
  return value ? double(*value) : 0;
}

std::vector<rt::Tokens> randomPrompts(const rt::Session &session, int batch, int length) {
  std::mt19937 random(batch * 7919 + length);
  std::vector<rt::Tokens> prompts(batch, rt::Tokens(length));
  for (rt::Tokens &p : prompts)
    for (int32_t &id : p)
      id = int32_t(random() % uint32_t(session.plan().meta().vocab_size));
  return prompts;
}

namespace {

/// Single steps that the time between tokens is a quantile of.
constexpr int singleSteps = 100;

class Meter {
public:
  Meter(rt::Session &session, const MeasureOptions &options)
      : session_(session), options_(options) {}

  rt::Status prefill(int batch, int length) {
    std::vector<rt::Tokens> prompts = randomPrompts(session_, batch, length);
    Row row{.kind = rt::functions::prefill, .batch = batch, .tokens = length, .steps = 1};
    auto logits = session_.prefill(prompts, {}, true);
    if (!logits)
      return logits.status();
    if (rt::Status s = check(logits->logits); !s.ok())
      return s;
    auto once = [&](double &device) {
      return run([&] { return session_.prefill(prompts).status(); }, device);
    };
    return sample(row, once, 0);
  }

  rt::Status decode(int batch, int depth) {
    std::vector<rt::Tokens> context = randomPrompts(session_, batch, depth);
    if (rt::Status s = session_.prefill(context).status(); !s.ok())
      return s;
    // Each sample starts from the same state: the last token is appended again behind the others.
    std::vector<rt::Tokens> last;
    for (const rt::Tokens &t : context)
      last.push_back({t.back()});
    std::vector<int32_t> past(batch, depth - 1);
    int steps = options_.decodeTokens;
    Row row{.kind = rt::functions::decode, .batch = batch, .tokens = depth, .steps = steps};
    auto once = [&](double &device) -> rt::Result<double> {
      if (rt::Status s = session_.prefill(last, past).status(); !s.ok())
        return s;
      auto ms = run([&] { return session_.decode(steps).status(); }, device);
      if (!ms)
        return ms;
      device /= steps;
      return *ms / steps;
    };
    // One warm-up run, then runs of `steps` until there are enough.
    std::vector<double> single;
    for (int run = 0;
         run == 0 || int(single.size()) < std::min(singleSteps, options_.repetitions * steps);
         ++run) {
      if (rt::Status s = session_.prefill(last, past).status(); !s.ok())
        return s;
      for (int i = 0; i < steps; ++i) {
        double device = 0;
        auto ms = this->run([&] { return session_.decode(1).status(); }, device);
        if (!ms)
          return ms.status();
        if (run > 0)
          single.push_back(*ms);
      }
    }
    row.between = quantiles(std::move(single));
    if (rt::Status s = sample(row, once, depth + steps / 2); !s.ok())
      return s;
    if (rt::Status s = session_.prefill(last, past).status(); !s.ok())
      return s;
    std::vector<int32_t> tokens(batch);
    for (int b = 0; b < batch; ++b)
      tokens[b] = context[b].back();
    auto logits = session_.step(tokens, true);
    return logits ? check(logits->logits) : logits.status();
  }

  /// Bytes: inputs, outputs and weights once.
  rt::Status forward(int batch, int tokens) {
    auto inputs = randomInputs(session_, batch, tokens);
    if (!inputs)
      return inputs.status();
    Row row{.kind = rt::functions::forward, .batch = batch, .tokens = tokens, .steps = 1};
    for (const auto &w : session_.plan().meta().weights)
      row.bytes += double(w->bytes);
    for (const rt::HostTensor &t : *inputs)
      row.bytes += double(t.data.size());
    double outputs = 0;
    std::vector<rt::HostTensor> last;
    std::vector<double> wall;
    double spent = 0; // copies of large tensors may take seconds
    for (int i = 0; wall.empty() || (i < options_.warmup + options_.repetitions && spent < 1e3);
         ++i) {
      double device = 0;
      auto call = [&]() -> rt::Status {
        auto results = session_.forward(*inputs);
        outputs = 0;
        if (!results)
          return results.status();
        for (const rt::HostTensor &t : *results)
          outputs += double(t.data.size());
        last = results.take();
        return {};
      };
      auto ms = run(call, device);
      if (!ms)
        return inContext("@forward of " + std::to_string(batch) + " x " + std::to_string(tokens) +
                             "; -b and -p choose other sizes",
                         ms.status());
      spent += *ms;
      if (i >= options_.warmup || spent >= 1e3)
        wall.push_back(*ms);
    }
    if (rt::Status s = checkOutputs(last, batch, tokens); !s.ok())
      return s;
    row.bytes += outputs;
    row.wall = quantiles(wall);
    rows_.push_back(row);
    return {};
  }

  std::vector<Row> take() { return std::move(rows_); }

private:
  /// Times of numbers that are none are of no use.
  rt::Status check(std::span<const float> logits) {
    const size_t vocab = logits.size() / session_.lengths().size();
    for (size_t b = 0; b < session_.lengths().size(); ++b)
      if (rt::Status s =
              rt::checkLogits(logits.subspan(b * vocab, vocab), int64_t(b), session_.lengths()[b]);
          !s.ok())
        return s;
    return {};
  }

  /// The logits among the graph's outputs, [batch, tokens, vocab], those behind the last token.
  rt::Status checkOutputs(std::span<const rt::HostTensor> outputs, int batch, int tokens) {
    const auto &ports = session_.plan().meta().exported_outputs;
    for (size_t i = 0; i < std::min(outputs.size(), ports.size()); ++i) {
      const rt::HostTensor &t = outputs[i];
      if (ports[i]->role != plan::Role::Logits || t.shape.size() != 3 || t.shape[0] != batch)
        continue;
      auto wide = rt::convert(t, plan::DType::F32);
      if (!wide)
        return wide.status();
      const size_t vocab = t.shape[2], row = t.shape[1] * vocab;
      for (int b = 0; b < batch; ++b)
        if (rt::Status s = rt::checkLogits(
                wide->values<float>().subspan((b + 1) * row - vocab, vocab), b, tokens);
            !s.ok())
          return s;
    }
    return {};
  }

  rt::Result<double> run(const std::function<rt::Status()> &call, double &device) {
    auto start = std::chrono::steady_clock::now();
    rt::Status status = call();
    double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (!status.ok())
      return status;
    device = session_.backend().stats().deviceMilliseconds;
    return ms;
  }

  rt::Status sample(Row row, const std::function<rt::Result<double>(double &)> &once, int past) {
    std::string name = std::string(row.kind) + " batch " + std::to_string(row.batch) + " tokens " +
                       std::to_string(row.tokens);
    if (options_.progress)
      options_.progress(name);
    std::vector<double> wall, device;
    // A GPU that was idle takes milliseconds to raise its clocks.
    constexpr double leastWarmup = 20;
    double warm = 0;
    for (int i = 0; int(wall.size()) < options_.repetitions; ++i) {
      const bool warming = i < options_.warmup || warm < leastWarmup;
      double onDevice = 0, start = options_.trace ? options_.trace->now() : 0;
      auto ms = once(onDevice);
      if (!ms)
        return ms.status();
      if (options_.trace)
        options_.trace->span("host", name, start, options_.trace->now() - start,
                             Json{{"sample", warming ? -1 : int64_t(wall.size())}, {"ms", *ms}});
      if (warming) {
        warm += *ms;
        continue;
      }
      wall.push_back(*ms);
      // The device times runs of its own, since that makes them longer.
      session_.backend().timeOnDevice(true);
      auto timed = once(onDevice);
      session_.backend().timeOnDevice(false);
      if (!timed)
        return timed.status();
      device.push_back(onDevice);
    }
    row.wall = quantiles(wall);
    row.device = quantiles(device).median;
    bool decode = row.steps > 1 || std::string_view(row.kind) == rt::functions::decode;
    leastWork(session_.plan(), row.batch, decode ? 1 : row.tokens, past, row.bytes, row.flops);
    rows_.push_back(row);
    return {};
  }

  rt::Session &session_;
  const MeasureOptions &options_;
  std::vector<Row> rows_;
};

} // namespace

rt::Result<std::vector<Row>> measure(rt::Session &session, const MeasureOptions &options) {
  Meter meter(session, options);
  const bool whole = !session.hasKvState();
  for (int batch : options.batches) {
    for (int length : options.prompts)
      if (rt::Status s = whole ? meter.forward(batch, length) : meter.prefill(batch, length);
          !s.ok())
        return s;
    if (whole)
      continue;
    for (int depth : options.depths)
      if (rt::Status s = meter.decode(batch, depth); !s.ok())
        return s;
  }
  return meter.take();
}

} // namespace gpt2c
