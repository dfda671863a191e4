// Parameters that the kernels of products share, and the template arguments that pass them on.
#pragma once

#include "codegen/KernelWriter.h"
#include "templates/linear/Problem.h"
#include "templates/linear/parts/ConfigList.h"
#include "templates/linear/parts/TmaTiles.h"

namespace gpt2c {

/// x, W and y of a product and their rows.
inline void operandParams(KernelWriter &w, Scalar x, Scalar weights, Scalar y) {
  w.constPointer(x, "x");
  w.constPointer(weights, "w");
  w.pointer(y, "y");
  w.params("int", {"m", "n"});
}

/// Whether the kernel computes a norm.
inline bool normParams(KernelWriter &w, FusedNorm norm, Scalar p) {
  if (norm == FusedNorm::None)
    return false;
  w.constPointer(p, "gain");
  w.constPointer(p, "shift");
  w.param("float", "epsilon");
  return true;
}
inline const char *normArguments(bool norm) {
  return norm ? "gain, shift, epsilon" : "nullptr, nullptr, 0.0f";
}

/// The same for a norm that is taken out of the sums.
inline bool normSumParams(KernelWriter &w, FusedNorm norm, Scalar p) {
  if (norm == FusedNorm::None)
    return false;
  w.constPointer(p, "gain");
  w.params("const float *", {"rowSums", "shiftSums"});
  w.param("float", "epsilon");
  return true;
}
inline const char *normSumArguments(bool norm) {
  return norm ? "gain, rowSums, shiftSums, epsilon" : "nullptr, nullptr, nullptr, 0.0f";
}

inline void splitKParams(KernelWriter &w, int splitK) {
  if (splitK <= 1)
    return;
  w.param("float *", "partial");
  w.param("unsigned *", "counters");
}
inline const char *splitKArguments(int splitK) {
  return splitK > 1 ? "partial, counters" : "nullptr, nullptr";
}

/// Scales of the groups of quantised operands and results.
inline void groupMembers(KernelWriter &w, int xGroup, int yGroup) {
  w.constant("XGroup", xGroup);
  w.constant("YGroup", yGroup);
}
inline void groupParams(KernelWriter &w, int xGroup, int yGroup) {
  if (xGroup > 0)
    w.param("const float *", "xScale");
  if (yGroup > 0)
    w.param("float *", "yScale");
}
inline std::string groupArguments(int xGroup, int yGroup) {
  return std::string(xGroup > 0 ? "xScale" : "nullptr") + (yGroup > 0 ? ", yScale" : ", nullptr");
}

/// Scales of groups of weights; returns the argument.
inline const char *weightScales(KernelWriter &w, int group) {
  if (group <= 0)
    return "nullptr";
  w.param("const float *", "wScale");
  return "wScale";
}
/// Where the largest elements are left, y being optional then; returns the argument.
inline const char *largest(KernelWriter &w, bool best) {
  if (!best)
    return "nullptr";
  w.param("u64 *", "best");
  w.optional("y");
  return "best";
}

/// The parts of the statistics that a norm is taken out of the sums with, as template arguments.
inline std::string normParts(const LinearTmaConfig &c) {
  return "<" + std::to_string(c.normParts) + ", " + std::to_string(c.normWidth) + ">";
}
/// What becomes of the statistics of y.
inline std::string statisticsParam(KernelWriter &w, const LinearTmaConfig &c) {
  if (!c.statistics)
    return "NoStatistics{}";
  w.param("float2 *", "yStatistics");
  return "RowStatistics{yStatistics}";
}
/// Whether rows of a block with a single tile leave in lines: nothing of y's shape is read with
/// them, of which a thread would need other elements than it has.
inline bool leavesInLines(const LinearTmaConfig &c, const Epilogue &epilogue) {
  auto isMatrix = [](const EpilogueStage &stage) {
    return stage.kind == EpilogueStage::AddMatrix || stage.kind == EpilogueStage::MulMatrix ||
           stage.kind == EpilogueStage::AddLastRows;
  };
  return c.splitK == 1 && c.y == Scalar::F16 && c.n % c.bn == 0 &&
         llvm::none_of(epilogue, isMatrix);
}

/// Rows as kernels that compute all of them in a block count them.
inline int powerOfTwoRows(const LinearShape &s) {
  int rows = 8;
  while (rows < s.rows)
    rows *= 2;
  return rows;
}

} // namespace gpt2c
