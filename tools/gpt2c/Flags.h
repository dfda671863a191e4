// What gpt2c's command line asks for.
#pragma once

#include "codegen/Codegen.h"
#include "passes/Pipeline.h"
#include "tools/common/flags/DeviceName.h"
#include "verify/CheckPlan.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpt2c {

struct CompileFlags {
  std::string model, output;
  std::string adapter;                     ///< a folder; "": the model's, if it has one
  std::string tokenizer;                   ///< a folder, "none", or "": that of the model
  std::string report;                      ///< the HTML page; "": none
  std::string tuning;                      ///< the table of --tuning-file; "": none
  std::optional<std::vector<int32_t>> eos; ///< of --eos; none: the files say what ends an answer
  /// Of --set-input: each element of an export's input.
  std::vector<std::pair<std::string, double>> inputs;
  bool outputHidden = false; ///< in the place of logits
  bool tune = false, verbose = false;
  bool precisionGiven = false;
  int64_t maxContext = 0; ///< 0: the model's
  VerifyMode verify = VerifyMode::Fast;
  DeviceName device;
  PipelineOptions pipeline;
  PassOptions passes;
  CodegenOptions codegen; ///< but for the tokenizer and the choice of kernels
};

/// The folder of a model's file, "." for one without; a folder is its own.
std::string folderOf(llvm::StringRef path);

/// With --calibrate-target among the arguments no model has to be given. To be called before they
/// are parsed.
void allowCalibration(llvm::ArrayRef<const char *> arguments);
/// Whether it is given.
bool calibrates();
/// What it asks for. Errors: Usage, IO, and those of the GPU and NVRTC.
llvm::Error calibrateTarget();

/// All flags, checked one by one and against each other. Errors: Usage, Unsupported, and those of
/// the GPU and NVRTC where --gpu-arch needs them.
llvm::Expected<CompileFlags> compileFlags();

/// A Usage error where a file beside the model, which holds weights of it, would be written to.
llvm::Error checkWeightFile(llvm::StringRef path);

} // namespace gpt2c
