// The record of linear_tma_persistent.
#include "templates/linear/tma_persistent/LinearTmaPersistent.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

namespace gpt2c {

bool takesResidualByMap(const LinearTmaPersistentConfig &c, const Epilogue &epilogue) {
  auto isBias = [](const EpilogueStage &stage) { return stage.kind == EpilogueStage::AddBias; };
  return storesLines(c) && hasLineColumns(c) && c.normParts == 0 && !epilogue.empty() &&
         epilogue.back().kind == EpilogueStage::AddMatrix && epilogue.back().operand == c.y &&
         llvm::all_of(llvm::drop_end(epilogue), isBias);
}

KernelSource linearTmaPersistent(llvm::StringRef name, const LinearTmaPersistentConfig &c,
                                 const Epilogue &epilogue) {
  const bool residual = takesResidualByMap(c, epilogue);
  KernelWriter w(name, "templates/linear/tma_persistent/linear_tma_persistent.cuh",
                 "tile::linearTmaPersistent");
  w.type("X", c.w);
  w.type("Y", c.y);
  w.constant("N", c.n);
  w.constant("K", c.k);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("RasterGroup", c.rasterGroup);
  w.flag("Cooperative", c.cooperative);
  w.flag("Residual", residual);
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
  w.checkSizes("LinearTmaPersistent");
  return w.finish(384, tmaSharedBytes(c), c.blocks);
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
llvm::Error emit(LinearLaunch &l, const LinearTmaPersistentConfig &c) {
  if (llvm::Error e = l.addNormStatistics())
    return e;
  l.halveActivations();
  if (c.statistics)
    l.addStatistics(statisticsWidth(c));
  l.addMaps(c.bm, c.bn, l.p.k, l.p.k);
  StepBuilder::Args &args = l.call.args;
  args["backwards"] = l.b.backwards();
  if (takesResidualByMap(c, l.call.epilogue)) {
    const auto residual = llvm::count_if(l.call.epilogue, hasOperand) - 1;
    args["residualMap"] =
        l.b.tensorMap(args["e" + std::to_string(residual)], l.call.m, l.p.n, c.bm);
  }
  return l.launch(linearTmaPersistent(l.name("linear_tma"), c, l.call.epilogue), c);
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
              LinearAbility::Gate, LinearAbility::Rotation, LinearAbility::Send,
              LinearAbility::Statistics, LinearAbility::AnyRows},
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
