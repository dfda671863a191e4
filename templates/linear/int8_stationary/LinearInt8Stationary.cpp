// The record of linear_int8_stationary.
#include "templates/linear/int8_stationary/LinearInt8Stationary.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/Int8Turns.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

KernelSource linearInt8Stationary(llvm::StringRef name, const LinearInt8StationaryConfig &c,
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
  return !only<LinearInt8StationaryConfig>(int8TmaTiles(p, p.int8)).empty()
             ? ""
             : "fewer tiles than multiprocessors, groups of rows, or columns that no tile divides";
}
llvm::Error emit(LinearLaunch &l, const LinearInt8StationaryConfig &config) {
  LinearInt8StationaryConfig c = config;
  addInt8TmaArguments(l, c);
  return l.launch(linearInt8Stationary(l.name("linear_int8_stationary"), c, l.call.epilogue), c);
}
} // namespace linear_int8_stationary

const LinearKernel &linearInt8StationaryKernel() {
  using namespace linear_int8_stationary;
  static const LinearKernelOf<LinearInt8StationaryConfig> kernel({
      .name = "linear_int8_stationary",
      .summary =
          "thousands of int8 rows of one scale each on Hopper: 128 rows stay, weights pass by",
      .needs = wgmmaTiles,
      .can = {LinearAbility::I8, LinearAbility::RowScales, LinearAbility::ResultGroups},
      .refusal = refusal,
      .slower = int8TmaSlower<LinearInt8StationaryConfig>,
      .rivals = [](const LinearProblem &, llvm::StringRef leader) { return isInt8Tma(leader); },
      .configs =
          [](const LinearProblem &p) {
            return only<LinearInt8StationaryConfig>(int8TmaCandidates(p));
          },
      .cost = int8ProductCost<LinearInt8StationaryConfig>,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
