// Which family of kernels computes a product with weights.
#pragma once

#include "codegen/FusedLowerings.h"

namespace gpt2c {

/// The kernel families of linear by the number of rows, fastest first where they overlap.
enum class LinearKind { RowDot, Rows, Stream, StreamTma, Skinny, TilesInt8Weights, Tiles };
LinearKind linearKind(const LinearShape &s);
/// Whether linear_tma or linear_tma_persistent can compute it, without int8 weights.
bool hasTma(const LinearShape &s);
LinearSkinnyConfig skinnyConfig(const LinearShape &s);

} // namespace gpt2c
