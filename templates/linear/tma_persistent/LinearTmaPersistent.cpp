// The record of linear_tma_persistent.
#include "templates/linear/tma_persistent/LinearTmaPersistent.h"

#include "runtime/cuda/ExchangeRecord.h"
#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include <algorithm>

namespace gpt2c {

bool takesResidualByMap(const LinearTmaPersistentConfig &c, const Epilogue &epilogue) {
  auto isBias = [](const EpilogueStage &stage) { return stage.kind == EpilogueStage::AddBias; };
  return storesLines(c) && hasLineColumns(c) && c.normParts == 0 && !epilogue.empty() &&
         epilogue.back().kind == EpilogueStage::AddMatrix && epilogue.back().operand == c.y &&
         llvm::all_of(llvm::drop_end(epilogue), isBias);
}

static void addConfig(KernelWriter &w, const LinearTmaPersistentConfig &c, bool residual) {
  w.type("X", c.w);
  w.type("Y", c.y);
  w.constant("N", c.n);
  w.constant("K", c.k);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("RasterGroup", c.rasterGroup);
  w.flag("Cooperative", c.cooperative);
  w.flag("Residual", residual);
}

KernelSource linearTmaPersistent(llvm::StringRef name, const LinearTmaPersistentConfig &c,
                                 const Epilogue &epilogue, bool sharedRows) {
  const bool residual = takesResidualByMap(c, epilogue);
  KernelWriter w(name, "templates/linear/tma_persistent/linear_tma_persistent.cuh",
                 "tile::linearTmaPersistent");
  addConfig(w, c, residual);
  passMaps(w);
  w.value("const __grid_constant__ TensorMap", "residualMap", residual, "xMap");
  w.out("y", c.y);
  w.i32("m");
  w.group([&] {
    w.i32("backwards");
    w.pass("(int)blockIdx.x, (int)gridDim.x");
  });
  w.pass("dynamicShared");
  w.pass(writeEpilogue(w, residual ? Epilogue(epilogue.begin(), epilogue.end() - 1) : epilogue,
                       std::to_string(c.n)));
  passFoldedNorm(w, c);
  passStatistics(w, c);
  if (sharedRows) {
    w.include("templates/exchange/row_shares.cuh");
    w.pass("tile::SharedRows{" + w.declare("tile::Exchange *", "exchange") + "}");
  }
  w.checkSizes("LinearTmaPersistent");
  return w.finish(384, tmaSharedBytes(c), c.blocks);
}

KernelSource linearTmaPersistentEnd(llvm::StringRef name, const LinearTmaPersistentConfig &c,
                                    const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/tma_persistent/linear_tma_persistent_end.cuh",
                 "tile::linearTmaPersistentEnd");
  addConfig(w, c, false);
  w.out("y", c.y);
  w.i32("m");
  w.pass("dynamicShared");
  w.pass(writeEpilogue(w, epilogue, std::to_string(c.n)));
  passStatistics(w, c);
  return w.finish(256, 8 * 16 * 128);
}

namespace linear_tma_persistent {

std::string slower(const LinearProblem &p) {
  return std::holds_alternative<LinearTmaPersistentConfig>(bestTmaTile(p))
             ? ""
             : "linear_tma costs less";
}
bool rivals(const LinearProblem &, llvm::StringRef leader) { return leader == "linear_tma"; }
std::vector<LinearTmaPersistentConfig> configs(const LinearProblem &p) {
  return only<LinearTmaPersistentConfig>(tmaCandidates(p));
}
/// Of each 16 rows of a tile a warp.
static llvm::Error launchEnd(LinearLaunch &l, const LinearTmaPersistentConfig &c) {
  l.call.args["exchange"] =
      l.sum->awaited ? StepBuilder::exchangeOfShared(true) : StepBuilder::exchange();
  const Dim bytes = bytesOf(l.call.y);
  return l.b.launch(l.op, l.sum->what,
                    linearTmaPersistentEnd(l.name("all_reduce"), c, l.call.epilogue), l.call.args,
                    blocks(minExpr(gridOf(c, l.b.expr(l.call.m), l.p.n, l.processors())[0],
                                   rt::constantExpr(rt::kExchangeBlocks))),
                    bytes * Dim(l.sum->reduce->intAttr("ranks") + 1), 0);
}
/// A group of rows of tiles is of one rank's, or each rank would wait for sums that are computed
/// beside its own.
static int rasterGroup(const LinearLaunch &l, const LinearTmaPersistentConfig &c) {
  if (l.p.fused.end != ProductEndKind::Scatter)
    return c.rasterGroup;
  const int64_t rows = divideCeilSigned(l.p.rows, c.bm) / l.sum->reduce->intAttr("ranks");
  return int(std::clamp<int64_t>(rows, 1, c.rasterGroup));
}
llvm::Error emit(LinearLaunch &l, const LinearTmaPersistentConfig &taken) {
  LinearTmaPersistentConfig c = taken;
  c.rasterGroup = rasterGroup(l, c);
  if (llvm::Error e = l.addNormStatistics())
    return e;
  l.halveActivations();
  if (c.statistics)
    l.addStatistics(statisticsWidth(c));
  l.addMaps(c.bm, c.bn, l.p.k, l.p.k);
  StepBuilder::Args &args = l.call.args;
  const bool scatters = l.p.fused.end == ProductEndKind::Scatter;
  args["backwards"] = scatters || l.p.fused.sharedRows ? l.b.i32(Dim(int64_t(0))) : l.b.backwards();
  if (l.p.fused.sharedRows)
    args["exchange"] = StepBuilder::exchange();
  if (takesResidualByMap(c, l.call.epilogue)) {
    const auto residual = llvm::count_if(l.call.epilogue, hasOperand) - 1;
    args["residualMap"] =
        l.b.tensorMap(args["e" + std::to_string(residual)], l.call.m, l.p.n, c.bm);
  }
  const Epilogue &epilogue = l.call.epilogue;
  if (llvm::Error e =
          l.launch(linearTmaPersistent(l.name("linear_tma"), c, epilogue, l.p.fused.sharedRows), c))
    return e;
  return scatters ? launchEnd(l, c) : llvm::Error::success();
}
} // namespace linear_tma_persistent

const LinearKernel &linearTmaPersistentKernel() {
  using namespace linear_tma_persistent;
  static const LinearKernelOf<LinearTmaPersistentConfig> kernel({
      .name = "linear_tma_persistent",
      .summary =
          "thousands of rows in fp16 or bf16 on Hopper: blocks take tile after tile and hide "
          "their ends",
      .needs = wgmmaTiles | Features{Feature::Clusters},
      .can = {LinearAbility::F16, LinearAbility::BF16, LinearAbility::NormByStatistics,
              LinearAbility::SharedRows, LinearAbility::Gate, LinearAbility::Rotation,
              LinearAbility::Send, LinearAbility::Scatter, LinearAbility::Statistics,
              LinearAbility::AnyRows},
      .refusal = tmaRefusal,
      .slower = slower,
      .rivals = rivals,
      .configs = configs,
      .cost = tmaProductCost,
      .emit = emit,
      .sumOrder = tmaSumOrder,
      .statisticsWidth = widthOfLeft,
  });
  return kernel;
}

} // namespace gpt2c
