// The record of linear_tf32_wgmma.
#include "templates/linear/tf32_wgmma/LinearTf32Wgmma.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

namespace gpt2c {

KernelSource linearTf32Wgmma(llvm::StringRef name, const LinearTf32WgmmaConfig &c,
                             const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/tf32_wgmma/linear_tf32_wgmma.cuh",
                 "tile::linearTf32Wgmma");
  w.type("Y", c.y);
  w.constant("BM", c.bm);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("SplitK", c.splitK);
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  passMaps(w);
  w.out("y", c.y);
  passIntegers(w, {"m", "n", "k"});
  passTileIndex(w);
  w.pass("dynamicShared");
  w.pass(writeEpilogue(w, epilogue));
  w.checkSizes("LinearTf32Wgmma");
  return w.finish(2 * c.bm + 128, tf32SharedBytes(c), 1);
}

namespace linear_tf32_wgmma {

std::string refusal(const LinearProblem &p) {
  return p.rows <= 32 ? "up to 32 rows" : tf32Refusal(p);
}
std::string slower(const LinearProblem &p) {
  return std::holds_alternative<LinearTf32WgmmaConfig>(bestTf32Tile(p)) ? ""
                                                                        : "linear_tf32 costs less";
}
bool rivals(const LinearProblem &, llvm::StringRef leader) { return leader == "linear_tf32"; }
std::vector<LinearTf32WgmmaConfig> configs(const LinearProblem &p) {
  return only<LinearTf32WgmmaConfig>(tf32Candidates(p));
}
llvm::Error emit(LinearLaunch &l, const LinearTf32WgmmaConfig &c) {
  l.addMaps(c.bm, c.bn, 2 * l.p.k, 2 * l.p.k);
  return l.launch(linearTf32Wgmma(l.name("linear_tf32_wgmma"), c, l.call.epilogue), c);
}
} // namespace linear_tf32_wgmma

const LinearKernel &linearTf32WgmmaKernel() {
  using namespace linear_tf32_wgmma;
  static const LinearKernelOf<LinearTf32WgmmaConfig> kernel({
      .name = "linear_tf32_wgmma",
      .summary = "more than 32 rows in fp32 on Hopper, three products of TF32 by wgmma",
      .needs = wgmmaTiles,
      .can = {LinearAbility::Tf32, LinearAbility::Gate, LinearAbility::Rotation},
      .refusal = refusal,
      .slower = slower,
      .rivals = rivals,
      .configs = configs,
      .cost = [](const LinearTf32WgmmaConfig &c, const LinearProblem &p) { return tf32Cost(c, p); },
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
