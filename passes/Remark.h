// Remarks: what a pass decided and what it could not do, for people and as data.
#pragma once

#include "ir/Function.h"

namespace gpt2c {

/// Why a pattern does not match: a reason, and the op and attribute it lies in where that can be
/// said.
struct Obstacle {
  std::string reason = {};
  const Op *op = nullptr;
  std::string attribute = {};
  Obstacle &operator=(std::string why) {
    reason = std::move(why);
    op = nullptr;
    attribute.clear();
    return *this;
  }
};

struct Remark {
  enum Severity : uint8_t { Note, Missed } severity = Note;
  std::string pass;
  std::string message;                         // one line
  llvm::SmallVector<llvm::StringRef, 2> nodes; // ONNX node names

  // Of a pattern that nearly matched:
  std::string pattern;       ///< "attention"
  std::string matched;       ///< how far it got: "scores to probabilities"; empty: not known
  std::string op, attribute; ///< what stopped it; empty: not one op, not one attribute
  /// What staying apart costs in one step beside one op in their place: further launches, further
  /// bytes in `batch`, `seq` (new tokens) and `past`.
  int64_t launches = 0;
  Dim bytes;
  /// ONNX nodes of the ops left apart.
  llvm::SmallVector<llvm::StringRef, 2> apart;

  // Fields of a near match in the order of a sentence.
  Remark &of(llvm::StringRef what) { return pattern = what.str(), *this; }
  Remark &after(llvm::StringRef what) { return matched = what.str(), *this; }
  Remark &stoppedBy(const Obstacle &obstacle);
  /// `ops` would be one op between the values they read from outside and those that are used
  /// outside.
  Remark &costing(llvm::ArrayRef<Op *> ops);
};

/// A number in a message, in at most six digits.
std::string shortNumber(double x);

/// Whether `op` becomes a launch: it computes something on the device.
bool isLaunched(const Op &op);
/// The fewest bytes one execution of `op` reads and writes.
Dim leastBytes(const Op &op);

/// Symbols of a function by what they stand for: `batch` and `seq` are the axes of its ids, `past`
/// is the length of past keys. Others keep their names.
Dim inStepSymbols(const Dim &d, const Function &f);

/// Sizes of the step for which costs are stated: one sequence whose context is full.
struct StepSizes {
  int64_t seq = 1, past = 0;
  /// With a KV state a step is one token behind the others, without it all of them.
  static StepSizes of(const Module &module, int64_t maxContext);
};
/// Bytes at these sizes; other symbols count as past + seq.
int64_t bytesAt(const Dim &d, const StepSizes &sizes);

} // namespace gpt2c
