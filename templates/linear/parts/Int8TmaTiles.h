// The tiles of linear_int8_tma and linear_int8_stationary, and what each should cost.
#pragma once

#include "templates/linear/Problem.h"

#include <string>
#include <vector>

namespace gpt2c {

struct LinearLaunch;

/// linear_tma for int8 operands: k a multiple of 16, slabs have 128 columns of K. The scales of a
/// row, or of groups of 64 or 128 elements of it, are parameters. `stationary`: a block keeps 128
/// rows without groups and takes one of `parts` of the columns, whose tiles divide n. `gelu` of the
/// epilogue's result is what y quantises, by `given` where there is no yGroup; no groups of x.
/// `residual`: the matrix rMap is added behind the epilogue; bn is a multiple of 64 that divides n,
/// no split K, no `stationary`. `alone`: no two blocks share a multiprocessor.
struct LinearInt8TmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 4, splitK = 1, xGroup = 0, yGroup = 0, blocks = 1;
  bool rowScale = false, stationary = false, gelu = false, residual = false;
  int n = 0, k = 0;
  int parts = 1;             ///< stationary
  Given given = Given::None; ///< gelu without yGroup
  bool alone = false;
};

constexpr unsigned int8TmaSharedBytes(const LinearInt8TmaConfig &c) {
  if (!c.stationary)
    return c.stages * (c.bm + c.bn) * 128 + (c.residual ? c.bm * c.bn * 2 : 0) +
           (c.xGroup > 0 ? c.bm * (c.k / c.xGroup) * 4 : 0) +
           (c.splitK - 1) * c.bm * c.bn * 4 / c.splitK + 1024;
  return (c.k + 127) / 128 * c.bm * 128 + c.stages * c.bn * 128 +
         (c.y == Scalar::F16 ? 16 * 1024 : 0) + 1024;
}

std::string nameOf(const LinearInt8TmaConfig &c);
Grid gridOf(const LinearInt8TmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

/// Those that pay for some product of this size; group and yGroup are 0, 64 or 128. Empty where the
/// scales of a tile's rows are more than fits into shared memory. residual: some have the copy
/// engine bring it. alone: where there are no more blocks than multiprocessors, each has one to
/// itself.
std::vector<LinearInt8TmaConfig> int8TmaConfigs(const LinearShape &s, const Int8Rows &rows);
/// Estimated microseconds on an H200.
double int8TmaCost(const LinearInt8TmaConfig &c, const LinearShape &s, bool residual = false);
LinearInt8TmaConfig bestInt8TmaConfig(const LinearShape &s, const Int8Rows &rows);
/// The cheapest of both kernels, then those that cost up to 1.6 times as much.
std::vector<LinearInt8TmaConfig> int8TmaCandidates(const LinearProblem &p);
/// Why neither computes a product of int8 rows; empty: one does.
std::string int8TmaRefusal(const LinearProblem &p);
/// What both are launched with.
void addInt8TmaArguments(const LinearLaunch &l, LinearInt8TmaConfig &c);

} // namespace gpt2c
