// The record of linear_tma.
#include "templates/linear/tma/LinearTma.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

namespace gpt2c {

KernelSource linearTma(llvm::StringRef name, const LinearTmaConfig &c, const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/tma/linear_tma.cuh", "tile::linearTma");
  w.type("X", c.w);
  w.type("Y", c.y);
  w.constant("N", c.n);
  w.constant("K", c.k);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("BM", c.bm);
  w.constant("XRows", xRowsOf(c));
  w.constant("SplitK", c.splitK);
  w.flag("Lines", leavesInLines(c, epilogue));
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  passMaps(w);
  w.out("y", c.y);
  w.i32("m");
  passTileIndex(w, !c.rasterAlongN);
  w.pass("dynamicShared");
  w.pass(writeEpilogue(w, epilogue, std::to_string(c.n)));
  passFoldedNorm(w, c);
  passStatistics(w, c);
  w.checkSizes("LinearTma");
  return w.finish(c.bm / 64 * 128 + 32, tmaSharedBytes(c), c.blocks);
}

namespace linear_tma {

std::string slower(const LinearProblem &p) {
  return std::holds_alternative<LinearTmaConfig>(bestTmaTile(p))
             ? ""
             : "linear_tma_persistent costs less";
}
bool rivals(const LinearProblem &p, llvm::StringRef leader) {
  return leader == "linear_tma_persistent" ||
         (p.rows > 1 && (leader == "linear_rows" || leader == "linear_ring"));
}
std::vector<LinearTmaConfig> configs(const LinearProblem &p) {
  auto list = only<LinearTmaConfig>(tmaCandidates(p));
  if (p.rows <= 32 && !p.batchInvariant && !areRowsForTiles(p))
    list.resize(std::min<size_t>(list.size(), 3));
  return list;
}
llvm::Error emit(LinearLaunch &l, const LinearTmaConfig &c) {
  if (llvm::Error e = l.addNormStatistics())
    return e;
  l.halveActivations();
  if (c.statistics)
    l.addStatistics(statisticsWidth(c));
  l.addMaps(xRowsOf(c), c.bn, l.p.k, l.p.k);
  return l.launch(linearTma(l.name("linear_tma"), c, l.call.epilogue), c);
}
} // namespace linear_tma

const LinearKernel &linearTmaKernel() {
  using namespace linear_tma;
  static const LinearKernelOf<LinearTmaConfig> kernel({
      .name = "linear_tma",
      .summary = "many rows in fp16 or bf16 on Hopper: a tile a block, wgmma from a ring that "
                 "tensor maps fill; a norm by its statistics",
      .needs = wgmmaTiles | Features{Feature::Clusters},
      .can = {LinearAbility::F16, LinearAbility::BF16, LinearAbility::NormByStatistics,
              LinearAbility::Gate, LinearAbility::Rotation, LinearAbility::Send,
              LinearAbility::Receive, LinearAbility::Statistics, LinearAbility::AnyRows},
      .refusal = tmaRefusal,
      .slower = slower,
      .rivals = rivals,
      .configs = configs,
      .cost = tmaProductCost,
      .microseconds = tileMicroseconds,
      .emit = emit,
      .sumOrder = tmaSumOrder,
      .statisticsWidth = widthOfLeft,
  });
  return kernel;
}

} // namespace gpt2c
