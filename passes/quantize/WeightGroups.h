// Groups of weights of w8a16 where none are asked for.
#pragma once

#include "passes/Pass.h"
#include "passes/quantize/Quantization.h"

namespace gpt2c {

/// Elements of a row that share a scale in w8a16 unless something else is asked for: 64, or 32
/// where that divides rows and 64 does not. 0, a scale for each row, where neither divides those of
/// all products but the vocabulary's, of which `odd` is one then, since a decode step is one kernel
/// only if all have groups or none; and where the model itself has weights in bytes. Of `ranks`
/// that share products each has whole groups.
int64_t usualWeightGroup(const Module &module, const QuantizeOptions &options,
                         llvm::ArrayRef<int64_t> ranks, const Op **odd);

/// Sets the group of the options where they and the scheme leave it open, with a remark where that
/// is a row which could have groups.
void settleWeightGroup(PassContext &ctx);

} // namespace gpt2c
