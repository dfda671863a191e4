// The tiles that a product of many rows may be cut into on Hopper, and what each costs: linear_tma,
// linear_tma_persistent and linear_tma_int8_weights.
#pragma once

#include "codegen/Grid.h"
#include "schedule/products/LinearProblem.h"

#include <string>
#include <variant>
#include <vector>

namespace gpt2c {

// On sm_90a alone; k is a multiple of 8. With normParts the layer norm of x, or its RMS norm, is
// folded into the epilogue; with `statistics` those of y are written, in parts of statisticsWidth
// columns, which divide n (templates/linear/parts/row_statistics.cuh).

/// linear_tma: a tile for each block. `rasterAlongN`: blocks that follow each other have the same
/// rows, not the same columns.
struct LinearTmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 4, splitK = 1, blocks = 1;
  int n = 0, k = 0;
  int normParts = 0, normWidth = 0;
  bool rms = false;
  bool statistics = false;
  Scalar w = Scalar::F16; ///< F16 or BF16, as the rows have
  bool rasterAlongN = false;
  int xRows = 0; ///< rows of a box of x; 0: bm
};

/// linear_tma_persistent: a block takes tile after tile. A residual in the type of y that it adds
/// behind nothing but a bias is read by a tensor map instead of a pointer (takesResidualByMap).
struct LinearTmaPersistentConfig {
  static constexpr int bm = 128, splitK = 1, blocks = 1;
  Scalar y = Scalar::F16;
  int bn = 128, stages = 4;
  int n = 0, k = 0;
  int normParts = 0, normWidth = 0;
  bool rms = false;
  bool statistics = false;
  Scalar w = Scalar::F16;   ///< as in LinearTmaConfig
  bool cooperative = false; ///< the warpgroups have 64 rows of each tile, and do not take turns
  int rasterGroup = 1;      ///< rows of tiles that go column by column
};

/// linear_tma_int8_weights: linear_tma for weights of a byte, k a multiple of 16, which have a ring
/// of rawStages of their own; a norm has a gain and a shift.
struct LinearTmaInt8WeightsConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 4, splitK = 1;
  int n = 0, k = 0;
  int normParts = 0, normWidth = 0;
  bool rms = false;
  bool statistics = false;
  Scalar p = Scalar::F32; ///< of the norm's gain
  Scalar w = Scalar::I8;
  int rawStages = 0;
  int xRows = 0; ///< as in LinearTmaConfig
};

/// Of linear_tma or of linear_tma_persistent, where they are compared.
using TmaTile = std::variant<LinearTmaConfig, LinearTmaPersistentConfig>;

/// LinearTmaConfig::xRows for up to so many rows.
constexpr int xRowsFor(int64_t rows) { return rows <= 32 ? 32 : 0; }
template <typename Config> constexpr int xRowsOf(const Config &c) {
  return c.xRows > 0 ? c.xRows : c.bm;
}

/// Whether rows of a persistent block's tiles consist of lines of 64 columns.
constexpr bool hasLineColumns(const LinearTmaPersistentConfig &c) {
  return c.n % 64 == 0 && c.bn % 64 == 0;
}
/// Whether they leave in lines.
constexpr bool storesLines(const LinearTmaPersistentConfig &c) {
  return isNarrow(c.y) && (hasLineColumns(c) || (c.cooperative && c.n % c.bn == 0 && c.n % 8 == 0));
}

constexpr int statisticsWidth(const LinearTmaConfig &c) { return c.bn / c.splitK; }
constexpr int statisticsWidth(const LinearTmaInt8WeightsConfig &c) { return c.bn / c.splitK; }
constexpr int statisticsWidth(const LinearTmaPersistentConfig &c) {
  return storesLines(c) && c.n % c.bn != 0 ? 64 : c.bn;
}
/// The same of the statistics that a kernel leaves; 0: it leaves none.
template <typename Config> constexpr int widthOfLeft(const Config &c) {
  return c.statistics ? statisticsWidth(c) : 0;
}

/// Of a ring of whole k-tiles, and of what the parts of K send each other.
template <typename Config> constexpr unsigned tmaRingBytes(const Config &c) {
  return c.stages * (c.bm + c.bn) * 64 * 2 + (c.splitK - 1) * c.bm * c.bn * 4 / c.splitK + 1024;
}
constexpr unsigned tmaSharedBytes(const LinearTmaConfig &c) { return tmaRingBytes(c); }
constexpr unsigned tmaSharedBytes(const LinearTmaPersistentConfig &c) {
  return tmaRingBytes(c) + (storesLines(c) ? 8 * 16 * 128 : 0);
}
constexpr unsigned tmaSharedBytes(const LinearTmaInt8WeightsConfig &c) {
  return tmaRingBytes(c) + c.rawStages * c.bn * 128;
}

std::string nameOf(const LinearTmaConfig &c);
std::string nameOf(const LinearTmaPersistentConfig &c);
std::string nameOf(const LinearTmaInt8WeightsConfig &c);
Grid gridOf(const LinearTmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);
Grid gridOf(const LinearTmaPersistentConfig &c, const plan::ExprT &m, int64_t n,
            int64_t processors);
Grid gridOf(const LinearTmaInt8WeightsConfig &c, const plan::ExprT &m, int64_t n,
            int64_t processors);

/// Every configuration of linear_tma and linear_tma_persistent that pays for some product of this
/// size: each tile with as many stages as a multiprocessor has room for, and as half of one has;
/// some also columns first. k is a multiple of 8.
std::vector<TmaTile> tmaTiles(const LinearShape &s);
/// Estimated microseconds on an H200. With int8 weights it is another fit than in fp16, so that
/// only costs of the same type of weights compare.
double tmaCost(const LinearTmaConfig &config, const LinearShape &s);
double tmaCost(const LinearTmaPersistentConfig &config, const LinearShape &s);
double tmaCost(const LinearTmaInt8WeightsConfig &config, const LinearShape &s);
/// The same with the rotation that the epilogue ends with, if it does.
double tmaProductCost(const LinearTmaConfig &config, const LinearProblem &p);
double tmaProductCost(const LinearTmaPersistentConfig &config, const LinearProblem &p);
double tmaProductCost(const LinearTmaInt8WeightsConfig &config, const LinearProblem &p);
/// The cheapest of those that can do all that is wanted beside, for fp16 weights.
TmaTile bestTmaTile(const LinearProblem &p);
/// The cheapest, complete, then those that cost up to 1.6 times as much, of both kernels.
std::vector<TmaTile> tmaCandidates(const LinearProblem &p);
/// KernelRecord::sumOrder of all three.
std::string tmaSumOrder(const LinearTmaConfig &c, const LinearProblem &p);
std::string tmaSumOrder(const LinearTmaPersistentConfig &c, const LinearProblem &p);
std::string tmaSumOrder(const LinearTmaInt8WeightsConfig &c, const LinearProblem &p);
/// Why neither computes a product; empty: one does.
std::string tmaRefusal(const LinearProblem &p);

} // namespace gpt2c
