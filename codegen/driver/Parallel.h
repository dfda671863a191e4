// What a plan is estimated to take on one GPU and on several: gpt2c-dump --parallel.
#pragma once

#include "codegen/Codegen.h"
#include "schedule/cost/ParallelCost.h"

namespace gpt2c {

struct DivisionEstimate {
  Division division;
  std::string refused;            ///< why it cannot be; empty: it can, and the rest is known
  double step1 = 0, step32 = 0;   ///< microseconds of a decode step of 1 and of 32 sequences
  double prompt = 0;              ///< of a prompt, without its attention; 0: not known
  double sums = 0, sumsApart = 0; ///< of the prompt's sums over ranks, and if all had a launch
  double bytes = 0;               ///< of weights and KV state on the GPU with most of them

  /// A decode step or a prompt takes at most this part of what one GPU takes.
  static constexpr double gain = 0.95;
  bool pays(const DivisionEstimate &one) const;
};

struct ParallelEstimates {
  std::string decoder; ///< as describe() has it
  int64_t promptTokens = 0;
  std::vector<DivisionEstimate> divisions; ///< one GPU first
};

/// Of the module's @decode, and of @extend or @prefill for prompts, by the estimates that kernels
/// and forms are chosen by. `stateBytes`: of the KV state. Errors: Unsupported: it is no chain of
/// layers.
llvm::Expected<ParallelEstimates> estimateParallel(const Module &module,
                                                   const CodegenOptions &options, double stateBytes,
                                                   const LinkRates &link = {});

/// Of a division that does not pay, with the numbers.
std::string describeLoss(const DivisionEstimate &e, const DivisionEstimate &one);

void print(const ParallelEstimates &estimates, const LinkRates &link, llvm::raw_ostream &os);

} // namespace gpt2c
