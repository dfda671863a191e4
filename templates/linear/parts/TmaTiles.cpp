#include "templates/linear/parts/TmaTiles.h"

#include "runtime/cuda/ExchangeRecord.h"
#include "schedule/Schedule.h"
#include "schedule/cost/LinkRates.h"
#include "templates/linear/parts/ConfigList.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

namespace gpt2c {

std::string nameOf(const LinearTmaConfig &c) {
  return tileName("linear_tma", c) + (c.rasterAlongN ? " raster-n" : "");
}
std::string nameOf(const LinearTmaPersistentConfig &c) {
  return tileName("linear_tma_persistent", c) + (c.cooperative ? " cooperative" : "");
}
std::string nameOf(const LinearTmaInt8WeightsConfig &c) {
  return llvm::formatv("{0} raw={1}", tileName("linear_tma_int8_weights", c), c.rawStages).str();
}

Grid gridOf(const LinearTmaConfig &c, const plan::ExprT &m, int64_t n, int64_t) {
  Grid grid = tileGrid(c, m, n);
  if (c.rasterAlongN)
    std::swap(grid[0], grid[1]);
  return grid;
}
Grid gridOf(const LinearTmaPersistentConfig &c, const plan::ExprT &m, int64_t n,
            int64_t processors) {
  const Grid grid = tileGrid(c, m, n);
  return blocks(minExpr(productExpr(grid[0], grid[1]), rt::constantExpr(processors)));
}
Grid gridOf(const LinearTmaInt8WeightsConfig &c, const plan::ExprT &m, int64_t n, int64_t) {
  return tileGrid(c, m, n);
}

static unsigned ringLimit(bool half) {
  return (half ? halfShared : wholeShared) - 4096; // barriers, columns
}

/// Beyond what tmaCost was fitted to: tiles are wider, and persistent blocks pay with one each.
static bool isLarge(const LinearShape &s) { return s.n > 1024 && s.k > 1024; }
/// Whether tiles are so wide for these alone, where they are whole.
static bool isExtra(int bn) { return bn == 160 || bn > 192; }

template <typename Config> static bool leavesHalf(const Config &c) {
  return tmaSharedBytes(c) <= ringLimit(true);
}

/// Whether a tile should use at most half of an SM's shared memory, so that two blocks fit: the
/// next kernel can prefetch its weights, or the tile's own blocks run by twos. A long K or wide
/// k-tiles are worth the deeper ring; so are narrow tiles of 65 to 128 rows, whose blocks may both
/// land on one SM while the kernel before still runs, and leave others idle.
template <typename Config>
static bool shouldLeaveHalf(const Config &c, const LinearShape &s, int64_t blocks, int64_t kTiles) {
  const bool spread = s.rows > 64 && s.rows <= 128 && c.bn <= 48 && kTiles <= 12;
  return c.bm == 64 &&
         (blocks > s.target.multiprocessors || (c.bn <= 64 && kTiles <= 16 && !spread));
}

static void addTiles(const LinearShape &s, std::vector<TmaTile> &list) {
  const int64_t rows = s.rows, n = s.n, k = s.k, processors = s.target.multiprocessors;
  const int64_t kTiles = divideCeilSigned(k, 64);
  LinearTmaConfig of;
  of.y = s.y;
  of.n = int(n);
  of.k = int(k);
  of.xRows = xRowsFor(rows);
  for (int bm : {64, 128}) {
    if (bm == 128 && rows <= 64)
      continue;
    for (int bn : {32, 48, 64, 96, 128, 144, 160, 192, 200, 256})
      for (int splitK : {1, 2, 3, 4}) {
        if (isExtra(bn) && (bm == 64 || splitK > 1 || n % bn != 0 || !isLarge(s)))
          continue;
        const int64_t blocks = divideCeilSigned(rows, bm) * divideCeilSigned(n, bn) * splitK;
        // Clusters cost more than they save once the tiles alone fill the chip; of three and four
        // blocks that need a multiprocessor each fewer have room.
        const int64_t room = splitK > 2 ? splitK * s.target.clusters(splitK) : processors;
        if (splitK > 1 && (blocks > room || (bm == 128 && splitK > 3) || bn / 8 % splitK != 0 ||
                           kTiles < 4 * splitK))
          continue;
        LinearTmaConfig c = of;
        c.bm = bm;
        c.bn = bn;
        c.splitK = splitK;
        int stagesBefore = 0;
        for (bool half : {true, false}) {
          c.blocks = half && blocks > processors && (bm == 64 || bn <= 96) ? 2 : 1;
          const int64_t most = std::min<int64_t>(14, std::max<int64_t>(2, kTiles));
          for (c.stages = 1; c.stages < most; ++c.stages) {
            LinearTmaConfig deeper = c;
            ++deeper.stages;
            if (tmaSharedBytes(deeper) > ringLimit(half))
              break;
          }
          if (c.stages >= 2 && c.stages > stagesBefore)
            list.push_back(c);
          stagesBefore = c.stages;
        }
        // With the ring of all of a multiprocessor, the last one.
        if (splitK == 1 && bm == 128 && bn <= 64 && rows >= 1024 && kTiles >= 32 &&
            blocks <= processors) {
          c.rasterAlongN = true;
          list.push_back(c);
        }
      }
  }
}

// A persistent block of 128 x 192 has no registers left for columns outside of the matrix, but
// where they are lines. One that has a single tile ends it with one warpgroup, which pays for
// thousands of rows and for long sums.
static void addPersistentTiles(const LinearShape &s, std::vector<TmaTile> &list) {
  const int64_t rows = s.rows, n = s.n, processors = s.target.multiprocessors;
  auto tiles = [&](int bn) { return divideCeilSigned(rows, 128) * divideCeilSigned(n, bn); };
  LinearTmaPersistentConfig c;
  c.y = s.y;
  c.n = int(n);
  c.k = int(s.k);
  // Of weights of 32 MB L2 does not hold what the next rows would read again.
  c.rasterGroup = n * s.k > (16 << 20) ? 16 : 1;
  for (int bn : {96, 128, 144, 192}) {
    c.bn = bn;
    c.stages = bn == 96 ? 7 : bn == 192 ? 5 : 6;
    const bool alone = rows >= 4096 || (isLarge(s) && storesLines(c));
    if (tiles(bn) > (alone ? processors / 2 : processors) &&
        (bn < 192 || n % bn == 0 || (isLarge(s) && storesLines(c))))
      list.push_back(c);
  }
  c.cooperative = true;
  for (int bn : {160, 192, 200, 208, 224, 240, 256}) {
    c.bn = bn;
    if (!storesLines(c) || 2 * tiles(bn) <= processors || !isLarge(s))
      continue;
    // Two tiles' columns, up to three operands of each, and rows are in shared memory, too.
    for (c.stages = 8; tmaSharedBytes(c) + 24 * bn > ringLimit(false);)
      --c.stages;
    list.push_back(c);
  }
}

std::vector<TmaTile> tmaTiles(const LinearShape &s) {
  std::vector<TmaTile> list;
  addTiles(s, list);
  addPersistentTiles(s, list);
  return list;
}

// Fitted to times of all kernels of a layer in a chain, in fp16, and kept for int8 weights, with
// which tiles have not been timed in plans but for some (docs/lab/kernels/cost-model.md). A k-tile
// of K takes as long as its wgmmas, or its way from L2, which busy multiprocessors share, or as its
// share of the ring's latency. Blocks that follow each other on a multiprocessor add up, two that
// share it hide each other's ends.
double tmaCost(const LinearTmaInt8WeightsConfig &c, const LinearShape &s) {
  const int64_t rows = s.rows, n = s.n, k = s.k, processors = s.target.multiprocessors;
  const int64_t kTilesOfK = divideCeilSigned(k, 64);
  const double kTiles = double(divideCeilSigned(kTilesOfK, c.splitK));
  const int64_t blocks = divideCeilSigned(rows, c.bm) * divideCeilSigned(n, c.bn) * c.splitK;
  const double waves = double(divideCeilSigned(blocks, processors)),
               busy = std::min(1.0, double(blocks) / processors);
  const double multiply = c.bm * c.bn / 32.0 * 0.6e-3,
               fetch = (c.bm + c.bn) * 128 / 116e3 * (0.52 + 0.48 * busy),
               convert = c.bn * 64 / (c.bm == 64 ? 14e3 : 10.5e3), latency = 1.02 / c.stages;
  const double end = 0.0085 * c.bn / c.splitK + (c.bm == 128 ? 0.31 : 0.0),
               sent = c.bm * c.bn * 4e-3 * (c.splitK - 1) / c.splitK; // KB of sums, of each block
  // Of each tile one ring was timed, and 128 rows in up to two parts.
  const bool should = shouldLeaveHalf(c, s, blocks, kTilesOfK),
             other =
                 leavesHalf(c) ? !should && c.stages < std::min<int64_t>(14, kTilesOfK) : should;
  const double around = (c.splitK > 1 ? 0.45 + 0.08 * sent : 0.0) +
                        (other || (c.bm == 128 && c.splitK > 2) ? 2 * waves : 0.0);
  const double slower = c.bm == 128 && c.bn == 192 ? 1.55 : waves > 1 ? 1.2 : 1.0;
  const double kTile = std::max({slower * multiply, fetch, convert, latency, 0.1});
  return 1.3 + around + waves * (kTiles * kTile + end + (waves > 1 ? 2.0 : 0.0));
}

// Fitted to what plans of three layers of 124M and 355M take at 128 to 4096 rows with one tile or
// another in the place of a product's, everything else unchanged. A k-tile of K takes as long as
// its wgmmas, which one warpgroup does not keep busy, or its way from L2, which busy
// multiprocessors share and W's first k-tiles do not go while the kernel waits, or as its share of
// the way back through the ring. Two blocks that share a multiprocessor hide each other's ends; a
// persistent block hides the ends of its tiles, but not of a single one. What is said of large
// products, and of cooperative warpgroups, is of single products of 2048 and more columns and rows
// of K.
double tmaCost(const LinearTmaConfig &c, const LinearShape &s) {
  const int64_t rows = s.rows, n = s.n, k = s.k, processors = s.target.multiprocessors;
  const double kTiles = double(divideCeilSigned(divideCeilSigned(k, 64), c.splitK));
  const int64_t blocks = divideCeilSigned(rows, c.bm) * divideCeilSigned(n, c.bn) * c.splitK;
  const double waves = double(divideCeilSigned(blocks, processors)),
               busy = std::min(1.0, double(blocks) / processors);
  const bool one = c.bm == 64; // warpgroup
  const double cycle = one ? 0.717e-3 : isLarge(s) ? 0.7e-3 : 0.639e-3;
  const double multiply = c.bm * c.bn / 32.0 * cycle,
               ahead = 0.15 * c.bn * std::min<double>(c.stages, kTiles) / kTiles,
               fetch = (c.bm + c.bn - ahead) * 128 / 110e3 *
                       ((c.rasterAlongN ? 0.27 : 0.44) + 0.72 * busy) *
                       (one && c.bn >= 128 ? 1.21 : 1.0),
               back = 1.65 * std::max(0.0, 1.0 / c.stages - 0.74 / kTiles);
  // A norm taken out of sums of 64 x 48 takes longer than of other tiles, where two of them share a
  // multiprocessor or all have one.
  const double end = 0.0093 * c.bn / c.splitK + (one ? 0.0 : 0.97) +
                     (c.normParts > 0 && one && c.bn == 48 &&
                              (rows > 128 || k > 768 || 4 * blocks > 3 * processors)
                          ? 1.21
                          : 0.0),
               sent = c.bm * c.bn * 4e-3 * (c.splitK - 1) / c.splitK; // KB of sums, of each block
  // Rows of less than 64 bytes are stored slowly, and leave more statistics to the next product.
  const double split = c.splitK == 1 ? 0.0
                                     : 0.05 + 0.08 * sent + 0.76 * (c.splitK - 2) +
                                           (c.bn < 32 * c.splitK ? 1.03 : 0.0);
  // A block of more than 12 k-tiles is worth the deeper ring.
  const bool tooDeep = !leavesHalf(c) && shouldLeaveHalf(c, s, blocks, divideCeilSigned(k, 64)) &&
                       (blocks > processors || kTiles <= 12);
  const double around =
      split + 0.685 * double(blocks) / processors + (tooDeep ? 0.72 * waves : 0.0);
  if (c.blocks == 2 && waves == 2)
    return 1.67 + around + end + (c.bm * c.bn >= 128 * 96 ? 0.41 : 0.0) +
           waves * kTiles * std::max({1.22 * multiply, 0.71 * fetch, 0.68 * back, 0.117});
  // Of 128 x 192 two warpgroups read all of W from shared memory each; a short sum has X earlier.
  const double slower = one || c.bn <= 144 ? (waves > 1 ? 1.35 : 1.0)
                        : isLarge(s)       ? 1.0
                        : kTiles <= 16     ? 1.19
                                           : 1.34;
  return 1.27 + around + waves * (kTiles * std::max({slower * multiply, fetch, back, 0.117}) + end);
}

// On a chip that its power slows down.
double tmaCost(const LinearTmaPersistentConfig &c, const LinearShape &s) {
  const int64_t processors = s.target.multiprocessors;
  const double kTiles = double(divideCeilSigned(s.k, 64));
  const int64_t blocks = divideCeilSigned(s.rows, c.bm) * divideCeilSigned(s.n, c.bn);
  const double waves = double(divideCeilSigned(blocks, processors)),
               busy = std::min(1.0, double(blocks) / processors);
  const double multiply = c.bm * c.bn / 32.0 * (isLarge(s) && c.bn > 144 ? 0.705e-3 : 0.775e-3),
               fetch = (c.bm + c.bn) * 128 / 96e3 * (0.52 + 0.48 * busy), back = 1.02 / c.stages;
  if (isLarge(s) && waves == 1)
    return 1.3 + kTiles * std::max({0.9 * multiply, fetch, back}) + 0.0125 * c.bn;
  const double end = isLarge(s) ? (c.cooperative ? 1.4 : 1.5) : 1.76,
               lastEnd = waves == 1 ? 0.014 * c.bn : 0.0;
  return 3.12 + waves * (kTiles * std::max({multiply, fetch, back}) + end) + lastEnd;
}

static bool inLines(const LinearTmaPersistentConfig &c) { return storesLines(c); }
template <typename Config> static bool inLines(const Config &) { return false; }

static bool sendsLines(const LinearTmaConfig &c) {
  return c.splitK == 1 && c.n % c.bn == 0 && c.n % 8 == 0;
}
static bool sendsLines(const LinearTmaPersistentConfig &c) { return storesLines(c); }
static bool sendsLines(const LinearTmaInt8WeightsConfig &) { return false; }

/// Of cooperative tiles of a rank's own rows ends wait for a residual and others' sums, which
/// nothing hides: half of all, of two ranks.
static double endCost(const LinearTmaPersistentConfig &c, const LinearProblem &p) {
  constexpr double residual = 7;
  const int64_t tiles = divideCeilSigned(p.rows, c.bm) * divideCeilSigned(p.n, c.bn),
                waves = divideCeilSigned(tiles, p.target.multiprocessors);
  return c.cooperative ? residual * double(waves) / 2 : 0;
}
template <typename Config> static double endCost(const Config &, const LinearProblem &) {
  return 0;
}

/// What sums that go to other ranks take longer on the link where they are no whole lines: their
/// time again.
template <typename Config> static double sendCost(const Config &c, const LinearProblem &p) {
  if (p.fused.end == ProductEndKind::Scatter)
    return endCost(c, p);
  return p.fused.end == ProductEndKind::Send && !sendsLines(c)
             ? 2 * double(p.rows) * double(p.n) / LinkRates().bytes
             : 0;
}

// Angles, 8 bytes for two columns, come from L2 behind the last k-tile of a tile. Where rows do not
// leave in lines a warp reads parts of lines of the tables, and these twice.
template <typename Config> static double withRotation(const Config &c, const LinearProblem &p) {
  const double cost = tmaCost(c, p) * p.target.rates.multiplies() + sendCost(c, p);
  if (p.fused.end != ProductEndKind::Rotation)
    return cost;
  const int64_t blocks = divideCeilSigned(p.rows, c.bm) * divideCeilSigned(p.n, c.bn);
  const double waves = double(divideCeilSigned(blocks, p.target.multiprocessors)),
               read = c.bm * c.bn * 4 / 110e3;
  return cost + 0.3 + waves * read * (p.n % c.bn == 0 || inLines(c) ? 1 : 2);
}
double tmaProductCost(const LinearTmaConfig &c, const LinearProblem &p) {
  return withRotation(c, p);
}
double tmaProductCost(const LinearTmaPersistentConfig &c, const LinearProblem &p) {
  return withRotation(c, p);
}
double tmaProductCost(const LinearTmaInt8WeightsConfig &c, const LinearProblem &p) {
  return withRotation(c, p);
}

/// Ends wait for a residual where it is no boxes of 64 columns.
static bool waitsForResidual(const LinearTmaConfig &) { return false; }
static bool waitsForResidual(const LinearTmaPersistentConfig &c) {
  return c.cooperative && !hasLineColumns(c);
}

/// Whether the epilogue can end with a gate: lines that it halves are of units of 16 columns.
static bool takesGate(const LinearTmaConfig &) { return true; }
static bool takesGate(const LinearTmaPersistentConfig &c) {
  return !storesLines(c) || c.bn % 16 == 0;
}
/// Whether tiles can wait for those of other ranks: all run at the same time, and threads have
/// registers for what they get. A launch behind leaves statistics of as many columns.
static bool receives(const LinearTmaConfig &c, const LinearProblem &p) {
  const int64_t blocks = divideCeilSigned(p.rows, c.bm) * divideCeilSigned(p.n, c.bn) * c.splitK;
  return blocks <= p.target.multiprocessors && c.bn / c.splitK <= 64 &&
         c.bn % (8 * c.splitK) == 0 &&
         (!p.fused.statistics || statisticsWidth(c) == AllReduceGroup::statisticsWidth);
}
static bool receives(const LinearTmaPersistentConfig &, const LinearProblem &) { return false; }
/// Whether each rank can end some rows for all: they leave in lines, and with the statistics that
/// are wanted.
static bool scatters(const LinearTmaConfig &, const LinearProblem &) { return false; }
static bool scatters(const LinearTmaPersistentConfig &c, const LinearProblem &p) {
  return storesLines(c) && (!p.fused.statistics || p.n % statisticsWidth(c) == 0);
}
/// Those of tmaTiles that can do all that is wanted beside.
static std::vector<TmaTile> tilesOf(const LinearProblem &p) {
  std::vector<TmaTile> list = tmaTiles(p);
  if (p.fused.end == ProductEndKind::Receive)
    llvm::erase_if(list, [&](const TmaTile &tile) {
      return !std::visit([&](const auto &c) { return receives(c, p); }, tile);
    });
  if (p.fused.end == ProductEndKind::Scatter)
    llvm::erase_if(list, [&](const TmaTile &tile) {
      return !std::visit([&](const auto &c) { return scatters(c, p); }, tile);
    });
  if (p.fused.end == ProductEndKind::Gate)
    llvm::erase_if(list, [](const TmaTile &tile) {
      return !std::visit([](const auto &c) { return takesGate(c); }, tile);
    });
  return list;
}

TmaTile bestTmaTile(const LinearProblem &p) {
  const LinearShape &s = p;
  const bool statistics = p.fused.statistics;
  std::vector<TmaTile> list = tilesOf(p);
  // Statistics are of parts of rows that divide them; without any the norm is a launch. They are of
  // products with a residual.
  constexpr double launch = 2, residual = 7;
  auto costOf = [&](auto &c) {
    c.normParts = p.fused.normParts;
    const int64_t tiles = divideCeilSigned(s.rows, c.bm) * divideCeilSigned(s.n, c.bn),
                  waves = divideCeilSigned(tiles, s.target.multiprocessors);
    return tmaCost(c, s) + sendCost(c, p) +
           (statistics && s.n % statisticsWidth(c) != 0 ? launch : 0) +
           (statistics && p.fused.end != ProductEndKind::Scatter && waitsForResidual(c)
                ? residual * double(waves)
                : 0);
  };
  auto cost = [&](TmaTile &tile) { return std::visit(costOf, tile); };
  return *std::min_element(list.begin(), list.end(),
                           [&](TmaTile &a, TmaTile &b) { return cost(a) < cost(b); });
}

std::vector<TmaTile> tmaCandidates(const LinearProblem &p) {
  TmaTile model = bestTmaTile(p);
  bool statistics = p.fused.statistics;
  // Whether the tile leaves the statistics that are wanted, if any are.
  auto complete = [&](auto &c) {
    c.y = p.y;
    c.w = p.w;
    c.n = int(p.n);
    c.k = int(p.k);
    c.normParts = p.fused.normParts;
    c.normWidth = p.fused.normWidth;
    c.rms = p.fused.norm == NormKind::Rms;
    c.statistics = statistics && p.n % statisticsWidth(c) == 0;
    return c.statistics == statistics;
  };
  statistics = std::visit(complete, model) && statistics;
  std::vector<TmaTile> tiles;
  for (TmaTile &tile : tilesOf(p))
    if (std::visit(complete, tile))
      tiles.push_back(tile);
  auto cost = [&](const TmaTile &tile) {
    return std::visit([&](const auto &c) { return tmaProductCost(c, p); }, tile);
  };
  return cheapest(model, std::move(tiles), cost, p.batchInvariant);
}

// A warpgroup sums up k-tile after k-tile by wgmma, whatever the tile; parts meet in the order of
// their index. K-tiles that int8 weights become are made by twos, which K is divided by.
static std::string sumOrder(llvm::StringRef what, int splitK, const LinearProblem &p) {
  return inParts(what, splitK) + (isNarrow(p.y) ? ", gelu as fp16 needs it" : "");
}
std::string tmaSumOrder(const LinearTmaConfig &c, const LinearProblem &p) {
  return sumOrder("wgmma.k16", c.splitK, p);
}
std::string tmaSumOrder(const LinearTmaPersistentConfig &c, const LinearProblem &p) {
  return sumOrder("wgmma.k16", c.splitK, p);
}
std::string tmaSumOrder(const LinearTmaInt8WeightsConfig &c, const LinearProblem &p) {
  return sumOrder("wgmma.k16 of int8 weights", c.splitK, p);
}

std::string tmaRefusal(const LinearProblem &p) {
  if (p.k == 0 || p.k % 8 != 0)
    return "K is no multiple of 8";
  const bool scatters = p.fused.end == ProductEndKind::Scatter;
  if (!scatters && p.fused.end != ProductEndKind::Receive)
    return "";
  if (p.hasNorm())
    return "a norm of rows of which each rank has a part";
  if (scatters)
    return tilesOf(p).empty() ? "no tiles of blocks that take one after the other leave in lines"
                              : "";
  if (int64_t(llvm::alignTo(p.rows, 16)) * p.n / 2 > rt::kExchangeWords)
    return "sums over ranks are more than their tiles have room for";
  return tilesOf(p).empty() ? "tiles that wait for other ranks do not all run at the same time"
                            : "";
}

} // namespace gpt2c
