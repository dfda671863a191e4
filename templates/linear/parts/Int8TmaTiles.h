// The tiles of linear_int8_tma, linear_int8_stationary, linear_int8_persistent and
// linear_fp8_persistent, and what each should cost.
#pragma once

#include "codegen/KernelWriter.h"
#include "templates/linear/Launch.h"
#include "templates/linear/parts/ConfigList.h"

#include <string>
#include <variant>
#include <vector>

namespace gpt2c {

// Operands have a byte, k is a multiple of 16, k-tiles have 128 columns of K. Scales of a row, or
// of groups of 64 or 128 elements of it, are parameters. `gelu` of the epilogue's result is what y
// quantises, by `given` where there is no yGroup; no groups of x then.

/// linear_int8_tma: a tile for each block, of int8 or fp8. `residual`: the matrix rMap is added
/// behind the epilogue; bn is a multiple of 64 that divides n, no split K. `oneCtaPerSm`: no two
/// blocks share a multiprocessor.
struct LinearInt8TmaConfig {
  Scalar x = Scalar::I8, y = Scalar::F16;
  int bm = 128, bn = 128, stages = 4, splitK = 1, xGroup = 0, yGroup = 0, blocks = 1;
  bool rowScale = false, gelu = false, residual = false;
  int n = 0, k = 0;
  Given given = Given::None; ///< gelu without yGroup
  bool oneCtaPerSm = false;

