// A plan's function run one step after the other, and what its steps are compared with.
#pragma once

#include "runtime/session/Session.h"
#include "verify/ExportedGraph.h"
#include "verify/StepErrors.h"

namespace gpt2c {

/// A call of a function over texts of one length. "decode": their last tokens, behind the others.
struct TraceCall {
  std::string function; ///< "prefill", "decode", or of a plan without a KV state "forward"
  std::vector<TokenIds> texts;

  int64_t batch() const { return int64_t(texts.size()); }
  int64_t tokens() const { return int64_t(texts[0].size()); }
};

struct Trace {
  std::vector<TracedValue> values; ///< of the plan's module, in the order of their steps
  /// What the steps of the function are called; empty where the device has none but the ops.
  std::vector<std::string> steps;
};

/// Runs the call on the session's device. `module` is the plan's.
llvm::Expected<Trace> traceCall(rt::Session &session, const Module &module, const TraceCall &call);

/// The function of `module` in double precision over the same call: the plan's own, or with `other`
/// another plan's. Right behind traceCall(): the KV state of `session` is that of the call.
llvm::Expected<StepReference> planReference(rt::Session &session, const Module &module,
                                            const TraceCall &call, bool other);
/// The exported graph; it must outlive what is returned.
llvm::Expected<StepReference> graphReference(const ExportedGraph &graph, const TraceCall &call);

} // namespace gpt2c
