// The record of linear_int8_stationary.
#include "templates/linear/int8_stationary/LinearInt8Stationary.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

KernelSource linearInt8Stationary(llvm::StringRef name, const LinearInt8TmaConfig &c,
                                  const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/int8_stationary/linear_int8_stationary.cuh",
                 "tile::linearInt8Stationary");
  w.type("Y", c.y);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.flag("RowScale", c.rowScale);
  w.constant("YGroup", c.yGroup);
  w.flag("Gelu", c.gelu);
  w.constant("N", c.n);
  w.constant("K", c.k);
  passMaps(w);
  w.out("y", c.y);
  w.i32("m");
  passGroups(w, c.rowScale, c.yGroup);
  w.pass("blockIdx.x, blockIdx.y, gridDim.y, dynamicShared");
  w.pass(writeEpilogue(w, epilogue, std::to_string(c.n)));
  if (c.given != Given::None)
    w.pass(w.given(c.given));
  w.checkSizes("LinearInt8Stationary");
  return w.finish(384, int8TmaSharedBytes(c), c.blocks);
}

namespace linear_int8_stationary {

std::string refusal(const LinearProblem &p) {
  if (std::string why = int8TmaRefusal(p); !why.empty())
    return why;
  auto list = int8TmaConfigs(p, p.int8);
  return llvm::any_of(list, [](const auto &c) { return c.stationary; })
             ? ""
             : "fewer tiles than multiprocessors, groups of rows, or columns that no tile divides";
}
llvm::Error emit(LinearLaunch &l, const LinearInt8TmaConfig &config) {
  LinearInt8TmaConfig c = config;
  addInt8TmaArguments(l, c);
  return l.launch(linearInt8Stationary(l.name("linear_int8_stationary"), c, l.call.epilogue), c);
}
} // namespace linear_int8_stationary

const LinearKernel &linearInt8StationaryKernel() {
  using namespace linear_int8_stationary;
  static const LinearKernelOf<LinearInt8TmaConfig> kernel({
      .name = "linear_int8_stationary",
      .summary =
          "thousands of int8 rows of one scale each on Hopper: 128 rows stay, weights pass by",
      .refusal = refusal,
      .slower = [](const LinearProblem &p) { return int8TmaSlower(p, "linear_int8_stationary"); },
      .rivals = [](const LinearProblem &, llvm::StringRef leader) { return isInt8Tma(leader); },
      .configs =
          [](const LinearProblem &p) { return int8TmaCandidatesOf(p, "linear_int8_stationary"); },
      .cost = [](const LinearInt8TmaConfig &c,
                 const LinearProblem &p) { return int8TmaCost(c, p, p.int8.residual); },
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
