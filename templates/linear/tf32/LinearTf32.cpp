// The record of linear_tf32.
#include "templates/linear/tf32/LinearTf32.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

namespace gpt2c {

KernelSource linearTf32(llvm::StringRef name, const LinearTf32Config &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/tf32/linear_tf32.cuh", "tile::linearTf32");
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("WarpsM", c.warpsM);
  w.constant("WarpsN", c.warpsN);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  passOperandsAndK(w, Scalar::F32, Scalar::F32, c.y);
  passSplitK(w, c.splitK);
  passTileIndex(w);
  passShared(w, "float");
  w.pass(writeEpilogue(w, epilogue));
  w.checkSizes("LinearTf32");
  return w.finish(32 * c.warpsM * c.warpsN, tf32SharedBytes(c), c.blocks);
}

namespace linear_tf32 {

std::string slower(const LinearProblem &p) {
  return std::holds_alternative<LinearTf32Config>(bestTf32Tile(p)) ? ""
                                                                   : "linear_tf32_wgmma costs less";
}
bool rivals(const LinearProblem &, llvm::StringRef leader) { return leader == "linear_tf32_wgmma"; }
std::vector<LinearTf32Config> configs(const LinearProblem &p) {
  return only<LinearTf32Config>(tf32Candidates(p));
}
llvm::Error emit(LinearLaunch &l, const LinearTf32Config &c) {
  return l.launchTiles(linearTf32(l.name("linear_tf32"), c, l.call.epilogue), c);
}
} // namespace linear_tf32

const LinearKernel &linearTf32Kernel() {
  using namespace linear_tf32;
  static const LinearKernelOf<LinearTf32Config> kernel({
      .name = "linear_tf32",
      .summary = "fp32 on tensor cores of any architecture, each product as three of TF32",
      .can = {LinearAbility::Tf32, LinearAbility::Gate, LinearAbility::Rotation,
              LinearAbility::AnyRows},
      .refusal = tf32Refusal,
      .slower = slower,
      .rivals = rivals,
      .configs = configs,
      .cost = [](const LinearTf32Config &c, const LinearProblem &p) { return tf32Cost(c, p); },
      .emit = emit,
      .sumOrder = [](const LinearTf32Config &c,
                     const LinearProblem &) { return inParts("3xtf32 mma.k8", c.splitK); },
  });
  return kernel;
}

} // namespace gpt2c
