// A plan while it is made: what the parts of codegen hand on to each other.
#pragma once

#include "codegen/Codegen.h"
#include "codegen/PlanPool.h"
#include "codegen/driver/Schedules.h"
#include "ir/FunctionNames.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

struct PlanDraft {
  const Module &module;
  CodegenOptions options;
  PlanPool pool = {};
  /// What the functions that are added now are for: architectures of one kind.
  std::vector<std::string> archs = {};
  GeneratedPlan &out;
  /// Where the functions begin that are added now.
  size_t first = 0;
  /// Of which `module` is what each runs; 1: it is for one alone.
  int64_t ranks = 1;

  plan::PlanT &meta() { return out.contents.meta; }
  VersionScheduler scheduler() const { return schedulerOf(module, options, pool.target); }
  Versions versions() const {
    return {options.maxBatch, contextOf(module, options.context), options.symbolBounds};
  }
  Function *function(llvm::StringRef name) const { return module.function(name); }
  /// Whether the plan has launches of the function of that name, of those that are added now.
  bool launches(llvm::StringRef name) {
    return llvm::any_of(llvm::drop_begin(meta().functions, first),
                        [&](auto &f) { return f->name == name && !f->steps.empty(); });
  }
  /// `out` is made from `body`, which the plan's IR has then.
  void noteBody(plan::FunctionT &out, const Function &body) {
    if (ranks > 1)
      out.body = functions::ofRanks(body.name(), ranks);
    else if (isOtherForm(body))
      out.body = body.name();
  }
  /// Says why the plan lacks something; of functions of ranks in a list of their own.
  void lacks(Reasons GeneratedPlan::*what, const std::string &why) {
    if (ranks > 1)
      out.onRanks.add("as " + std::to_string(ranks) + " ranks: " + why, archs);
    else
      (out.*what).add(why, archs);
  }
  /// Whether a function of the plan is made from `body`, or it is no other function's form.
  bool isBody(const Function &body) {
    return !functions::isWidened(body.name()) ||
           llvm::any_of(meta().functions, [&](auto &f) { return f->body == body.name(); });
  }
  /// Whether a device can choose otherwise than greedily.
  bool hasSampling();

  /// Rows for which @sample rehearses behind @steps.
  int rehearsed = 0;
  /// Why the step of one sequence has no persistent kernel over pages.
  std::string noPagedStep = {};
};

/// What each of so many ranks runs, under the names of the functions that it is of, with stand-ins
/// of the pool for its parts of weights.
Module moduleOfRank(const Module &module, PlanPool &pool, int64_t ranks);
/// Every function of the module: launches, or ports alone where the CPU device runs it. Errors: of
/// a batch-invariant plan, whose @extend has to have kernels.
llvm::Error addFunctions(PlanDraft &draft);
/// @advance, the bookkeeping between decode steps on the device: tokens[step] = next, ids = next,
/// past += 1.
void addAdvance(PlanDraft &draft);
/// @sample, the choices behind the logits of @extend for sequences that are not greedy: a version
/// for few of them, and one for any number.
void addSample(PlanDraft &draft);
/// @steps, @extend of single tokens: @decode over its state.
void addSteps(PlanDraft &draft);
/// @generate, decode steps as one kernel, where DecodeForms allow it. Errors: it is asked for, and
/// there is none.
llvm::Error addGenerate(PlanDraft &draft);
/// Packs the matrices of the pool that pack, and says what of the module's others does not.
GeneratedPlan::Packing packMatrices(const Module &module, PlanPool &pool);
/// Compiles the kernels of the pool, each for the architectures of its targets. Errors:
/// KernelCompilation, Unsupported.
llvm::Error compileKernels(PlanDraft &draft, llvm::ArrayRef<TargetGroup> groups,
                           std::vector<std::vector<char>> &images);

} // namespace gpt2c
