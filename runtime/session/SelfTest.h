// Whether a machine computes what a plan says: its golden prompts again, on the device of a
// session, and what the device does in a second.
#pragma once

#include "runtime/session/Session.h"

namespace gpt2c::rt {

struct SelfTestCheck {
  enum Outcome { Pass, Fail, Skipped };
  std::string what;
  Outcome outcome = Pass;
  std::string detail;
};

/// The checks, in this order:
///   weights     the bytes of every weight that the device reads have the hash of the metadata
///   alone       the golden prompts, one after the other: logits (plan/Golden.h) and next tokens
///   batch       all of them at once, some several times where the device has room for more
///   again       the same once more: the same bits
///   generation  the greedy tokens, where the device chooses them itself
///   speed       memory bandwidth, clocks and the time of a step against what they should be
struct SelfTestReport {
  std::vector<SelfTestCheck> checks;
  bool passed() const;
};

/// Runs all checks that the plan and the device allow. Usage where the plan has no golden prompts;
/// other errors where the device fails. The current batch ends.
Result<SelfTestReport> selfTest(Session &session);

/// The last of the checks: a GPU's copies, clocks and greedy steps behind `prompt`.
Result<SelfTestCheck> testSpeed(Session &session, const Tokens &prompt);

/// What a plan says of a decode step of one sequence, and what it took.
struct StepEstimate {
  double bytes = 0; ///< moved through device memory; 0: the plan does not say
  size_t launches = 0;
  double milliseconds = 0; ///< 0: not measured
};

/// Fails where memory or processors run below half of what they could, and where a step takes
/// another time than its estimate: bytes / bandwidth, no less than half of it where the caches do
/// not hold them, no more than four times it and 10 us for each launch.
SelfTestCheck judgeSpeed(const DeviceSpeed &speed, const StepEstimate &step);

} // namespace gpt2c::rt
