// The kernels whose warpgroups take turns at tiles of int8 products: int8_turns.cuh.
#pragma once

#include "templates/linear/parts/Int8TmaTiles.h"
#include "templates/linear/parts/LinearParams.h"

namespace gpt2c {

/// `w` names the template; `place`: what of the grid it takes; `sizes`: its struct of sizes.
template <typename Config>
KernelSource int8TurnsKernel(KernelWriter &&w, llvm::StringRef place, llvm::StringRef sizes,
                             const Config &c, const Epilogue &epilogue) {
  describeInt8Tile(w, c);
  passMaps(w);
  w.out("y", c.y);
  w.i32("m");
  passGroups(w, c.rowScale, c.yGroup);
  w.pass(place + ", dynamicShared");
  w.pass(writeEpilogue(w, epilogue, std::to_string(c.n)));
  if (c.given != Given::None)
    w.pass(w.given(c.given));
  w.checkSizes(sizes);
  return w.finish(384, int8TmaSharedBytes(c), c.blocks);
}

} // namespace gpt2c
