// The record of linear_int8_persistent.
#include "templates/linear/int8_persistent/LinearInt8Persistent.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/Int8Turns.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

KernelSource linearInt8Persistent(llvm::StringRef name, const LinearInt8TmaConfig &c,
                                  const Epilogue &epilogue) {
  return int8TurnsKernel({name, "templates/linear/int8_persistent/linear_int8_persistent.cuh",
                          "tile::linearInt8Persistent"},
                         "{(int)blockIdx.x, (int)gridDim.x}", "LinearInt8Persistent", c, epilogue);
}

namespace linear_int8_persistent {

std::string refusal(const LinearProblem &p) {
  if (std::string why = int8TmaRefusal(p); !why.empty())
    return why;
  auto list = int8TmaConfigs(p, p.int8);
  return llvm::any_of(list, [](const auto &c) { return c.persistent; })
             ? ""
             : "fewer tiles than multiprocessors, a short K, groups of rows, or columns that no "
               "tile divides";
}
llvm::Error emit(LinearLaunch &l, const LinearInt8TmaConfig &config) {
  LinearInt8TmaConfig c = config;
  addInt8TmaArguments(l, c);
  return l.launch(linearInt8Persistent(l.name("linear_int8_persistent"), c, l.call.epilogue), c);
}
} // namespace linear_int8_persistent

const LinearKernel &linearInt8PersistentKernel() {
  using namespace linear_int8_persistent;
  static const LinearKernelOf<LinearInt8TmaConfig> kernel({
      .name = "linear_int8_persistent",
      .summary = "thousands of int8 rows of one scale each and a long K on Hopper: tile after tile",
      .needs = wgmmaTiles,
      .can = {LinearAbility::I8, LinearAbility::RowScales, LinearAbility::ResultGroups},
      .refusal = refusal,
      .slower = [](const LinearProblem &p) { return int8TmaSlower(p, "linear_int8_persistent"); },
      .rivals = [](const LinearProblem &, llvm::StringRef leader) { return isInt8Tma(leader); },
      .configs =
          [](const LinearProblem &p) { return int8TmaCandidatesOf(p, "linear_int8_persistent"); },
      .cost = [](const LinearInt8TmaConfig &c,
                 const LinearProblem &p) { return int8TmaCost(c, p, p.int8.residual); },
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
