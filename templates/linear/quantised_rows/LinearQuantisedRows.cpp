// The record of linear_quantised_rows.
#include "templates/linear/quantised_rows/LinearQuantisedRows.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const LinearQuantisedRowsConfig &c) {
  return llvm::formatv("linear_quantised_rows warps={0} split={1}", c.warps, c.kSplit).str();
}

Grid gridOf(const LinearQuantisedRowsConfig &c, const plan::ExprT &, int64_t n, int64_t) {
  return blocks(divideCeilSigned(n, quantisedRowsColumns(c)));
}

KernelSource linearQuantisedRows(llvm::StringRef name, const LinearQuantisedRowsConfig &c,
                                 const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/quantised_rows/linear_quantised_rows.cuh",
                 "tile::linearQuantisedRows");
  w.type("X", Scalar::F16);
  w.type("W", Scalar::I8);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("Rows", c.rows);
  w.constant("KSplit", c.kSplit);
  w.constant("Warps", c.warps);
  w.constant("K", c.k);
  w.constant("WGroup", c.wGroup);
  w.constant("XGroup", c.xGroup);
  normMember(w, c.norm);
  passOperands(w, Scalar::F16, Scalar::I8, c.y);
  passWeightScales(w, c.wGroup);
  passNorm(w, c.norm, c.p);
  const bool norm = c.norm != NormKind::None;
  const unsigned shared = norm || c.xGroup >= 0 ? quantisedRowsBytes(c) : 0;
  w.pass("blockIdx.x");
  w.pass(shared ? "(__half *)dynamicShared" : "nullptr");
  w.pass(writeEpilogue(w, epilogue));
  w.checkSizes("QuantisedRows");
  w.check("QuantisedRows", "columns", quantisedRowsColumns(c));
  return w.finish(32 * c.warps, shared);
}

namespace linear_quantised_rows {

LinearQuantisedRowsConfig config(const LinearProblem &p) {
  LinearQuantisedRowsConfig c;
  c.y = p.y;
  c.k = p.k;
  c.norm = p.fused.norm;
  c.p = p.fused.gain;
  c.wGroup = p.wGroup;
  c.xGroup = p.xGroup;
  c.rows = powerOfTwoRows(p);
  // A chunk of 64 k for each warp at least; fewer warps where each has many rows to load.
  const bool narrow = p.n < 16 * p.target.multiprocessors;
  int warps = p.isWide()   ? (c.rows <= 16 ? 4 : 6)
              : c.k > 1024 ? (c.rows <= 16   ? 16
                              : c.rows == 32 ? 12
                                             : 8)
                           : (c.rows <= 16 || (narrow && c.rows == 32) ? 12 : 6);
  c.kSplit = c.warps = std::min<int64_t>(warps, divideCeilSigned(c.k, 64));
  return c;
}
std::vector<LinearQuantisedRowsConfig> configs(const LinearProblem &p) { return {config(p)}; }

std::string refusal(const LinearProblem &p) {
  if (p.k == 0 || p.k % 16 != 0)
    return "K is no multiple of 16";
  if (p.wGroup % 64 != 0)
    return "groups of weights that are no multiple of 64";
  if (p.rows > (p.xGroup >= 0 ? 16 : 64))
    return "more than 64 rows, or 16 that it quantises";
  if (p.xGroup > 0 && p.xGroup != 64 && p.xGroup != 128 && p.xGroup != 256)
    return "groups of rows that are not of 64, 128 or 256";
  const LinearQuantisedRowsConfig c = config(p);
  if (p.xGroup >= 0 && quantisedRowsBytes(c) > 64 * 1024)
    return "no room for the quantised rows";
  return p.hasNorm() && (c.rows > 16 || quantisedRowsBytes(c) > 32 * 1024)
             ? "no room for rows that are normed"
             : "";
}
llvm::Error emit(LinearLaunch &l, const LinearQuantisedRowsConfig &c) {
  if (llvm::Error e = l.addNorm())
    return e;
  return l.launch(linearQuantisedRows(l.name("linear_quantised_rows"), c, l.call.epilogue), c);
}
} // namespace linear_quantised_rows

const LinearKernel &linearQuantisedRowsKernel() {
  using namespace linear_quantised_rows;
  static const LinearKernelOf<LinearQuantisedRowsConfig> kernel({
      .name = "linear_quantised_rows",
      .summary = "a few rows in fp16 with int8 weights; up to 16 that it quantises itself",
      .can = {LinearAbility::F16Bytes, LinearAbility::WeightGroups, LinearAbility::QuantisesRows,
              LinearAbility::Norm, LinearAbility::NormBySums, LinearAbility::NormByStatistics,
              LinearAbility::NormGain},
      .refusal = refusal,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
