// Whole decode steps as one kernel: @generate and @steps, from @decode.
#pragma once

#include "codegen/StepBuilder.h"
#include "schedule/DecodeForm.h"

namespace gpt2c {

/// Makes `out` the function @generate: what @decode and @advance do for up to `rows` sequences (1,
/// 2, 4, 8 or 16), `steps` times, as one persistent kernel (templates/decode_step/stages/stages.cuh).
/// Each op of
/// @decode becomes a stage, a step with LaunchMode::Stage; a norm is part of the linears that use
/// it. Values between stages are channels in the function's scratch. `bounds` are those of @decode
/// for so many sequences; the symbol `steps` is added.
///
/// Fails with ExitCode::Unsupported and the reason when @decode has something for which there is no
/// stage.
llvm::Error buildPersistentStep(PlanPool &pool, plan::FunctionT &out, Function &decode,
                                SymbolBounds bounds, int64_t rows = 1, StepWish wish = {});

/// Makes `out` the function @steps: one such step over the state in pages of `extend`, for up to
/// `rows` sequences, in thread block clusters, of `forms`. Its ports are those of @decode, with that state, and
/// the pages of each sequence, "tables"; nothing is advanced.
llvm::Error buildPagedStep(PlanPool &pool, plan::FunctionT &out, Function &decode,
                           const Function &extend, SymbolBounds bounds, int64_t rows,
                           StepWish wish = {});
/// Whether so many multiprocessors have no block of `steps`, a function of buildPagedStep(), which
/// lets the kernel behind it begin at once.
bool leavesProcessors(const plan::FunctionT &steps, int64_t count, const Target &target);

} // namespace gpt2c
