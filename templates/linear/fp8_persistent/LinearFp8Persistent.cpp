// The record of linear_fp8_persistent.
#include "templates/linear/fp8_persistent/LinearFp8Persistent.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

namespace gpt2c {

KernelSource linearFp8Persistent(llvm::StringRef name, const LinearFp8PersistentConfig &c,
                                 const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/fp8_persistent/linear_fp8_persistent.cuh",
                 "tile::linearFp8Persistent");
  w.type("X", c.x);
  describeInt8Tile(w, c);
  w.constant("BM", c.bm);
  w.constant("SplitK", c.splitK);
  w.constant("XGroup", c.xGroup);
  w.flag("Residual", c.residual);
  passMaps(w);
  w.out("y", c.y);
  w.i32("m");
  passGroups(w, c.rowScale || c.xGroup > 0, c.yGroup);
  passTurn(w);
  w.pass("dynamicShared");
  w.pass(writeEpilogue(w, epilogue, std::to_string(c.n)));
  w.checkSizes("LinearFp8Persistent");
  return w.finish(384, int8TmaSharedBytes(c), c.blocks);
}

namespace linear_fp8_persistent {

std::string refusal(const LinearProblem &p) {
  if (std::string why = int8TmaRefusal(p); !why.empty())
    return why;
  return !only<LinearFp8PersistentConfig>(int8TmaTiles(p, p.int8)).empty()
             ? ""
             : "fewer tiles than multiprocessors, or columns that no tile divides";
}
llvm::Error emit(LinearLaunch &l, const LinearFp8PersistentConfig &config) {
  LinearFp8PersistentConfig c = config;
  addInt8TmaArguments(l, c);
  return l.launch(linearFp8Persistent(l.name("linear_fp8_persistent"), c, l.call.epilogue), c);
}
} // namespace linear_fp8_persistent

const LinearKernel &linearFp8PersistentKernel() {
  using namespace linear_fp8_persistent;
  static const LinearKernelOf<LinearFp8PersistentConfig> kernel({
      .name = "linear_fp8_persistent",
      .summary = "thousands of fp8 rows on Hopper, scales of rows or of groups of 64 or 128: tile "
                 "after tile",
      .needs = wgmmaTiles,
      .can = {LinearAbility::F8, LinearAbility::RowGroups, LinearAbility::RowScales,
              LinearAbility::ResultGroups},
      .refusal = refusal,
      .slower = int8TmaSlower<LinearFp8PersistentConfig>,
      .rivals = [](const LinearProblem &, llvm::StringRef leader) { return isInt8Tma(leader); },
      .configs =
          [](const LinearProblem &p) {
            return only<LinearFp8PersistentConfig>(int8TmaCandidates(p));
          },
      .cost = int8ProductCost<LinearFp8PersistentConfig>,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
