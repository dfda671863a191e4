// The record of linear_rowdot.
#include "templates/linear/rowdot/LinearRowDot.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const LinearRowDotConfig &c) {
  return llvm::formatv("linear_rowdot cols={0} warps={1} split={2}", c.cols, c.warps, c.kSplit)
      .str();
}

Grid gridOf(const LinearRowDotConfig &c, const plan::ExprT &, int64_t n, int64_t) {
  return blocks(divideCeilSigned(n, rowDotColumns(c)));
}

KernelSource linearRowDot(llvm::StringRef name, const LinearRowDotConfig &c,
                          const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/rowdot/linear_rowdot.cuh", "tile::linearRowDot");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("Cols", c.cols);
  w.constant("KSplit", c.kSplit);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  w.constant("WGroup", c.wGroup);
  w.flag("WZeros", c.wZeros);
  normMember(w, c.norm);
  passOperands(w, c.x, c.w, c.y);
  passWeightScales(w, c.wGroup, c.wZeros);
  passNorm(w, c.norm, c.p);
  const unsigned bytes = c.rows * c.k * scalarBytes(c.x);
  const bool norm = c.norm != NormKind::None;
  const unsigned shared = norm || bytes <= 32 * 1024 ? (bytes + 15) / 16 * 16 : 0;
  w.pass("blockIdx.x");
  w.pass(shared ? "(char *)dynamicShared" : "nullptr");
  w.pass(writeEpilogue(w, epilogue));
  w.checkSizes("RowDot");
  w.check("RowDot", "colsPerBlock", rowDotColumns(c));
  return w.finish(32 * c.warps, shared);
}

namespace linear_rowdot {

LinearRowDotConfig rowDotConfig(const LinearProblem &s) {
  LinearRowDotConfig c;
  c.x = s.x;
  c.w = s.w;
  c.y = s.y;
  c.k = s.k;
  c.wGroup = int(s.wGroup);
  c.wZeros = s.wZeros;
  c.norm = s.fused.norm;
  c.p = s.fused.gain;
  for (c.rows = 1; c.rows < s.rows;)
    c.rows *= 2;
  if (s.isNarrow() && c.rows == 1 && !s.hasPairs()) // by the tuner
    c.cols = 1;
  // Warps share columns until there are two blocks for each multiprocessor, as long as each lane
  // still has two loads in flight; one row of fp32 in four parts at most.
  int64_t vector = 128 / infoOf(c.w).bits;
  const int most = c.rows == 1 && !s.isNarrow() ? 4 : c.warps;
  while (c.kSplit < most && s.n / rowDotColumns(c) < 2 * s.target.multiprocessors &&
         c.k >= 64 * vector * c.kSplit)
    c.kSplit *= 2;
  return c;
}

std::vector<LinearRowDotConfig> configs(const LinearProblem &p) {
  const LinearRowDotConfig model = rowDotConfig(p);
  ConfigList list(model);
  if (isQuantised(model.w))
    return list.take();
  const int vector = 16 / scalarBytes(model.w);
  for (int warps : {4, 8})
    for (int cols : {1, 2, 4})
      for (int split = 1; split <= warps; split *= 2) {
        LinearRowDotConfig c = model;
        c.warps = warps;
        c.cols = cols;
        c.kSplit = split;
        // Registers for the weights on their way and the sums; lanes without any weights;
        // multiprocessors without a block where smaller ones would do.
        if (cols * model.rows > 16 || (p.hasPairs() && cols == 1) ||
            (split > 1 && 32 * vector * split > model.k) ||
            (cols > 1 && 4 * divideCeilSigned(p.n, rowDotColumns(c)) < p.target.multiprocessors))
          continue;
        list.add(c);
      }
  return list.take();
}

std::string refusal(const LinearProblem &p) {
  return p.k == 0                                 ? "K is 0"
         : p.rows > 8                             ? "more than 8 rows"
         : p.wGroup != 0 && infoOf(p.w).bits >= 8 ? "groups of weights of a byte"
                                                  : "";
}
std::string slower(const LinearProblem &p) {
  return p.tf32 && p.isWide() && p.rows > 4 ? "more than 4 rows of a vocabulary: linear_tf32"
         : areRowsForTiles(p)               ? "tiles cost less: linear_tma"
                                            : "";
}
bool rivals(const LinearProblem &p, llvm::StringRef leader) {
  return p.rows == 1 && (leader == "linear_rows" || leader == "linear_ring");
}
llvm::Error emit(LinearLaunch &l, const LinearRowDotConfig &c) {
  if (llvm::Error e = l.addNorm())
    return e;
  return l.launch(linearRowDot(l.name("linear_rowdot"), c, l.call.epilogue), c);
}
} // namespace linear_rowdot

const LinearKernel &linearRowDotKernel() {
  using namespace linear_rowdot;
  static const LinearKernelOf<LinearRowDotConfig> kernel({
      .name = "linear_rowdot",
      .summary = "up to 8 rows of any type: warps share columns, a norm comes with the rows",
      .can = {LinearAbility::F32,
              LinearAbility::Tf32,
              LinearAbility::F16,
              LinearAbility::BF16,
              LinearAbility::F32Bytes,
              LinearAbility::F16Bytes,
              LinearAbility::BF16Bytes,
              LinearAbility::FloatSteps,
              LinearAbility::F32Nibbles,
              LinearAbility::F16Nibbles,
              LinearAbility::BF16Nibbles,
              LinearAbility::WeightGroups,
              LinearAbility::WeightZeros,
              LinearAbility::MixedTypes,
              LinearAbility::Norm,
              LinearAbility::NormBySums,
              LinearAbility::NormByStatistics,
              LinearAbility::NormGain,
              LinearAbility::Gate,
              LinearAbility::Rotation},
      .refusal = refusal,
      .slower = slower,
      .rivals = rivals,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
