// What the functions of products take beside x, W and y, in structs: a kernel's entry point fills
// them by braces, in the order of its parameters.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c::tile {

/// Rows of x and columns of y.
struct Extent {
  int m, n;
};
/// The same, and the length of sums.
struct Sizes {
  int m, n, k;
};
/// The block's tile, by rows and by columns, and its part of K.
struct TileIndex {
  int m, n, split;
};
/// The block among those that take tiles in turn.
struct Turn {
  int block, blocks;
};
/// The same; every other kernel takes tiles in the order from last to first.
struct SnakeTurn {
  int backwards, block, blocks;
};
/// Rows of tiles of which `parts` blocks take the columns in turn.
struct TileRow {
  int tileM, part, parts;
};
/// Where parts of K meet in memory: sums, and how many have come for each tile.
struct SplitSums {
  float *partial;
  unsigned *counters;
};
/// Scales of groups of x, and where those of y are left.
struct GroupScales {
  const float *x;
  float *y;
};
/// Of groups of weights; null: there are none.
struct WeightScales {
  const float *scale;
  const i8 *zero;
};
/// A norm of rows that is computed: P gain[K], shift[K].
template <typename P> struct RowNorm {
  const P *gain, *shift;
  float epsilon;
};
/// A norm that is folded into the epilogue: P gain[K], f32 rowSums[N] and shiftSums[N].
template <typename P> struct NormSums {
  const P *gain;
  const float *rowSums, *shiftSums;
  float epsilon;
};
/// Where the largest elements are left, and which rows are drawn.
struct Largest {
  u64 *best;
  const int *choices;
};

} // namespace gpt2c::tile
