// Times of whole functions over the KV state, each at its largest sizes.
#pragma once

#include "tools/common/tuning/TuningDescent.h"

#include "runtime/session/Session.h"

#include <numeric>

namespace gpt2c {

/// Of at least one.
inline double mean(llvm::ArrayRef<double> v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / double(v.size());
}

/// The largest call of a function.
struct LargestCall {
  size_t function; ///< of those that the device has of the plan
  std::string name;
  std::vector<rt::Tokens> prompts;
  std::vector<int32_t> past;

  std::string describe() const; ///< "prefill batch 1 tokens 128"
};

/// Those of all functions over the KV state that the device has, in the order of the plan.
std::vector<LargestCall> largestCalls(rt::Session &session);

/// Milliseconds of calls in two plans that differ in their choices alone, and the second as a part
/// of the first.
struct CallTimes {
  std::vector<double> first, second;
  std::vector<TimeRatio> ratios;
};

/// Times those calls in turns that are `wanted`, the others have no times and the ratio 1. One that
/// is clearly slower in the second plan is given up early.
llvm::Expected<CallTimes> compareCalls(rt::Session &first, rt::Session &second,
                                       llvm::ArrayRef<LargestCall> calls,
                                       llvm::function_ref<bool(size_t)> wanted);

} // namespace gpt2c
