// The pipeline: one straight list of named stages, each a list of passes and what is legal after
// it.
#pragma once

#include "passes/Pass.h"

#include <functional>

namespace gpt2c {

struct Stage {
  llvm::StringRef name;
  llvm::StringRef summary;
  /// The stage runs from this level on (-O).
  unsigned level;
  std::vector<llvm::StringRef> passes;
  /// Ops that are legal from here on.
  std::vector<OpCode> introduced;
  /// Ops that are not legal any more, with the pass that removes them.
  std::vector<std::pair<OpCode, llvm::StringRef>> removed = {};
};

llvm::ArrayRef<Stage> pipeline();

struct PipelineOptions {
  /// Begin with this stage: those before it have run. Empty: with the first.
  std::string startAt;
  /// Stop in front of this stage; empty: do not.
  std::string stopBefore;
  /// Stop after this stage; empty: run all.
  std::string compileTo;
  /// Passes left out.
  std::vector<std::string> disabled;
  /// Verify the module after every pass.
  bool verifyEach = false;
  /// Called after every pass, with the seconds it took.
  std::function<void(const Pass &, const Module &, double)> afterPass;
  /// Called after every stage that ran.
  std::function<llvm::Error(const Stage &, const Module &)> afterStage;
};

/// ExitCode::Usage when `options` names a stage or pass that does not exist, or a level.
llvm::Error checkOptions(const PipelineOptions &options, const PassOptions &passOptions = {});
llvm::Error runPass(const Pass &pass, PassContext &ctx, const PipelineOptions &options);
/// Runs the stages of the level; after each, every op has to be legal.
llvm::Error runPipeline(PassContext &ctx, const PipelineOptions &options);

} // namespace gpt2c
