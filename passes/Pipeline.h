// The pipeline: one straight list of named stages, each a list of passes.
#pragma once

#include "passes/Pass.h"

namespace gpt2c {

struct Stage {
  llvm::StringRef name;
  llvm::StringRef summary;
  std::vector<llvm::StringRef> passes;
};

llvm::ArrayRef<Stage> pipeline();

struct PipelineOptions {
  /// Stop after this stage; empty: run all.
  std::string compileTo;
  /// Passes left out.
  std::vector<std::string> disabled;
  /// Verify the module after every pass.
  bool verifyEach = false;
  /// Called after every pass.
  std::function<void(const Pass &, const Module &)> afterPass;
};

/// ExitCode::Usage when `options` names a stage or pass that does not exist.
llvm::Error checkOptions(const PipelineOptions &options);
llvm::Error runPass(const Pass &pass, PassContext &ctx, const PipelineOptions &options);
llvm::Error runPipeline(PassContext &ctx, const PipelineOptions &options);

} // namespace gpt2c
