// Where the time of a prefill, of a decode step or of a call over rows goes.
#pragma once

#include "tools/gpt2c-bench/Measure.h"
#include "tools/gpt2c-bench/Peak.h"
#include "tools/gpt2c-bench/Phases.h"

namespace gpt2c {

/// One launch. Times in milliseconds.
struct StepRow {
  std::string op, kernel, nodes, grid;
  double begin = 0, time = 0;
  double bytes = 0, flops = 0; ///< the fewest
  double floor = 0;            ///< what these take at the peak; 0 when that is not known
};

struct Profile {
  const char *kind;          ///< "prefill", "decode", "forward", "extend" or "sample"
  int batch = 0, tokens = 0; ///< as in Row
  std::string call;          ///< over rows, as --rows spells it; has no batch and tokens
  std::vector<StepRow> steps = {};
  /// Of decode steps that are one kernel, where it notes them (gpt2c --step-marks).
  std::vector<Phases> phases = {};

  double time() const { return steps.empty() ? 0 : steps.back().begin + steps.back().time; }
  std::string title() const;
};

/// What `measured` says of each step of a call behind `pastTokens` tokens of all its sequences.
std::vector<StepRow> stepRows(const plan::PlanT &meta, const rt::FunctionProfile &measured,
                              double pastTokens, const Peak &peak);

/// Gives calls of graphs as a whole, which copy tensors to the device and back, the time there of
/// their launches, and their bytes and operations.
rt::Status timeWholeRuns(rt::Session &session, const MeasureOptions &options,
                         std::vector<Row> &rows);

/// Profiles of all that `measure` measures, in its order. Spans of the steps go to the trace.
rt::Result<std::vector<Profile>> profile(rt::Session &session, const MeasureOptions &options,
                                         const Peak &peak);

} // namespace gpt2c
