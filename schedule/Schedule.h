// What a function's launches are: which ops each covers, as what, and by which kernel. Decided
// once, before anything is emitted; emission asks nobody. See docs/schedule.md.
#pragma once

#include "ir/Function.h"
#include "schedule/MlpProblem.h"
#include "schedule/attention/AttentionProblem.h"
#include "schedule/attention/PagedProblem.h"
#include "schedule/products/LinearKernels.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace gpt2c {

/// Where there were several configurations: what the choice depended on, as tuning files call it,
/// the one that was taken, and in a batch-invariant plan the order of its sums.
struct Choice {
  std::string key, name, sumOrder;
};

/// How a product with quantised weights comes to its result.
struct Int8Product {
  /// Its rows: floats that a kernel reads as they are, quantised as they come, or in front of it
  /// by a launch.
  enum Rows { Floats, Given, Quantised } rows = Floats;
  /// Elements of a row that share a scale; 0: a row, -1: all.
  int64_t rowGroup = 0;
  bool integers = false;  ///< products of rows that are quantised
  bool rowScales = false; ///< of these: the epilogue multiplies by a scale for each row
  bool widened = false;   ///< what is quantised becomes floats by launches in front of it
  /// Of requantized_linear: the kernel quantises what it stores, or a launch behind it does.
  enum Result { Floating, InEpilogue, Behind } result = Floating;
  int64_t resultGroup = 0; ///< like rowGroup
};

/// A sum over ranks, and what is added to it behind it.
struct AllReduceGroup {
  Op *reduce = nullptr;
  Op *last = nullptr;            ///< whose result is stored, and whose place the launch has
  Value *bias = nullptr;         ///< of each column; null: none
  Value *residual = nullptr;     ///< likewise, as large as the result
  std::string what = {};         ///< "all_reduce+bias+residual"
  RowStatistics statistics = {}; ///< of the result that it leaves; none: no parts
  bool sent = false;             ///< the product in front has sent its sums to all ranks
  bool received = false;         ///< it adds them itself, unless ranks share a device
  bool scattered = false;        ///< each rank ends some rows for all, unless ranks share a device
  bool awaited = false;          ///< scattered: the launch behind waits for the others' rows
  int64_t processors = 0;        ///< of the target
  static constexpr int statisticsWidth = 32;
};

/// A product with weights.
struct LinearGroup {
  Op *product = nullptr;
  Op *norm = nullptr;           ///< of its rows, that its kernel computes or takes out of the sums
  Op *end = nullptr;            ///< behind it, that its epilogue ends with: problem.fused.end
  bool residualInPlace = false; ///< its residual is a gather_last: it reads where that comes from
  std::string what = {};        ///< ops and epilogue: "layer_norm+linear+bias"
  LinearProblem problem;
  LinearCandidate taken = {};
  Choice choice = {};
  int statisticsWidth = 0; ///< of a part of the statistics of its result that it leaves; 0: none
  std::optional<Int8Product> int8 = {};   ///< of a quantised form
  std::optional<AllReduceGroup> sum = {}; ///< over ranks, that is part of it

  /// Whose result it stores, and whose place the launch has.
  Op *last() const { return sum ? sum->last : end ? end : product; }
};

/// Both products of an MLP, and the norm before them.
struct MlpGroup {
  Op *hidden, *output;
  MlpProblem problem;
  MlpCandidate taken;
  const Op *ahead; ///< attention behind it, whose state the kernel brings into L2; null: none
};

/// Attention over the KV state.
struct AttentionGroup {
  Op *attention = nullptr;
  Op *rope = nullptr; ///< that the kernel computes first; null: none
  AttentionProblem problem = {};
  AttentionCandidate taken = {};
  Choice choice = {};
  /// Its value quantised: no, by a given scale, by scales that the kernel finds, or by a launch
  /// behind it.
  enum Quantise { No, ByGivenScale, ByOwnScales, Behind } quantise = No;
};

/// Attention over a KV state in pages, of rows of any sequences.
struct PagedGroup {
  Op *attention = nullptr;
  PagedProblem problem = {};
  PagedCandidate taken = {};
};

/// An embedding that leaves statistics of its rows.
struct EmbedGroup {
  Op *embed;
  RowStatistics statistics = {}; ///< none: no parts
};

/// The index of the largest element of each row, from those of parts that the product left.
struct LargestGroup {
  Op *argMax;
  Value *of; ///< the product's result
};

/// A launch for one op by itself, or as many as its lowering takes.
struct OwnGroup {
  Op *op;
};
/// Nothing is left to do for an op.
struct DoneGroup {
  Op *op;
  enum Why { Constant, View, Fused, ReadInPlace } why;
};
/// No kernel computes it.
struct RefusedGroup {
  Op *op;
  std::string why;
};

struct Group {
  std::variant<OwnGroup, DoneGroup, RefusedGroup, LinearGroup, MlpGroup, AttentionGroup, PagedGroup,
               EmbedGroup, LargestGroup, AllReduceGroup>
      as;
  std::vector<NearMiss> misses = {};

  template <typename T> const T *get() const { return std::get_if<T>(&as); }
};

/// The groups of a function in the order of their launches.
struct Schedule {
  std::vector<Group> groups;
};

} // namespace gpt2c
