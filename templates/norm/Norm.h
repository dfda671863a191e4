// Norms of rows: layer_norm, rms_norm, add_layer_norm, quantized_layer_norm.
#pragma once

#include "codegen/Grid.h"
#include "codegen/Lowering.h"

namespace gpt2c {

/// y of int8 is quantised, with a scale for each row unless it is given. A block has one row, or
/// several of a warp each (threads 32).
struct LayerNormConfig {
  Scalar x = Scalar::F32, y = Scalar::F16, p = Scalar::F32;
  int d = 0, threads = 128;
  bool rms = false, residual = false;
  int rows = 1;
  Given given = Given::None;
};

KernelSource layerNorm(llvm::StringRef name, const LayerNormConfig &config);
Grid gridOf(const LayerNormConfig &c, const plan::ExprT &rows);

/// Threads of a block that has one row of that width.
inline int rowThreads(int64_t width) { return width >= 4096 ? 256 : width >= 512 ? 128 : 64; }

llvm::Error lowerNorm(StepBuilder &b, Op &op);
llvm::Error lowerAddLayerNorm(StepBuilder &b, Op &op);
llvm::Error lowerQuantizedLayerNorm(StepBuilder &b, Op &op);

} // namespace gpt2c
