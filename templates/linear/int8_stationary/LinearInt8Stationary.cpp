// The record of linear_int8_stationary.
#include "templates/linear/int8_stationary/LinearInt8Stationary.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/Int8Turns.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

KernelSource linearInt8Stationary(llvm::StringRef name, const LinearInt8TmaConfig &c,
                                  const Epilogue &epilogue) {
  return int8TurnsKernel({name, "templates/linear/int8_stationary/linear_int8_stationary.cuh",
                          "tile::linearInt8Stationary"},
                         "{(int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y}",
                         "LinearInt8Stationary", c, epilogue);
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
      .needs = wgmmaTiles,
      .can = {LinearAbility::I8, LinearAbility::RowScales, LinearAbility::ResultGroups},
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
