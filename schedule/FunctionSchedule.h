// The versions of a function with the schedule of each: what one launch is depends on how many rows
// there are.
#pragma once

#include "schedule/Scheduler.h"
#include "schedule/Versions.h"

namespace gpt2c {

/// One version.
struct FunctionSchedule {
  Function *of = nullptr; ///< the function asked about, or its widened form
  std::string limits;     ///< "up to 8 sequences of 128 tokens"
  SymbolBounds bounds;
  Schedule schedule;
};

/// For the limits, target and kernels of one plan.
class VersionScheduler {
public:
  VersionScheduler(const Module &module, Versions versions, ScheduleOptions options,
                   const Kernels &kernels)
      : module_(module), versions_(std::move(versions)), options_(std::move(options)),
        kernels_(kernels) {}

  /// Those of @extend by rows and segments, all others by sequences and tokens. Errors: those of
  /// schedule().
  llvm::Expected<std::vector<FunctionSchedule>> of(Function &f) const;
  /// Those of @extend, in all of which a product has one order of sums; `costs`: what that costs.
  llvm::Expected<std::vector<FunctionSchedule>>
  invariant(Function &extend, std::vector<SumOrders::Estimate> &costs) const;
  /// Those of @decode over the state in pages of `extend`, for more than `covered` sequences.
  llvm::Expected<std::vector<FunctionSchedule>> steps(Function &decode, const Function &extend,
                                                      int64_t covered) const;

private:
  /// The form of `f` with floats in the place of int8 weights; null: there is none.
  Function *widenedForm(const Function &f) const;
  llvm::Expected<std::vector<FunctionSchedule>> extend(Function &f, SumOrders *orders) const;
  llvm::Error add(std::vector<FunctionSchedule> &list, Function &f, std::string limits,
                  SymbolBounds bounds, const ScheduleOptions &options) const;

  /// Without those that take longer by estimate than a version for more does at the most that it is
  /// for, which takes their calls: one sequence more is never faster.
  void dropSlower(std::vector<FunctionSchedule> &list) const;

  const Module &module_;
  const Versions versions_;
  const ScheduleOptions options_;
  const Kernels &kernels_;
};

/// What every version's launches are, layers that repeat once: see docs/schedule.md.
void print(const FunctionSchedule &version, llvm::raw_ostream &os);
/// What a version is estimated to take on a machine of those rates, at the most rows there can be:
/// microseconds of all, and of its launches, those alike together.
void printEstimates(const FunctionSchedule &version, const TargetRates &rates,
                    llvm::raw_ostream &os);

} // namespace gpt2c
