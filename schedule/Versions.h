// The versions that a plan has of a function, and how large the symbols of each may be.
#pragma once

#include "ir/Function.h"
#include "schedule/cost/Bounds.h"

#include <utility>
#include <vector>

namespace gpt2c {

/// Whether `f` is another form of a function for some of its calls, functions::prefillShort or an
/// widened one: the plan has it under that function's name, and other devices do without.
bool isOtherForm(const Function &f);

/// The KV state as functions are given it; null: there is none.
const Value *kvState(const Module &module);
/// Sequences of a call at most: `asked`, unless the export takes one number of them alone.
int64_t mostSequences(const Module &module, int64_t asked);
/// Tokens of a sequence that the KV state holds; `otherwise` where there is none.
int64_t contextOf(const Module &module, int64_t otherwise);

/// For the limits of one plan. `given`: bounds of symbols by name, before all others.
class Versions {
public:
  /// A call of @extend of more rows and so few segments is of prompts in the main: it has versions
  /// of its own, in which the rows that are left behind the last attention, one of each segment,
  /// are computed as @decode computes them.
  static constexpr int64_t fewSegments = 8;

  Versions(int64_t maxBatch, int64_t context, const SymbolBounds &given)
      : maxBatch_(maxBatch), context_(context), given_(given) {}

  /// Bounds of the symbols of `f` with up to `batch` sequences: by name in the functions over the
  /// KV state, by the inputs they belong to in an exported graph, whose symbols are named as the
  /// exporter liked.
  SymbolBounds bounds(const Function &f, int64_t batch) const;

  /// The largest batch and sequence of each version of a function over the KV state, smallest
  /// first: what a step should look like depends on how many rows it has.
  std::vector<std::pair<int64_t, int64_t>> boxes(const Function &f, const Module &module) const;

  /// The most rows and segments of each version of @extend, smallest first, and the bounds of its
  /// symbols then. The last version takes all calls. `prompts`: also versions for few segments.
  struct RowsBox {
    int64_t rows, segments;
  };
  std::vector<RowsBox> rowsBoxes(bool prompts = true) const;
  SymbolBounds boundsOfRows(const Function &f, const RowsBox &box) const;

private:
  int64_t maxBatch_, context_;
  const SymbolBounds &given_;
};

} // namespace gpt2c
