// The tiles of linear_int8_tma, linear_int8_stationary and linear_int8_persistent, and what each
// should cost.
#pragma once

#include "codegen/Grid.h"
#include "schedule/LinearProblem.h"

#include <string>
#include <vector>

namespace gpt2c {

class KernelWriter;
struct LinearLaunch;

/// linear_tma for int8 operands: k a multiple of 16, k-tiles have 128 columns of K. The scales of a
/// row, or of groups of 64 or 128 elements of it, are parameters. `stationary`: a block keeps 128
/// rows without groups and takes one of `parts` of the columns, whose tiles divide n. `persistent`:
/// it takes such tiles of any rows, every gridDim.x-th. `gelu` of the
/// epilogue's result is what y quantises, by `given` where there is no yGroup; no groups of x.
/// `residual`: the matrix rMap is added behind the epilogue; bn is a multiple of 64 that divides n,
/// no split K, a tile a block. `oneCtaPerSm`: no two blocks share a multiprocessor.
struct LinearInt8TmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 4, splitK = 1, xGroup = 0, yGroup = 0, blocks = 1;
  bool rowScale = false, stationary = false, persistent = false, gelu = false, residual = false;
  int n = 0, k = 0;
  int parts = 1;             ///< stationary
  Given given = Given::None; ///< gelu without yGroup
  bool oneCtaPerSm = false;
};

constexpr unsigned int8TmaSharedBytes(const LinearInt8TmaConfig &c) {
  const int lines = c.y == Scalar::F16 ? 16 * 1024 : 0;
  if (c.persistent)
    return c.stages * (c.bm + c.bn) * 128 + lines + 1024;
  if (!c.stationary)
    return c.stages * (c.bm + c.bn) * 128 + (c.residual ? c.bm * c.bn * 2 : 0) +
           (c.xGroup > 0 ? c.bm * (c.k / c.xGroup) * 4 : 0) +
           (c.splitK - 1) * c.bm * c.bn * 4 / c.splitK + 1024;
  return (c.k + 127) / 128 * c.bm * 128 + c.stages * c.bn * 128 + lines + 1024;
}

/// The kernel that it is a configuration of.
llvm::StringRef kernelOf(const LinearInt8TmaConfig &c);
std::string nameOf(const LinearInt8TmaConfig &c);
Grid gridOf(const LinearInt8TmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

/// Those that pay for some product of this size; group and yGroup are 0, 64 or 128. Empty where the
/// scales of a tile's rows are more than fits into shared memory. residual: some have TMA bring
/// it. oneCtaPerSm: where there are no more blocks than multiprocessors, each has one to itself.
std::vector<LinearInt8TmaConfig> int8TmaConfigs(const LinearShape &s, const Int8Rows &rows);
/// Estimated microseconds on an H200.
double int8TmaCost(const LinearInt8TmaConfig &c, const LinearShape &s, bool residual = false);
/// The cheapest one of those whose costs were fitted: none that is `persistent`.
LinearInt8TmaConfig bestInt8TmaConfig(const LinearShape &s, const Int8Rows &rows);
/// The cheapest of all three kernels, then those that cost up to 1.6 times as much.
std::vector<LinearInt8TmaConfig> int8TmaCandidates(const LinearProblem &p);
/// Those of one of them.
std::vector<LinearInt8TmaConfig> int8TmaCandidatesOf(const LinearProblem &p,
                                                     llvm::StringRef kernel);
/// Why none of them computes a product of int8 rows; empty: one does.
std::string int8TmaRefusal(const LinearProblem &p);
/// Which one costs less than `kernel`; empty: none.
std::string int8TmaSlower(const LinearProblem &p, llvm::StringRef kernel);
bool isInt8Tma(llvm::StringRef kernel);
/// The types and constants that all of their templates have.
void describeInt8Tile(KernelWriter &w, const LinearInt8TmaConfig &c);
/// What they are launched with.
void addInt8TmaArguments(const LinearLaunch &l, LinearInt8TmaConfig &c);

} // namespace gpt2c
