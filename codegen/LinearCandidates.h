// Which family of kernels computes a product with weights.
#pragma once

#include "codegen/FusedLowerings.h"

namespace gpt2c {

/// The kernel families of linear by the number of rows, fastest first where they overlap.
enum class LinearKind { RowDot, Cluster, Rows, Stream, StreamWgmma, Skinny, Tiles };
LinearKind linearKind(const LinearShape &s);
/// Whether linear_tma or linear_tma_persistent can compute it.
bool hasTma(const LinearShape &s);
LinearSkinnyConfig skinnyConfig(const LinearShape &s);

} // namespace gpt2c
