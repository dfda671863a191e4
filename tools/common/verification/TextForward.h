// Runs a model's @forward over texts before there is a plan: for calibration and quality gates.
#pragma once

#include "ir/Tensor.h"
#include "passes/Pipeline.h"
#include "tools/common/verification/GeneratedSession.h"

namespace gpt2c {

/// @forward over whole sequences of one length, from an empty KV state.
class TextForward {
public:
  virtual ~TextForward() = default;
  /// All results of the function, in the order of its return; the KV state may be empty.
  virtual llvm::Expected<std::vector<Tensor>> run(std::span<const rt::Tokens> sequences) = 0;
  /// The result called "logits", as f32.
  virtual llvm::Expected<rt::HostTensor> logits(std::span<const rt::Tokens> sequences) = 0;
};

/// Makes what runs a module that has one function, @forward, with at most `batch` sequences a call.
using OpenForward =
    std::function<llvm::Expected<std::unique_ptr<TextForward>>(Module module, int64_t batch)>;

/// By the reference executor.
llvm::Expected<std::unique_ptr<TextForward>> openHostForward(Module module, int64_t batch);
/// As a plan, on the device of `open`; `options` say what it is compiled for.
llvm::Expected<std::unique_ptr<TextForward>>
openPlanForward(const Module &module, int64_t batch, CodegenOptions options, OpenBackend open);

/// A module of `forward` alone, a function of `module` or a copy of one in front of the stage
/// `quantised`, after the rest of the pipeline.
llvm::Expected<Module> lowerForward(const Module &module, const Function &forward,
                                    const PassOptions &options, const PipelineOptions &pipeline);

/// Tokens of the longest sequence that `function` takes: the context of its KV state; 0 without
/// one.
int64_t contextOf(const Function &function);
/// Tokens of the longest sequence that a function of `module` with a KV state takes; 0 without one.
int64_t contextOf(const Module &module);

} // namespace gpt2c
