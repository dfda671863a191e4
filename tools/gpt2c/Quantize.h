// What gpt2c does between recognising a model and lowering it: calibrate, and find the layers that
// have to keep their precision.
#pragma once

#include "codegen/Codegen.h"
#include "passes/Pipeline.h"
#include "plan_generated.h"
#include "runtime/text/tokenizer/Tokenizer.h"
#include "tools/common/flags/CommandLine.h"
#include "tools/common/flags/DeviceName.h"

#include <memory>

namespace gpt2c {

/// The files that its options name.
std::vector<FlagPath> quantizeInputs();
std::vector<FlagPath> quantizeOutputs();

/// Whether anything runs on the device before there is a plan.
bool usesDevice(const QuantizeOptions &options);

/// Errors of usage in the options of calibration and quality.
llvm::Error checkQuantizeUsage(const QuantizeOptions &options);

/// Runs the pipeline with what the command line asks for. Statistics are collected, saved, and
/// taken from the context's options; limits of quality decide which layers keep their precision.
/// Both run on `device`; `codegen` are the options of the plan. `card` becomes what the plan
/// records, null without int8. Errors: Usage, Io, Quality, and those of the device.
llvm::Error runQuantizedPipeline(PassContext &ctx, const PipelineOptions &pipeline,
                                 const CodegenOptions &codegen, const DeviceName &device,
                                 const rt::Tokenizer *tokenizer,
                                 std::unique_ptr<plan::QuantizationT> &card);

} // namespace gpt2c
