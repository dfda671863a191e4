// Runs a module's @forward on the host, before there is a plan: for calibration and quality gates.
#pragma once

#include "ir/Executor.h"
#include "runtime/Session.h"

namespace gpt2c {

/// @forward over whole sequences from an empty KV state.
class HostForward {
public:
  /// `function` must outlive this. At most `batch` sequences a call.
  HostForward(const Function &function, int64_t batch) : executor_(function), function_(function) {
    batch_ = batch;
  }

  /// All results of the function for sequences of one length; the order is that of its return.
  llvm::Expected<std::vector<Tensor>> run(std::span<const rt::Tokens> sequences);
  /// The result called "logits", as f32.
  llvm::Expected<rt::HostTensor> logits(std::span<const rt::Tokens> sequences);

private:
  llvm::Expected<Tensor> argument(const Value &a, std::span<const rt::Tokens> sequences);

  Executor executor_;
  const Function &function_;
  int64_t batch_;
  Tensor kv_;
};

/// Tokens of the longest sequence that `function` takes: the context of its KV state; 0 without
/// one.
int64_t contextOf(const Function &function);

} // namespace gpt2c
