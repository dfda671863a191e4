// The record of linear_mma.
#include "templates/linear/mma/LinearMma.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const LinearMmaConfig &c) {
  return llvm::formatv("{0} warps={1}x{2}", tileName("linear_mma", c), c.warpsM, c.warpsN).str();
}

Grid gridOf(const LinearMmaConfig &c, const plan::ExprT &m, int64_t n, int64_t) {
  return tileGrid(c, m, n);
}

KernelSource linearMma(llvm::StringRef name, const LinearMmaConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/mma/linear_mma.cuh", "tile::linearMma");
  w.type("X", c.x);
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("BK", c.bk);
  w.constant("WarpsM", c.warpsM);
  w.constant("WarpsN", c.warpsN);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  groupMembers(w, c.xGroup, c.yGroup);
  passOperandsAndK(w, c.x, c.x, c.y);
  passGroups(w, c.xGroup, c.yGroup);
  passSplitK(w, c.splitK);
  passTileIndex(w);
  passShared(w, cudaType(c.x));
  w.pass(writeEpilogue(w, epilogue));
  const unsigned shared = c.stages * (c.bm + c.bn) * (c.bk * scalarBytes(c.x) + 16);
  w.checkSizes("LinearMma");
  return w.finish(32 * c.warpsM * c.warpsN, shared);
}

namespace linear_mma {

std::vector<LinearMmaConfig> configs(const LinearProblem &p) {
  if (p.x != Scalar::I8)
    return {{p.y, 64, 128, 32, 2, 4, 4, 1, p.x}};
  LinearMmaConfig c = {p.y, 64, 64, 64, 2, 2, 4, 1, Scalar::I8};
  c.xGroup = std::max<int64_t>(p.int8.group, 0);
  if (c.xGroup % c.bk != 0)
    c.bk = 32;
  return {c};
}

std::string refusal(const LinearProblem &p) {
  if (p.x != Scalar::I8)
    return "";
  if (p.fused.end == ProductEndKind::Gate)
    return "a gate of int8 rows";
  if (std::string why = int8Refusal(p); !why.empty())
    return why;
  return p.int8.group > 0 && p.int8.group % 32 != 0 ? "groups of rows that are no multiple of 32"
                                                    : "";
}
llvm::Error emit(LinearLaunch &l, const LinearMmaConfig &c) {
  return l.launchTiles(linearMma(l.name("linear_mma"), c, l.call.epilogue), c);
}
} // namespace linear_mma

const LinearKernel &linearMmaKernel() {
  using namespace linear_mma;
  static const LinearKernelOf<LinearMmaConfig> kernel({
      .name = "linear_mma",
      .summary = "fp16, bf16 or int8 on any architecture, any K: the tile that always works",
      .can = {LinearAbility::F16, LinearAbility::BF16, LinearAbility::I8, LinearAbility::I8ToBF16,
              LinearAbility::RowGroups, LinearAbility::Gate, LinearAbility::Rotation,
              LinearAbility::AnyRows},
      .refusal = refusal,
      .configs = configs,
      .emit = emit,
      .sumOrder =
          [](const LinearMmaConfig &c, const LinearProblem &) {
            return c.x == Scalar::I8 && c.xGroup == 0
                       ? std::string("linear_mma of integers, exact")
                       : inParts(llvm::formatv("linear_mma k={0} groups={1}", c.bk, c.xGroup).str(),
                                 c.splitK);
          },
  });
  return kernel;
}

} // namespace gpt2c
