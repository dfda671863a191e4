#include "templates/linear/parts/Int8TmaTiles.h"

#include "codegen/KernelWriter.h"
#include "templates/linear/Kernels.h"
#include "templates/linear/parts/ConfigList.h"

#include <algorithm>

namespace gpt2c {

bool isInt8Tma(llvm::StringRef kernel) {
  return kernel == "linear_fp8_persistent" || kernel == "linear_int8_persistent" ||
         kernel == "linear_int8_stationary" || kernel == "linear_int8_tma";
}

std::string nameOf(const LinearInt8TmaConfig &c) {
  return tileName("linear_int8_tma", c) + (c.oneCtaPerSm ? " one-cta-per-sm" : "");
}
std::string nameOf(const LinearInt8StationaryConfig &c) {
  return llvm::formatv("linear_int8_stationary {0}x{1} stages={2} parts={3}", c.bm, c.bn, c.stages,
                       c.parts)
      .str();
}
std::string nameOf(const LinearInt8PersistentConfig &c) {
  return llvm::formatv("linear_int8_persistent {0}x{1} stages={2}", c.bm, c.bn, c.stages).str();
}

std::string nameOf(const LinearFp8PersistentConfig &c) {
  return llvm::formatv("linear_fp8_persistent {0}x{1} stages={2}", c.bm, c.bn, c.stages).str();
}

Grid gridOf(const LinearInt8TmaConfig &c, const plan::ExprT &m, int64_t n, int64_t) {
  return tileGrid(c, m, n);
}
Grid gridOf(const LinearInt8StationaryConfig &c, const plan::ExprT &m, int64_t n, int64_t) {
  Grid grid = tileGrid(c, m, n);
  grid[1] = rt::constantExpr(c.parts);
  return grid;
}
template <typename Config>
static Grid turnGrid(const Config &c, const plan::ExprT &m, int64_t n, int64_t processors) {
  const Grid grid = tileGrid(c, m, n);
  return blocks(minExpr(productExpr(grid[0], grid[1]), rt::constantExpr(processors)));
}
Grid gridOf(const LinearInt8PersistentConfig &c, const plan::ExprT &m, int64_t n,
            int64_t processors) {
  return turnGrid(c, m, n, processors);
}
Grid gridOf(const LinearFp8PersistentConfig &c, const plan::ExprT &m, int64_t n,
            int64_t processors) {
  return turnGrid(c, m, n, processors);
}

/// As many stages as fit beside the operands of two tiles' columns, up to three of each, and the
/// barriers.
template <typename Config> static bool fillRing(Config &c, int most) {
  c.stages = 0;
  for (int stages = 2; stages <= most; ++stages) {
    Config deeper = c;
    deeper.stages = stages;
    if (int8TmaSharedBytes(deeper) + 2 * 3 * 4 * c.bn + 512 <= wholeShared)
      c.stages = stages;
  }
  return c.stages > 0;
}

static void addTiles(const LinearShape &s, const Int8Rows &int8, std::vector<Int8TmaTile> &list) {
  const int64_t rows = s.rows, n = s.n, k = s.k, processors = s.target.multiprocessors;
  const int xGroup = std::max<int64_t>(int8.group, 0), yGroup = int8.yGroup;
  const bool residual = int8.residual, oneCtaPerSm = int8.oneCtaPerSm;
  const int64_t kTiles = divideCeilSigned(k, 128);
  LinearInt8TmaConfig of;
  of.x = s.x;
  of.n = int(n);
  of.k = int(k);
  of.xGroup = xGroup;
  of.yGroup = yGroup;
  for (int bm : {64, 128}) {
    if (bm == 128 && rows <= 64)
      continue;
    for (int bn : {32, 48, 64, 96, 128, 144, 192})
      for (int splitK : {1, 2, 4}) {
        const int64_t blocks = divideCeilSigned(rows, bm) * divideCeilSigned(n, bn) * splitK;
        if (yGroup > 0 && (bn % yGroup != 0 || splitK > 1))
          continue;
        // Two sets of sums of units have to fit into registers.
        const bool halves = bm == 128 && of.unit() > 0 && bn == 128 && splitK == 2;
        if (of.unit() > 0 &&
            (bm == 64 ? bn > (yGroup > 0 ? 128 : 96) : bn != 96 && bn != 192 && !halves))
          continue;
        // Clusters cost more than they save once the tiles alone fill the chip. Of 128 rows sums of
        // groups, which take long, are worth them.
        if (splitK > 1 && (blocks > processors || (bm == 128 && !halves) ||
                           bn / 8 % (2 * splitK) != 0 || kTiles < 4 * splitK))
          continue;
        LinearInt8TmaConfig c = of;
        c.bm = bm;
        c.bn = bn;
        c.splitK = splitK;
        c.residual = residual && splitK == 1 && bn % 64 == 0 && n % bn == 0;
        c.oneCtaPerSm = oneCtaPerSm && blocks <= processors;
        // As in tmaTiles.
        const bool small =
            bm == 64 && (blocks > processors || (kTiles <= 8 * splitK && !c.oneCtaPerSm));
        c.blocks = small && blocks > processors && c.unit() == 0 ? 2 : 1;
        c.stages = 0;
        for (int stages = 2; stages <= std::min<int64_t>(14, std::max<int64_t>(2, kTiles));
             ++stages) {
          LinearInt8TmaConfig deeper = c;
          deeper.stages = stages;
          // Operands of columns, up to three, and the barriers.
          if (int8TmaSharedBytes(deeper) + 3 * 4 * bn + 256 <= (small ? halfShared : wholeShared))
            c.stages = stages;
        }
        if (c.stages > 0)
          list.push_back(c);
      }
  }
}

/// Those of the kernels whose warpgroups take turns, of int8 rows without groups.
static void addTurns(const LinearShape &s, const Int8Rows &int8, std::vector<Int8TmaTile> &list) {
  const int64_t n = s.n, processors = s.target.multiprocessors;
  const int yGroup = int8.yGroup;
  if (s.x != Scalar::I8 || int8.group > 0 || s.rows <= 128)
    return;
  for (int bn : {96, 128, 144, 160, 192}) {
    const int64_t tilesM = divideCeilSigned(s.rows, 128), tilesN = n / bn;
    if (n % bn != 0 || (yGroup > 0 && bn % yGroup != 0) || tilesM * tilesN <= processors)
      continue;
    auto describe = [&](auto c) {
      c.n = int(n);
      c.k = int(s.k);
      c.bn = bn;
      c.yGroup = yGroup;
      c.y = yGroup > 0 ? Scalar::I8 : Scalar::F16; // F16 needs the most shared memory
      return c;
    };
    // Ends that quantise, or add a residual, have no registers for more.
    const bool fits = bn <= (yGroup > 0 || s.y == Scalar::I8 ? 144 : int8.residual ? 160 : 192);
    auto persistent = describe(LinearInt8PersistentConfig());
    if (s.k > 1024 && fits && fillRing(persistent, 8))
      list.push_back(persistent);
    auto stationary = describe(LinearInt8StationaryConfig());
    if (bn > 144 || !fillRing(stationary, 8))
      continue;
    for (int64_t parts = 1; parts <= tilesN; ++parts)
      if (tilesN % parts == 0 || tilesM * parts <= processors) {
        stationary.parts = int(parts);
        list.push_back(stationary);
      }
  }
}

/// Those of fp8 rows whose warpgroups share tile after tile.
static void addFp8Turns(const LinearShape &s, const Int8Rows &int8,
                        std::vector<Int8TmaTile> &list) {
  if (s.x != Scalar::F8E4M3 || s.rows <= 128)
    return;
  for (int bn : {96, 128, 160, 192}) {
    if (s.n % bn != 0 || (int8.yGroup > 0 && bn % int8.yGroup != 0) ||
        divideCeilSigned(s.rows, 128) * (s.n / bn) <= s.target.multiprocessors)
      continue;
    LinearFp8PersistentConfig c;
    c.y = int8.yGroup > 0 ? Scalar::F8E4M3 : Scalar::F16; // as above
    c.bn = bn;
    c.xGroup = int(std::max<int64_t>(int8.group, 0));
    c.yGroup = int(int8.yGroup);
    c.n = int(s.n);
    c.k = int(s.k);
    if (fillRing(c, 8))
      list.push_back(c);
  }
}

std::vector<Int8TmaTile> int8TmaTiles(const LinearShape &s, const Int8Rows &int8) {
  std::vector<Int8TmaTile> list;
  addTiles(s, int8, list);
  addTurns(s, int8, list);
  addFp8Turns(s, int8, list);
  return list;
}

// By the bandwidth of shared memory, which TMA and wgmma share, at the clock of a busy chip: a
// k-tile of 128 x BN is written and read once, and W once more by the second set of rows. On an
// H200 4096 x 6400 x 1600 takes 79 us where this says 75, and 4096 x 4800 x 1600 46 where it says
// 53.
double int8TmaCost(const LinearInt8PersistentConfig &c, const LinearShape &s, bool residual) {
  const int64_t kTiles = divideCeilSigned(s.k, 128);
  const double product = double(kTiles) * (256 + 3 * c.bn) / 1650,
               tileEnd = (residual       ? 0.0353
                          : c.yGroup > 0 ? 0.026
                                         : 0.015) *
                         c.bn;
  const int64_t tiles = divideCeilSigned(s.rows, 128) * (s.n / c.bn),
                turns = divideCeilSigned(tiles, s.target.multiprocessors);
  return 2.5 + double(turns) * (0.3 + std::max(product, (product + tileEnd) / 2)) + tileEnd;
}

// By shared memory as linear_int8_persistent: a k-tile is written once, W read by both warpgroups,
// and where these take columns by halves X, too, twice. Each ends half of the rows, half of that
// time while the other multiplies. Not measured yet.
double int8TmaCost(const LinearFp8PersistentConfig &c, const LinearShape &s, bool residual) {
  const double kTile = (256 + (c.bn > 96 ? 128 : 0) + 3 * c.bn) / 1650.0,
               scales = c.xGroup == 64 ? 0.03 * c.bn / 96 : 0,
               product = double(divideCeilSigned(s.k, 128)) * (kTile + scales),
               tileEnd = (residual       ? 0.0353
                          : c.yGroup > 0 ? 0.026
                                         : 0.015) *
                         c.bn / 2;
  const int64_t tiles = divideCeilSigned(s.rows, 128) * (s.n / c.bn),
                turns = divideCeilSigned(tiles, s.target.multiprocessors);
  return 2.5 + double(turns) * (0.3 + product + tileEnd / 2) + tileEnd / 2;
}

// Microseconds, fitted to times of the products of GPT-2 124M at 128, 512, 1000 and 4096 rows. A
// k-tile of K takes as long as its wgmmas, which reach about 0.6 of the instruction's rate, or its
// way from L2; sums of units are scaled by the warpgroup that multiplies next, or while the other
// one multiplies.
static double costWithGroups(const LinearInt8TmaConfig &c, const LinearShape &s) {
  const int64_t rows = s.rows, n = s.n, k = s.k, processors = s.target.multiprocessors;
  const double kTiles = double(divideCeilSigned(divideCeilSigned(k, 128), c.splitK));
  // Two blocks of a multiprocessor take three halves of the time of one.
  const int64_t blocks = divideCeilSigned(rows, c.bm) * divideCeilSigned(n, c.bn) * c.splitK;
  const double waves = divideCeilSigned(blocks, processors * c.blocks) * (c.blocks + 1) / 2.0;
  const double multiply = c.bm * c.bn / 32.0 * 0.95e-3, fetch = (c.bm + c.bn) * 128 / 80e3;
  const double area = c.bm * c.bn / (128.0 * 96);
  double kTile = std::max(multiply, fetch);
  if (c.unit() > 0)
    kTile += 128.0 / c.unit() * (c.bm == 128 && c.bn > 96 ? 0.03 : 0.01) * c.bn / 96;
  const double end = (c.yGroup > 0 ? 1.4 : 0.9) * area + (waves > 1 ? 1.0 : 0.0),
               split = c.splitK > 1 ? 0.4 * c.splitK : 0.0;
  return 2.2 + split + waves * (kTiles * kTile + end);
}

// The same without groups, fitted to 127 steps of plans at 128, 512, 1024 and 4096 rows. A
// warpgroup ends 64 rows of its tile, so that ends go by columns; a residual that TMA
// does not bring comes from L2 then.
static double costWithoutGroups(const LinearInt8TmaConfig &c, const LinearShape &s, bool residual) {
  const int64_t rows = s.rows, n = s.n, k = s.k, processors = s.target.multiprocessors;
  const double kTiles = double(divideCeilSigned(divideCeilSigned(k, 128), c.splitK));
  const int64_t blocks = divideCeilSigned(rows, c.bm) * divideCeilSigned(n, c.bn) * c.splitK;
  const double waves = divideCeilSigned(blocks, processors * c.blocks) * (c.blocks == 2 ? 1.7 : 1);
  const double multiply = c.bm * c.bn / 32.0 * 0.58e-3, fetch = (c.bm + c.bn) * 128 / 130e3;
  // 64 x 144 with a multiprocessor to itself takes 3.1 us at 512 rows.
  const double end = (c.residual                    ? 1.66
                      : residual                    ? 2.97
                      : c.oneCtaPerSm && c.bm == 64 ? 0.9
                                                    : 1.72) *
                     c.bn / 96,
               split = c.splitK > 1 ? 0.013 * c.splitK : 0.0;
  // Two blocks that share a multiprocessor hide each other's ends.
  const double hidden =
      c.blocks == 2 && blocks <= 2 * processors && c.bn <= 144 && !residual ? 1.1 * end : 0.0;
  return (c.bm == 64 ? 0.56 : 0.76) + split + waves * (kTiles * std::max(multiply, fetch) + end) -
         hidden;
}

double int8TmaCost(const LinearInt8TmaConfig &c, const LinearShape &s, bool residual) {
  return c.unit() > 0 || c.yGroup > 0 ? costWithGroups(c, s) : costWithoutGroups(c, s, residual);
}

// By the fits above. Two warpgroups take turns: while one ends its tile, the other multiplies.
// Nothing hides the end of the last tile, nor the way of the rows to shared memory.
double int8TmaCost(const LinearInt8StationaryConfig &c, const LinearShape &s, bool residual) {
  const double kTiles = double(divideCeilSigned(s.k, 128));
  const int64_t tiles = divideCeilSigned(s.n / c.bn, c.parts),
                rounds = divideCeilSigned(divideCeilSigned(s.rows, 128) * c.parts,
                                          s.target.multiprocessors);
  if (c.yGroup > 0) {
    const double product = 0.0023 * c.bn * kTiles, tileEnd = 0.026 * c.bn,
                 tile = 0.3 + std::max(product, (product + tileEnd) / 2);
    return 2.0 + double(rounds) * (0.1 * kTiles + double(tiles) * tile + tileEnd / 2);
  }
  const double product = 0.0015 * c.bn * kTiles, tileEnd = (residual ? 0.0353 : 0.015) * c.bn,
               tile = 0.877 + std::max(product, (product + tileEnd) / 2);
  return double(rounds) * (0.309 * kTiles + double(tiles) * tile + tileEnd / 2);
}

static double costOf(const Int8TmaTile &tile, const LinearShape &s, bool residual) {
  return std::visit([&](const auto &c) { return int8TmaCost(c, s, residual); }, tile);
}

Int8TmaTile bestInt8TmaTile(const LinearShape &s, const Int8Rows &rows) {
  const std::vector<Int8TmaTile> list = int8TmaTiles(s, rows);
  return *std::min_element(list.begin(), list.end(), [&](const auto &a, const auto &b) {
    return costOf(a, s, rows.residual) < costOf(b, s, rows.residual);
  });
}

std::vector<Int8TmaTile> int8TmaCandidates(const LinearProblem &p) {
  auto complete = [&](Int8TmaTile tile) {
    std::visit(
        [&](auto &c) {
          c.y = p.y;
          c.rowScale = p.int8.group == 0;
        },
        tile);
    return tile;
  };
  std::vector<Int8TmaTile> tiles;
  for (bool oneCtaPerSm : {false, true}) {
    Int8Rows rows = p.int8;
    rows.oneCtaPerSm = oneCtaPerSm;
    for (const Int8TmaTile &tile : int8TmaTiles(p, rows))
      tiles.push_back(complete(tile));
  }
  return cheapest(complete(bestInt8TmaTile(p, p.int8)), std::move(tiles),
                  [&](const Int8TmaTile &tile) { return costOf(tile, p, p.int8.residual); });
}

std::string int8TmaRefusal(const LinearProblem &p) {
  if (std::string why = int8TilesRefusal(p); !why.empty())
    return why;
  return int8TmaTiles(p, p.int8).empty() ? "no room for the scales of the rows of a tile" : "";
}

/// Whether a half has all of its bits for v.
static bool isNormalHalf(float v) { return v >= 0x1p-14F && v <= 65504; }

void addResidualMap(const LinearLaunch &l, int bm) {
  LinearCall &call = l.call;
  call.epilogue.pop_back();
  const auto operands = llvm::count_if(call.epilogue, hasOperand);
  call.args["rMap"] = l.b.tensorMap(call.args["e" + std::to_string(operands)], call.m, l.p.n, bm);
}

Int8Gelu takeInt8Gelu(const LinearLaunch &l, int splitK) {
  const LinearProblem &p = l.p;
  LinearCall &call = l.call;
  const Given given = givenOf(call.epilogue);
  const bool quantises = given == Given::None       ? p.int8.yGroup > 0
                         : given == Given::Fp8Scale ? false
                                                    : splitK == 1 && p.n % 8 == 0 &&
                                                          isNormalHalf(call.args["yInverse"].f32);
  const size_t last = given == Given::None ? 1 : 2; // gelu, and what quantises
  const bool gelu = quantises && p.int8.group <= 0 && p.int8.halfBias &&
                    call.epilogue.size() >= last &&
                    call.epilogue.end()[-int(last)].kind == EpilogueStage::GeluTanhHalf;
  if (gelu)
    call.epilogue.resize(call.epilogue.size() - last);
  return {gelu, given};
}

} // namespace gpt2c
