// Parameters that the kernels of products share, and the template arguments that pass them on.
#pragma once

#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/ConfigList.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/TmaTiles.h"

namespace gpt2c {

// The structs that functions of products take are those of templates/linear/parts/operands.cuh.

/// A struct of integers.
inline void passIntegers(KernelWriter &w, llvm::ArrayRef<llvm::StringRef> names) {
  w.group([&] {
    for (llvm::StringRef name : names)
      w.i32(name);
  });
}
/// x, W and y of a product, and its extent.
inline void passOperands(KernelWriter &w, Scalar x, Scalar weights, Scalar y) {
  w.in("x", x);
  w.in("w", weights);
  w.out("y", y);
  passIntegers(w, {"m", "n"});
}
/// The same where K is no constant of the template: with its sizes.
inline void passOperandsAndK(KernelWriter &w, Scalar x, Scalar weights, Scalar y) {
  w.in("x", x);
  w.in("w", weights);
  w.out("y", y);
  passIntegers(w, {"m", "n", "k"});
}
/// Tensor maps of x and W.
inline void passMaps(KernelWriter &w) {
  w.map("xMap");
  w.map("wMap");
}
/// The block's tile, whose rows go along x of the grid, or along y.
inline void passTileIndex(KernelWriter &w, bool rowsAlongX = true) {
  w.pass(rowsAlongX ? "{(int)blockIdx.x, (int)blockIdx.y, (int)blockIdx.z}"
                    : "{(int)blockIdx.y, (int)blockIdx.x, (int)blockIdx.z}");
}
/// The block's turn at tiles.
inline void passTurn(KernelWriter &w) { w.pass("{(int)blockIdx.x, (int)gridDim.x}"); }
/// Dynamic shared memory, as elements of a type.
inline void passShared(KernelWriter &w, llvm::StringRef cuda) {
  w.pass("(" + cuda + " *)dynamicShared");
}

inline void normMember(KernelWriter &w, NormKind norm) {
  w.member("static constexpr NormKind Norm = NormKind::" + nameOf(norm) + ";");
}
/// A norm that the kernel computes.
inline void passNorm(KernelWriter &w, NormKind norm, Scalar p) {
  const bool present = norm != NormKind::None;
  w.group([&] {
    w.in("gain", p, present);
    w.in("shift", p, present);
    w.value("float", "epsilon", present, "0.0f");
  });
}
/// The same for a norm that is folded into the epilogue.
inline void passNormSums(KernelWriter &w, NormKind norm, Scalar p) {
  const bool present = norm != NormKind::None;
  w.group([&] {
    w.in("gain", p, present);
    w.in("rowSums", Scalar::F32, present);
    w.in("shiftSums", Scalar::F32, present);
    w.value("float", "epsilon", present, "0.0f");
  });
}

/// Where parts of K meet in memory.
inline void passSplitK(KernelWriter &w, int splitK) {
  w.group([&] {
    w.out("partial", Scalar::F32, splitK > 1);
    w.value("unsigned *", "counters", splitK > 1);
  });
}

/// Scales of the groups of quantised operands and results.
inline void groupMembers(KernelWriter &w, int xGroup, int yGroup) {
  w.constant("XGroup", xGroup);
  w.constant("YGroup", yGroup);
}
inline void passGroups(KernelWriter &w, int xGroup, int yGroup) {
  w.group([&] {
    w.in("xScale", Scalar::F32, xGroup > 0);
    w.out("yScale", Scalar::F32, yGroup > 0);
  });
}
/// Scales of groups of weights.
inline void passWeightScales(KernelWriter &w, int group) { w.in("wScale", Scalar::F32, group > 0); }
/// The same with zero points.
inline void passWeightScales(KernelWriter &w, int group, bool zeros) {
  w.group([&] {
    passWeightScales(w, group);
    w.in("wZero", Scalar::I8, zeros);
  });
}
/// Where the largest elements are left, y being optional then, and the rows that are drawn.
inline void passLargest(KernelWriter &w, bool best) {
  w.group([&] {
    w.value("u64 *", "best", best);
    w.value("const int *", "choices", best);
  });
  if (best)
    w.optional("y");
}

/// The parts of the statistics that a norm is folded by, as template arguments.
template <typename Config> std::string normParts(const Config &c) {
  return "<" + std::to_string(c.normParts) + ", " + std::to_string(c.normWidth) +
         (c.rms ? ", true>" : ">");
}
/// A norm without gain and shift that is folded by the statistics of x.
template <typename Config> void passFoldedNorm(KernelWriter &w, const Config &c) {
  if (c.normParts == 0)
    return w.pass("NoNorm{}");
  const std::string statistics = w.declare("const float2 *", "xStatistics"),
                    sums = c.rms ? "nullptr" : w.declare("const float *", "rowSums"),
                    epsilon = w.declare("float", "epsilon");
  w.pass("FoldedNorm" + normParts(c) + "{" + statistics + ", " + sums + ", " + epsilon + "}");
}
/// What becomes of the statistics of y.
template <typename Config> void passStatistics(KernelWriter &w, const Config &c) {
  w.pass(c.statistics ? "RowStatistics{" + w.declare("float2 *", "yStatistics") + "}"
                      : "NoStatistics{}");
}
/// Whether rows of a block with a single tile leave in lines: nothing of y's shape is read with
/// them, of which a thread would need other elements than it has, and where a gate halves them, two
/// column tiles fill a unit of a line.
template <typename Config> bool leavesInLines(const Config &c, const Epilogue &epilogue) {
  auto isMatrix = [](const EpilogueStage &stage) {
    return stage.kind == EpilogueStage::AddMatrix || stage.kind == EpilogueStage::MulMatrix ||
           stage.kind == EpilogueStage::AddLastRows || stage.kind == EpilogueStage::Receive;
  };
  const bool gated = !epilogue.empty() && epilogue.back().kind == EpilogueStage::Gate;
  return c.splitK == 1 && isNarrow(c.y) && c.n % c.bn == 0 && c.n % 8 == 0 &&
         c.bn % (gated ? 16 : 8) == 0 && llvm::none_of(epilogue, isMatrix);
}

/// Rows as kernels that compute all of them in a block count them.
inline int powerOfTwoRows(const LinearShape &s) {
  int rows = 8;
  while (rows < s.rows)
    rows *= 2;
  return rows;
}

} // namespace gpt2c
