// The record of linear_int8_persistent.
#include "templates/linear/int8_persistent/LinearInt8Persistent.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/Int8Turns.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

KernelSource linearInt8Persistent(llvm::StringRef name, const LinearInt8PersistentConfig &c,
                                  const Epilogue &epilogue) {
  return int8TurnsKernel({name, "templates/linear/int8_persistent/linear_int8_persistent.cuh",
                          "tile::linearInt8Persistent"},
                         "{(int)blockIdx.x, (int)gridDim.x}", "LinearInt8Persistent", c, epilogue);
}

namespace linear_int8_persistent {

std::string refusal(const LinearProblem &p) {
  if (std::string why = int8TmaRefusal(p); !why.empty())
    return why;
  return !only<LinearInt8PersistentConfig>(int8TmaTiles(p, p.int8)).empty()
             ? ""
             : "fewer tiles than multiprocessors, a short K, groups of rows, or columns that no "
               "tile divides";
}
llvm::Error emit(LinearLaunch &l, const LinearInt8PersistentConfig &config) {
  LinearInt8PersistentConfig c = config;
  addInt8TmaArguments(l, c);
  return l.launch(linearInt8Persistent(l.name("linear_int8_persistent"), c, l.call.epilogue), c);
}
} // namespace linear_int8_persistent

const LinearKernel &linearInt8PersistentKernel() {
  using namespace linear_int8_persistent;
  static const LinearKernelOf<LinearInt8PersistentConfig> kernel({
      .name = "linear_int8_persistent",
      .summary = "thousands of int8 rows of one scale each and a long K on Hopper: tile after tile",
      .needs = wgmmaTiles,
      .can = {LinearAbility::I8, LinearAbility::RowScales, LinearAbility::ResultGroups},
      .refusal = refusal,
      .slower = int8TmaSlower<LinearInt8PersistentConfig>,
      .rivals = [](const LinearProblem &, llvm::StringRef leader) { return isInt8Tma(leader); },
      .configs =
          [](const LinearProblem &p) {
            return only<LinearInt8PersistentConfig>(int8TmaCandidates(p));
          },
      .cost = int8ProductCost<LinearInt8PersistentConfig>,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
