// The tiles that a product of many rows may be cut into on Hopper, and what each costs: linear_tma,
// linear_tma_persistent and linear_tma_int8_weights.
#pragma once

#include "codegen/Grid.h"
#include "schedule/LinearProblem.h"

#include <string>
#include <vector>

namespace gpt2c {

/// On sm_90a alone; k a multiple of 8. `persistent`: a block takes tile after tile (bm is 128,
/// splitK 1), else one; a residual in the type of y that a persistent one adds behind nothing but a
/// bias is read by a tensor map instead of a pointer (takesResidualByMap). With normParts the layer
/// norm of x, or its RMS norm, is folded into the epilogue, with `statistics` those of y are
/// written, in parts of statisticsWidth columns, which divide n
/// (templates/linear/parts/row_statistics.cuh). int8 weights (k a multiple of 16, not persistent)
/// have a ring of rawStages of their own, and the norm a gain and a shift. `rasterAlongN`: blocks
/// that follow each other have the same rows, not the same columns. `cooperative`: the warpgroups
/// of a persistent block have 64 rows of each tile, and do not take turns. `rasterGroup`: rows of a
/// persistent block's tiles that go column by column.
struct LinearTmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 4, splitK = 1, blocks = 1;
  bool persistent = false;
  int n = 0, k = 0;
  int normParts = 0, normWidth = 0;
  bool rms = false;
  bool statistics = false;
  Scalar w = Scalar::F16; ///< F16 or BF16, as the rows have, or I8 beside rows in F16
  Scalar p = Scalar::F32; ///< of the norm's gain
  int rawStages = 0;
  bool rasterAlongN = false;
  bool cooperative = false;
  int rasterGroup = 1;
  int xRows = 0; ///< rows of a box of x; 0, as of persistent tiles: bm
};

/// LinearTmaConfig::xRows for up to so many rows.
constexpr int xRowsFor(int64_t rows) { return rows <= 32 ? 32 : 0; }
template <typename Config> constexpr int xRowsOf(const Config &c) {
  return c.xRows > 0 ? c.xRows : c.bm;
}

/// Whether rows of a persistent block's tiles consist of lines of 64 columns.
constexpr bool hasLineColumns(const LinearTmaConfig &c) { return c.n % 64 == 0 && c.bn % 64 == 0; }

/// Whether they leave in lines.
constexpr bool storesLines(const LinearTmaConfig &c) {
  return c.persistent && isNarrow(c.y) &&
         (hasLineColumns(c) || (c.cooperative && c.n % c.bn == 0 && c.n % 8 == 0));
}

constexpr int statisticsWidth(const LinearTmaConfig &c) {
  return storesLines(c) && c.n % c.bn != 0 ? 64 : c.bn / c.splitK;
}
/// The same of the statistics that a kernel leaves; 0: it leaves none.
constexpr int widthOfLeft(const LinearTmaConfig &c) {
  return c.statistics ? statisticsWidth(c) : 0;
}

constexpr unsigned tmaSharedBytes(const LinearTmaConfig &c) {
  return c.stages * (c.bm + c.bn) * 64 * 2 + c.rawStages * c.bn * 128 +
         (c.splitK - 1) * c.bm * c.bn * 4 / c.splitK + (storesLines(c) ? 8 * 16 * 128 : 0) + 1024;
}

std::string nameOf(const LinearTmaConfig &c);
Grid gridOf(const LinearTmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

/// Every configuration of linear_tma that pays for some product of this size: each tile with as
/// many stages as a multiprocessor has room for, and as half of one has; some also
/// columns first. k is a multiple of 8.
std::vector<LinearTmaConfig> tmaConfigs(const LinearShape &s);
/// Estimated microseconds on an H200. With int8 weights it is another fit than in fp16, so that
/// only costs of the same type of weights compare.
double tmaCost(const LinearTmaConfig &config, const LinearShape &s);
/// The same with the rotation that the epilogue ends with, if it does.
double tmaCost(const LinearTmaConfig &config, const LinearProblem &p);
/// The cheapest of them for fp16 weights, for a norm that is folded into the epilogue with
/// `normParts`, and where `statistics` for the next one are wanted.
LinearTmaConfig bestTmaConfig(const LinearShape &s, int normParts = 0, bool statistics = false);
/// The cheapest, complete, then those that cost up to 1.6 times as much, of linear_tma and
/// linear_tma_persistent.
std::vector<LinearTmaConfig> tmaCandidates(const LinearProblem &p);
/// KernelRecord::sumOrder of all three.
std::string tmaSumOrder(const LinearTmaConfig &c, const LinearProblem &p);
/// Why neither computes a product; empty: one does.
std::string tmaRefusal(const LinearProblem &p);

} // namespace gpt2c