  /// Columns of K whose sums are added to others in fp32: a group's, or of fp8 a k-tile's; 0: none.
  constexpr int unit() const { return xGroup > 0 ? xGroup : x == Scalar::F8E4M3 ? 128 : 0; }
};

/// linear_int8_stationary: a block keeps 128 rows and takes one of `parts` of the columns, whose
/// tiles divide n.
struct LinearInt8StationaryConfig {
  static constexpr int bm = 128, splitK = 1, xGroup = 0, blocks = 1;
  static constexpr bool residual = false;
  Scalar y = Scalar::F16;
  int bn = 128, stages = 4, yGroup = 0;
  bool rowScale = false, gelu = false;
  int n = 0, k = 0;
  int parts = 1;
  Given given = Given::None; ///< as in LinearInt8TmaConfig
};

/// linear_int8_persistent: a block takes tiles of any 128 rows, every gridDim.x-th, whose columns
/// divide n.
struct LinearInt8PersistentConfig {
  static constexpr int bm = 128, splitK = 1, xGroup = 0, blocks = 1;
  static constexpr bool residual = false;
  Scalar y = Scalar::F16;
  int bn = 128, stages = 4, yGroup = 0;
  bool rowScale = false, gelu = false;
  int n = 0, k = 0;
  Given given = Given::None; ///< as in LinearInt8TmaConfig
};

/// linear_fp8_persistent: a block takes tiles of any 128 rows, every gridDim.x-th, whose columns
/// divide n.
struct LinearFp8PersistentConfig {
  static constexpr int bm = 128, splitK = 1, blocks = 1;
  static constexpr bool residual = false;
  Scalar x = Scalar::F8E4M3, y = Scalar::F16;
  int bn = 128, stages = 4, xGroup = 0, yGroup = 0;
  bool rowScale = false, gelu = false;
  int n = 0, k = 0;
  Given given = Given::None; ///< none with gelu
};

/// Of one of the four, where they are compared.
using Int8TmaTile = std::variant<LinearInt8TmaConfig, LinearInt8StationaryConfig,
                                 LinearInt8PersistentConfig, LinearFp8PersistentConfig>;

constexpr unsigned int8TmaSharedBytes(const LinearInt8TmaConfig &c) {
  return c.stages * (c.bm + c.bn) * 128 + (c.residual ? c.bm * c.bn * 2 : 0) +
         (c.xGroup > 0 ? c.bm * (c.k / c.xGroup) * 4 : 0) +
         (c.splitK - 1) * c.bm * c.bn * 4 / c.splitK + 1024;
}
/// Of lines in which rows of fp16 leave.
template <typename Config> constexpr unsigned int8LineBytes(const Config &c) {
  return c.y == Scalar::F16 ? 16 * 1024 : 0;
}
constexpr unsigned int8TmaSharedBytes(const LinearInt8StationaryConfig &c) {
  return (c.k + 127) / 128 * c.bm * 128 + c.stages * c.bn * 128 + int8LineBytes(c) + 1024;
}
constexpr unsigned int8TmaSharedBytes(const LinearInt8PersistentConfig &c) {
  return c.stages * (c.bm + c.bn) * 128 + int8LineBytes(c) + 1024;
}
constexpr unsigned int8TmaSharedBytes(const LinearFp8PersistentConfig &c) {
  return c.stages * (c.bm + c.bn) * 128 + (c.xGroup > 0 ? c.bm * (c.k / c.xGroup) * 4 : 0) +
         int8LineBytes(c) + 1024;
}

std::string nameOf(const LinearInt8TmaConfig &c);
std::string nameOf(const LinearInt8StationaryConfig &c);
std::string nameOf(const LinearInt8PersistentConfig &c);
std::string nameOf(const LinearFp8PersistentConfig &c);
Grid gridOf(const LinearInt8TmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);
Grid gridOf(const LinearInt8StationaryConfig &c, const plan::ExprT &m, int64_t n,
            int64_t processors);
Grid gridOf(const LinearInt8PersistentConfig &c, const plan::ExprT &m, int64_t n,
            int64_t processors);
Grid gridOf(const LinearFp8PersistentConfig &c, const plan::ExprT &m, int64_t n,
            int64_t processors);

/// Those that pay for some product of this size; group and yGroup are 0, 64 or 128. Empty where the
/// scales of a tile's rows are more than fits into shared memory. residual: some have TMA bring
/// it. oneCtaPerSm: where there are no more blocks than multiprocessors, each has one to itself.
std::vector<Int8TmaTile> int8TmaTiles(const LinearShape &s, const Int8Rows &rows);
/// Estimated microseconds on an H200.
double int8TmaCost(const LinearInt8TmaConfig &c, const LinearShape &s, bool residual);
double int8TmaCost(const LinearInt8StationaryConfig &c, const LinearShape &s, bool residual);
double int8TmaCost(const LinearInt8PersistentConfig &c, const LinearShape &s, bool residual);
double int8TmaCost(const LinearFp8PersistentConfig &c, const LinearShape &s, bool residual);
template <typename Config> double int8ProductCost(const Config &c, const LinearProblem &p) {
  return int8TmaCost(c, p, p.int8.residual);
}
/// The cheapest of all kernels.
Int8TmaTile bestInt8TmaTile(const LinearShape &s, const Int8Rows &rows);
/// The cheapest of all kernels, then those that cost up to 1.6 times as much.
std::vector<Int8TmaTile> int8TmaCandidates(const LinearProblem &p);
/// Why none of them computes a product of quantised rows; empty: one does.
std::string int8TmaRefusal(const LinearProblem &p);
/// Which other one costs less than that with these configurations; empty: none.
template <typename Config> std::string int8TmaSlower(const LinearProblem &p) {
  const Int8TmaTile best = bestInt8TmaTile(p, p.int8);
  return std::holds_alternative<Config>(best)
             ? ""
             : (llvm::StringRef(nameOf(best)).split(' ').first + " costs less").str();
}
bool isInt8Tma(llvm::StringRef kernel);
/// The types and constants that all of their templates have.
template <typename Config> void describeInt8Tile(KernelWriter &w, const Config &c) {
  w.type("Y", c.y);
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.flag("RowScale", c.rowScale);
  w.constant("YGroup", c.yGroup);
  w.flag("Gelu", c.gelu);
  w.constant("N", c.n);
  w.constant("K", c.k);
}

/// What the kernel computes in fp16, as a plan in fp16 would: the gelu, and what quantises it.
/// Takes it off the epilogue.
struct Int8Gelu {
  bool gelu = false;
  Given given = Given::None;
};
Int8Gelu takeInt8Gelu(const LinearLaunch &l, int splitK);
/// Adds what is last in the epilogue by a tensor map in boxes of bm rows, and takes it off.
void addResidualMap(const LinearLaunch &l, int bm);
/// What they are launched with.
template <typename Config> void addInt8TmaArguments(const LinearLaunch &l, Config &c) {
  l.addMaps(c.bm, c.bn, l.p.k / 2, l.p.k / 2);
  if (c.residual)
    addResidualMap(l, c.bm);
  const Int8Gelu end = takeInt8Gelu(l, c.splitK);
  c.gelu = end.gelu;
  if (end.gelu)
    c.given = end.given;
}

} // namespace gpt2c
