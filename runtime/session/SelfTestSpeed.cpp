#include "runtime/device/FunctionCall.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/session/SelfTest.h"

#include <algorithm>
#include <cstdio>

namespace gpt2c::rt {
namespace {

constexpr int kSteps = 32, kSamples = 5;
constexpr double kLeastShare = 0.5, kMostTimes = 4, kLaunchMilliseconds = 0.01;

std::string text(const char *format, double x) {
  char out[64];
  std::snprintf(out, sizeof out, format, x);
  return out;
}

std::string bandwidth(double bytesPerSecond) { return text("%.0f GB/s", bytesPerSecond * 1e-9); }

/// The first @decode that takes one sequence, at the least of its other symbols.
StepEstimate estimate(std::span<const std::unique_ptr<plan::FunctionT>> functions, int64_t past) {
  StepEstimate out;
  const plan::FunctionT *decode = findFunction(functions, functions::decode);
  if (!decode)
    return out;
  std::vector<int64_t> symbols;
  for (const auto &symbol : decode->symbols)
    symbols.push_back(symbol->min);
  for (const auto &step : decode->steps) {
    for (const auto &[expr, times] :
         {std::pair(&step->bytes, int64_t{1}), std::pair(&step->past_bytes, past)})
      if (*expr)
        if (Result<int64_t> bytes = evalExpr(**expr, symbols))
          out.bytes += double(*bytes) * double(times);
    ++out.launches;
  }
  return out;
}

} // namespace

SelfTestCheck judgeSpeed(const DeviceSpeed &speed, const StepEstimate &step) {
  SelfTestCheck out{"speed", SelfTestCheck::Pass, ""};
  std::string problem;
  auto say = [&](const std::string &what) {
    out.detail += (out.detail.empty() ? "" : ", ") + what;
  };
  auto fault = [&](const std::string &what) { problem += (problem.empty() ? "" : "; ") + what; };

  say("memory " + bandwidth(speed.bytesPerSecond));
  if (speed.nominalBytesPerSecond > 0) {
    out.detail += " of " + bandwidth(speed.nominalBytesPerSecond);
    if (speed.bytesPerSecond < kLeastShare * speed.nominalBytesPerSecond)
      fault("memory is slower than half of what its clock allows");
  }
  if (speed.clock > 0 && speed.maxClock > 0) {
    say("clock " + std::to_string(speed.clock) + " of " + std::to_string(speed.maxClock) + " MHz");
    if (speed.clock < kLeastShare * speed.maxClock)
      fault("the clock is below half of its maximum");
  }
  if (!speed.slowedBy.empty())
    say("slowed by " + speed.slowedBy);
  if (step.milliseconds > 0 && step.bytes > 0 && speed.bytesPerSecond > 0) {
    const double least = step.bytes / speed.bytesPerSecond * 1e3;
    const bool cached = step.bytes < 2 * double(speed.cacheBytes);
    say(text("a step %.3f ms", step.milliseconds) + text(" (memory alone: %.3f ms)", least));
    if (step.milliseconds < kLeastShare * least && !cached)
      fault("a step takes less time than its bytes need: the plan's estimate is wrong");
    if (step.milliseconds > kMostTimes * least + kLaunchMilliseconds * double(step.launches))
      fault("a step takes much longer than the plan's estimate");
  }
  if (problem.empty())
    return out;
  out.outcome = SelfTestCheck::Fail;
  out.detail = problem + " (" + out.detail + ")";
  return out;
}

Result<SelfTestCheck> testSpeed(Session &session, const Tokens &prompt) {
  Backend &backend = session.backend();
  StepEstimate step;
  Result<DeviceSpeed> speed = backend.measureSpeed();
  if (!speed && speed.status().code() == Code::Unsupported)
    return SelfTestCheck{"speed", SelfTestCheck::Skipped, speed.status().message()};
  if (!speed)
    return speed.status();
  if (session.hasKvState()) {
    const int64_t context = session.plan().meta().kv->max_context;
    const int steps = int(std::min<int64_t>(kSteps, context - int64_t(prompt.size())));
    const int64_t past = int64_t(prompt.size()) + steps / 2;
    step = estimate(backend.functions(), past);
    backend.timeOnDevice(true);
    for (int i = 0; i < kSamples && steps > 0; ++i) {
      Result<StepOutput> prefill = session.prefill({&prompt, 1});
      if (!prefill)
        return prefill.status();
      Result<std::vector<Tokens>> decoded = session.decode(steps);
      if (!decoded)
        return decoded.status();
      const double ms = backend.stats().deviceMilliseconds / steps;
      step.milliseconds = i == 0 ? ms : std::min(step.milliseconds, ms);
    }
    backend.timeOnDevice(false);
  }
  return judgeSpeed(*speed, step);
}

} // namespace gpt2c::rt
