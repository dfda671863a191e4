// gpt2c --tune and --tuning-file: kernels chosen by measurement.
#pragma once

#include "tools/common/verification/GeneratedSession.h"

namespace gpt2c {

/// The table in a file for one of these architectures. What cannot be used, whole or in part, is
/// told on stderr and left out: choices that were measured make a plan faster, never possible.
TuningTable readTuning(llvm::StringRef path, llvm::ArrayRef<std::string> archs);

/// Says on stderr which choices of the table this compiler does not know.
void reportStale(llvm::StringRef path, const TunedChoices &choices);

/// Times every candidate that `table` does not have yet and adds what was chosen; the table is for
/// the architecture that `options` compile for. Each round compiles the whole module with the next
/// candidate of every op, loads the plan and times these steps among the others, at the largest
/// sizes of each function; the fastest of every op are timed again, longer. From what is the
/// fastest alone, or the model's choices for functions that are slower with that, choices then
/// change one at a time for as long as whole functions get faster (TuningDescent.h). `report` gets
/// lines for people, with `detail` the time of every candidate.
llvm::Error tune(const Module &module, CodegenOptions options, TuningTable &table, OpenBackend open,
                 llvm::function_ref<void(const llvm::Twine &)> report, bool detail = false);

} // namespace gpt2c
