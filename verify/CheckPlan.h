// Compares what a plan computes with what the exported graph computes, on the model's own weights.
#pragma once

#include "ir/Format.h"
#include "verify/PlanRunner.h"
#include "verify/Reference.h"

namespace gpt2c {

/// One function of a plan over some calls, and how far it was off.
struct FunctionCheck {
  std::string what;              ///< "@forward", "@prefill", "@forward of the graph before int8"
  int64_t batch = 0, tokens = 0; ///< the largest of both; tokens count those of the past
  double error = 0;              ///< the largest of a row, see Compare.h
  double tolerance = 0;
  /// The error in double precision, where that in single was above the tolerance: what is left is
  /// no rounding. Negative: it was not needed.
  double errorInDouble = -1;
};

struct CheckReport {
  std::vector<FunctionCheck> checks;
  /// What was not checked, and why; nothing is passed over in silence.
  std::vector<std::string> unchecked;
};

struct CheckOptions {
  double tolerance = 0;
  /// Put behind the names of functions: " before int8".
  std::string suffix;
  /// A plan with int8 of which the same functions before int8 are right: what it is off by, int8
  /// rounds away. `int8Smooth`: with w8a8-smooth.
  bool int8Loss = false, int8Smooth = false;
  /// Judge the median row of each tensor of a function, and the mean KL divergence of its logits,
  /// rather than each row: of what loses by design. See Loss.h; the divergence may be the square of
  /// the tolerance times the information.
  bool byLoss = false;
  /// A plan in that precision of which the same functions in single precision are right: an
  /// overflow, and what vanishes in double precision, is named as that. F32: none.
  DType narrow = DType::F32;
  /// Leave out what is structural (Scenario), but in @extend: the same functions were asked before.
  bool brief = false;
  /// A plan in single precision: a difference that vanishes in double precision is rounding.
  bool rounding = false;
};

/// The tolerance of rows for a plan in single precision, in half, and with int8. Single: small
/// models stay below 1e-5, a trained one whose scores reach hundreds below 1e-3; what is above is
/// looked at in double precision. Half: 2^-11 grows by some 30 over the layers of a deep model;
/// bfloat: so does 2^-8.
/// Int8: gross errors alone; the quality of int8 is judged over a text (--eval), here half of what
/// tells the tokens apart may be lost, in the median row. A graph that quantises activations itself
/// jumps by whole steps where a sum is rounded differently, and a plan may keep some of them as
/// they are; at 0.707 the squares of the difference are half of those of what is expected, in the
/// median row, too.
constexpr double singleTolerance = 1e-3, halfTolerance = 5e-2, bfloatTolerance = 8 * halfTolerance,
                 int8Tolerance = 5e-1, givenInt8Tolerance = 0.707;
/// Of an output that the export itself declares as bf16: the rounding of what is returned.
constexpr double bfloatRounding = infoOf(OperandFormat::BF16).bound;

/// Runs the functions of the plan with `runner` over the texts of `reference` and adds to `report`.
/// `module` is the plan's: where something differs, the first tensor that parts is looked for in
/// it. An error with the code Quality says what differs by more than the tolerance.
llvm::Error checkPlan(Reference &reference, const Module &module, PlanRunner &runner,
                      const CheckOptions &options, CheckReport &report);

} // namespace gpt2c
