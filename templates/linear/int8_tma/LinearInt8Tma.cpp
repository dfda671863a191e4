// The record of linear_int8_tma.
#include "templates/linear/int8_tma/LinearInt8Tma.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

namespace gpt2c {

KernelSource linearInt8Tma(llvm::StringRef name, const LinearInt8TmaConfig &c,
                           const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/int8_tma/linear_int8_tma.cuh", "tile::linearInt8Tma");
  w.type("X", c.x);
  describeInt8Tile(w, c);
  w.constant("BM", c.bm);
  w.constant("SplitK", c.splitK);
  w.constant("XGroup", c.xGroup);
  w.flag("Residual", c.residual);
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  passMaps(w);
  w.value("const __grid_constant__ TensorMap", "rMap", c.residual, "xMap");
  w.out("y", c.y);
  w.i32("m");
  passGroups(w, c.rowScale || c.xGroup > 0, c.yGroup);
  passTileIndex(w);
  w.pass("dynamicShared");
  w.pass(writeEpilogue(w, epilogue, std::to_string(c.n)));
  if (c.given != Given::None)
    w.pass(w.given(c.given));
  w.checkSizes("LinearInt8Tma");
  KernelSource kernel = w.finish(c.bm == 128 ? 384 : 160, int8TmaSharedBytes(c), c.blocks);
  if (c.oneCtaPerSm) // more than half of what there is
    kernel.sharedBytes = std::max(kernel.sharedBytes, 114u * 1024);
  return kernel;
}

namespace linear_int8_tma {

/// Sums of integers are exact in any order; those of units are added up tile by tile.
std::string sumOrder(const LinearInt8TmaConfig &c, const LinearProblem &) {
  std::string order = "linear_int8_tma of integers, exact";
  if (c.unit() > 0)
    order = inParts(llvm::formatv("linear_int8_tma {0}={1} of {2}x{3}",
                                  c.xGroup > 0 ? "groups" : "fp8 in", c.unit(), c.bm, c.bn)
                        .str(),
                    c.splitK);
  return c.residual ? order + ", residual by map" : order;
}
llvm::Error emit(LinearLaunch &l, const LinearInt8TmaConfig &config) {
  LinearInt8TmaConfig c = config;
  addInt8TmaArguments(l, c);
  return l.launch(linearInt8Tma(l.name("linear_int8_tma"), c, l.call.epilogue), c);
}
} // namespace linear_int8_tma

const LinearKernel &linearInt8TmaKernel() {
  using namespace linear_int8_tma;
  static const LinearKernelOf<LinearInt8TmaConfig> kernel({
      .name = "linear_int8_tma",
      .summary = "int8 or fp8 rows and weights on Hopper: a tile a block, scales of rows or of "
                 "groups of 64 or 128",
      .needs = wgmmaTiles,
      .can = {LinearAbility::I8, LinearAbility::F8, LinearAbility::RowGroups,
              LinearAbility::RowScales, LinearAbility::ResultGroups, LinearAbility::AnyRows},
      .refusal = int8TmaRefusal,
      .slower = int8TmaSlower<LinearInt8TmaConfig>,
      .rivals = [](const LinearProblem &, llvm::StringRef leader) { return isInt8Tma(leader); },
      .configs =
          [](const LinearProblem &p) { return only<LinearInt8TmaConfig>(int8TmaCandidates(p)); },
      .cost = int8ProductCost<LinearInt8TmaConfig>,
      .emit = emit,
      .sumOrder = sumOrder,
  });
  return kernel;
}

} // namespace gpt2c
