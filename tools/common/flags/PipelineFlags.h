// The flags about passes, which gpt2c and gpt2c-opt share, and what they show.
#pragma once

#include "ir/Text.h"
#include "passes/Pipeline.h"

namespace gpt2c {

enum class RemarkDetail { None, Summary, All };

/// The value of -O; checkOptions() refuses what is no level.
unsigned levelFlag();
/// The numbers of --tensor-parallel but 1, ascending.
llvm::Expected<std::vector<int64_t>> tensorParallelFlag();
constexpr int64_t mostTensorRanks = 64;

/// The file of --remarks=FILE; "" without one.
llvm::StringRef remarksFile();
/// --compile-to, --disable-pass and --verify-each. All stages are run for `--compile-to=scheduled`,
/// which is no stage of passes.
PipelineOptions pipelineFlags();
/// Whether a schedule is asked for in the place of IR, see docs/schedule.md.
bool compilesToSchedule();

/// Runs `run` (the pipeline, or single passes) and shows on stderr and in files what
/// --print-ir-after-change, --dump-compilation-phases-to, --time-passes and --remarks ask for.
/// `detail` is what becomes of remarks without --remarks.
llvm::Error
runWithFlags(Module &module, const PassOptions &passOptions, PipelineOptions options,
             llvm::function_ref<llvm::Error(PassContext &, const PipelineOptions &)> run,
             std::vector<Remark> &remarks, RemarkDetail detail, const PrintOptions &print = {});

/// Shows the remarks from number `first` on, made after runWithFlags(), as that showed the others.
llvm::Error showFurther(llvm::ArrayRef<Remark> remarks, size_t first, const StepSizes &sizes);

} // namespace gpt2c
