#include "tools/common/tuning/FunctionTimes.h"

#include "runtime/plan/FunctionNames.h"
#include "tools/common/RuntimeError.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace gpt2c {

namespace {

/// Runs for one time; pairs of times; after how many of them a plan is given up that is slower by
/// that much.
constexpr int repetitions = 8, pairs = 7, fewPairs = 2;
constexpr double slower = 1.02;

TimeRatio ratioOf(llvm::ArrayRef<double> ratios) {
  TimeRatio out{mean(ratios)};
  double squares = 0;
  for (double r : ratios)
    squares += (r - out.mean) * (r - out.mean);
  const double n = double(ratios.size());
  out.error = n < 2 ? 0 : std::sqrt(squares / (n - 1) / n);
  return out;
}

/// Milliseconds of all steps.
llvm::Expected<double> timeCall(rt::Session &session, const LargestCall &call) {
  const plan::StepT *last = session.backend().functions()[call.function]->steps.back().get();
  auto profile = session.backend().profile(call.name, call.prompts, call.past, repetitions,
                                           [&](const plan::StepT &step) { return &step == last; });
  if (!profile)
    return toError(profile.status());
  return profile->steps.empty() ? 0 : profile->steps.back().end;
}

} // namespace

std::string LargestCall::describe() const {
  return llvm::formatv("{0} batch {1}{2}", name, prompts.size(),
                       name == rt::functions::prefill
                           ? " tokens " + std::to_string(prompts[0].size())
                           : std::string())
      .str();
}

std::vector<LargestCall> largestCalls(rt::Session &session) {
  const plan::PlanT &plan = session.plan().meta();
  const auto functions = session.backend().functions();
  std::vector<LargestCall> calls;
  for (size_t i = 0; plan.kv && i < functions.size(); ++i) {
    const plan::FunctionT &function = *functions[i];
    const bool decode = function.name == rt::functions::decode;
    if (!decode && function.name != rt::functions::prefill)
      continue;
    auto largest = [&](llvm::StringRef name) -> int64_t {
      for (const auto &symbol : function.symbols)
        if (symbol->name == name)
          return symbol->max;
      return 1;
    };
    rt::Tokens prompt(decode ? 1 : largest("seq"));
    std::iota(prompt.begin(), prompt.end(), 0);
    for (int32_t &id : prompt)
      id = int32_t(id * 7919ll % plan.vocab_size);
    LargestCall call{i, function.name, {}, {}};
    call.prompts.assign(largest("batch"), prompt);
    call.past.assign(call.prompts.size(), decode ? int32_t(plan.kv->max_context / 2) : 0);
    calls.push_back(std::move(call));
  }
  return calls;
}

llvm::Expected<CallTimes> compareCalls(rt::Session &first, rt::Session &second,
                                       llvm::ArrayRef<LargestCall> calls,
                                       llvm::function_ref<bool(size_t)> wanted) {
  CallTimes out;
  for (size_t call = 0; call < calls.size(); ++call) {
    std::vector<double> times[2], ratios;
    for (int i = 0; i < pairs && wanted(call); ++i) {
      // Each pair the other way around than the one before: a drift of the clock cancels out.
      for (size_t which : {size_t(i % 2), size_t(1 - i % 2)}) {
        auto time = timeCall(which == 0 ? first : second, calls[call]);
        if (!time)
          return time.takeError();
        times[which].push_back(*time);
      }
      ratios.push_back(times[1].back() / times[0].back());
      if (i + 1 >= fewPairs && *llvm::min_element(ratios) > slower)
        break;
    }
    const bool timed = !ratios.empty();
    out.first.push_back(timed ? mean(times[0]) : 0);
    out.second.push_back(timed ? mean(times[1]) : 0);
    out.ratios.push_back(timed ? ratioOf(ratios) : TimeRatio());
  }
  return out;
}

} // namespace gpt2c
