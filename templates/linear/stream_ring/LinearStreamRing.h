// linear_stream_ring: linear_stream for one or two rows, weights by bulk copies.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

/// fp16 or bf16 rows, weights of their type, or int8 beside fp16, from sm_90 on: 1, 2 or 4 rows; k
/// a multiple of 32 or 64. With `best` it leaves what argmaxParts reads.
struct LinearStreamRingConfig {
  Scalar y = Scalar::F32, p = Scalar::F32;
  int rows = 1, warps = 8, k = 0;
  NormKind norm = NormKind::None;
  Scalar x = Scalar::F16, w = Scalar::F16;
  bool best = false;
  int columns = 4, slots = 0; ///< the ring of each warp: of that many columns in each slot
};
constexpr unsigned streamRingSharedBytes(const LinearStreamRingConfig &c) {
  return c.warps * c.slots * c.columns * c.k * int(scalarBytes(c.w));
}
/// As many slots as a multiprocessor of sm_90 has room for.
constexpr int streamSlots(const LinearStreamRingConfig &c) {
  const int slot = c.warps * c.columns * c.k * int(scalarBytes(c.w));
  return slot > 0 ? 200 * 1024 / slot : 0;
}
KernelSource linearStreamRing(llvm::StringRef name, const LinearStreamRingConfig &config,
                              const Epilogue &epilogue);

std::string nameOf(const LinearStreamRingConfig &c);
Grid gridOf(const LinearStreamRingConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

} // namespace gpt2c
