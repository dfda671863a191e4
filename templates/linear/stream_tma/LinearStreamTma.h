// linear_stream_tma: a vocabulary for more rows, by wgmma and tensor maps.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/TmaTiles.h"

#include <string>
#include <vector>

namespace gpt2c {

/// linearStream for more rows, bm in a tile, on sm_90a alone; k a multiple of 8, for int8 weights
/// of 16. rawStages: those of int8 weights.
struct LinearStreamTmaConfig {
  Scalar y = Scalar::F32;
  int bm = 128, bn = 192, stages = 5, rawStages = 0, n = 0, k = 0;
  int xRows = 0; ///< as in LinearTmaConfig
  Scalar x = Scalar::F16, w = Scalar::F16;
  bool best = false;
};

constexpr unsigned streamTmaSharedBytes(const LinearStreamTmaConfig &c) {
  return c.stages * (c.bm + c.bn) * 128 + c.rawStages * c.bn * 128 +
         (c.best ? c.bm * c.bn * 2 : 0) + 1024;
}

KernelSource linearStreamTma(llvm::StringRef name, const LinearStreamTmaConfig &config,
                             const Epilogue &epilogue);

std::string nameOf(const LinearStreamTmaConfig &c);
Grid gridOf(const LinearStreamTmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

} // namespace gpt2c
