// The comparison of a plan with the exported graph, as the tools make, store and show it.
#pragma once

#include "passes/Pipeline.h"
#include "plan_generated.h"
#include "verify/CheckPlan.h"

namespace gpt2c {

/// The value of --verify: off, fast or full.
llvm::StringRef modeName(VerifyMode mode);

/// Compares the functions of a module with the graph that it was made from.
///
/// A plan in less than single precision is compared twice: its functions before int8 and half
/// precision, with the tolerance of rounding, and those that it holds, with one of their own.
class PlanVerifier {
public:
  /// `imported` is the module in front of the first pass; its function is copied. No call has more
  /// than `maxBatch` sequences.
  PlanVerifier(const Module &imported, VerifyMode mode, int64_t maxBatch);

  /// Takes note of the module after the last stage in single precision; for
  /// PipelineOptions::afterStage.
  void afterStage(const Stage &stage, const Module &module);

  /// Compares `module`, all stages behind it. An error with the code Quality says what differs.
  llvm::Error check(const Module &module, const PassOptions &options);
  /// The same for the functions that `runner` runs; `module` is what they were made from.
  llvm::Error check(const Module &module, PlanRunner &runner, double tolerance, bool single);

  /// Compares `module`, which was checked before, once more with what `runner` makes of it on the
  /// GPU. Not part of report(), which is the same on every machine.
  llvm::Expected<CheckReport> checkOnGpu(const Module &module, PlanRunner &runner,
                                         const PassOptions &options);
  /// The same for what so many ranks make of it on the CPU, which is part of report().
  llvm::Error checkOnRanks(const Module &module, PlanRunner &runner, const PassOptions &options,
                           int64_t ranks);

  const CheckReport &report() const { return report_; }
  /// What the plan says of it.
  std::unique_ptr<plan::VerificationT> record() const;
  /// The golden prompts of the module that the first check() passed; null where they could not be
  /// made, which report() then says.
  std::unique_ptr<plan::GoldenT> takeGolden() { return std::move(golden_); }

private:
  /// `narrow`: the plan's precision, where rounding of the graph to it may explain what is off.
  llvm::Error prepare(const Module &module, DType narrow = DType::F32);
  /// What the functions are judged over that lose by design: texts that `maker`, another form of
  /// the plan, makes by the model's probabilities; what prepare() made where it makes none.
  llvm::Error prepareOwnTexts(const Module &module, PlanRunner &maker);
  ReferenceLimits limitsFor(const Module &module, const ExportedGraph &graph) const;
  llvm::Error checkOn(llvm::StringRef where, const Module &module, PlanRunner &runner,
                      const PassOptions &options, CheckReport &report);
  double toleranceFor(const PassOptions &options) const;
  double goldenTolerance(const PassOptions &options) const;

  std::unique_ptr<Function> graph_;
  VerifyMode mode_;
  int64_t maxBatch_;
  Module before_; ///< in front of int8 and half precision
  std::unique_ptr<Reference> reference_, ownTexts_;
  CheckReport report_;
  std::unique_ptr<plan::GoldenT> golden_;
};

/// "verified: @forward 2e-07 over 1 x 128 tokens, @prefill ...".
std::string summaryOf(const CheckReport &report);

/// The tolerance for a plan of that precision.
double toleranceOf(DType precision, bool int8);

} // namespace gpt2c
