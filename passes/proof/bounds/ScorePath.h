// What stands between attention scores and probabilities, op by op. Nothing is run: every op that
// depends on the scores is a step of the form
//   probabilities = softmax(factor * scores + addend, or a fill value where a condition says so)
// along the last axis, or the walk fails and names it.
#pragma once

#include "passes/Remark.h"

#include <optional>

namespace gpt2c {

/// One op that takes x, which depends on the scores, and values that do not.
struct ScoreStep {
  enum Kind : uint8_t {
    Multiply,     // x * operand
    Divide,       // x / operand
    Negate,       // -x
    Add,          // x + operand
    Subtract,     // x - operand
    SubtractFrom, // operand - x
    Keep,         // x where `operand`, `fill` elsewhere
    Replace,      // `fill` where `operand`, x elsewhere
  } kind;
  Op *op;
  Value *operand = nullptr, *fill = nullptr;

  /// A product with one number: no mask.
  bool isScale() const;
  /// What an isScale() step multiplies by.
  double scale() const;
  bool selects() const { return kind == Keep || kind == Replace; }
};

/// x = min(x, value) or max(x, value). It is left out only where no score comes near.
struct ScoreLimit {
  Op *op;
  double value;
  bool isMin;
  size_t behind; // steps
};

struct ScorePath {
  Value *scores = nullptr;
  llvm::SmallVector<ScoreStep, 4> steps;
  llvm::SmallVector<ScoreLimit, 2> limits;
  /// Of the probabilities: Multiply, Keep and Replace.
  llvm::SmallVector<ScoreStep, 2> after;
  /// Rows of NaN, which see nothing, become zeros.
  bool guarded = false;
  /// The narrowest type that the graph computes scores in.
  DType precision = DType::F32;
};

/// The steps from `scores` to `probabilities`; none with the op that is no step in `why`. A softmax
/// may be spelled out: exp(x - max x) over its sum. Casts that do not round below the precision of
/// the scores are no steps.
std::optional<ScorePath> findScorePath(Value *scores, Value *probabilities, Obstacle &why);

/// A value that counts as minus infinity without a bound on the scores: it is beyond -1e30, or in
/// f16 the lowest number there is.
bool isLowest(double value, DType precision);

} // namespace gpt2c
