#include "templates/linear/parts/Tf32Tiles.h"

#include "templates/linear/parts/ConfigList.h"

#include <algorithm>

namespace gpt2c {

std::string nameOf(const LinearTf32WgmmaConfig &c) { return tileName("linear_tf32_wgmma", c); }
std::string nameOf(const LinearTf32Config &c) {
  return llvm::formatv("linear_tf32 {0}x{1} warps={2}x{3} stages={4} split={5}", c.bm, c.bn,
                       c.warpsM, c.warpsN, c.stages, c.splitK)
      .str();
}

Grid gridOf(const LinearTf32Config &c, const plan::ExprT &m, int64_t n, int64_t) {
  return tileGrid(c, m, n);
}
Grid gridOf(const LinearTf32WgmmaConfig &c, const plan::ExprT &m, int64_t n, int64_t) {
  return tileGrid(c, m, n);
}

std::vector<Tf32Tile> tf32Configs(const LinearShape &s) {
  const int64_t rows = s.rows, n = s.n, k = s.k, processors = s.target.multiprocessors;
  const unsigned sharedLimit = s.target.sharedBytes;
  const bool wgmma = s.target.has(wgmmaTiles);
  struct Tile {
    int bm, bn, warpsM, warpsN;
  };
  const int64_t kTiles = divideCeilSigned(k, 32);
  std::vector<Tf32Tile> list;
  for (Tile t : {Tile{128, 128, 4, 2},
                 {128, 96, 4, 2},
                 {64, 144, 2, 2},
                 {64, 96, 2, 2},
                 {64, 48, 2, 2},
                 {64, 64, 2, 2},
                 {64, 32, 2, 2},
                 {32, 64, 2, 2},
                 {32, 32, 2, 2},
                 {16, 64, 1, 4},
                 {16, 32, 1, 4}}) {
    if (t.bm > 16 && t.bm >= 2 * rows)
      continue;
    for (int splitK : {1, 2, 3, 4, 6, 8}) {
      const int64_t tiles = divideCeilSigned(rows, t.bm) * divideCeilSigned(n, t.bn);
      // Clusters of more than two large blocks do not all fit at once.
      if (splitK > 1 && (tiles * splitK > 3 * processors || kTiles < 4 * splitK ||
                         (splitK > 2 && t.bm * t.bn > 64 * 48)))
        continue;
      LinearTf32Config c{Scalar::F32, t.bm, t.bn, t.warpsM, t.warpsN, 2, splitK, 1};
      c.blocks = t.bm * t.bn <= 64 * 96 && tiles * splitK > processors ? 2 : 1;
      // Nor do more clusters of eight for each block that a multiprocessor has room for.
      if (splitK == 8 && tiles > s.target.clusters(8) * c.blocks)
        continue;
      const int64_t deepest = std::clamp<int64_t>(kTiles / splitK, 2, 6);
      while (c.stages < deepest &&
             (c.stages + 1) * (t.bm + t.bn) * 128u <= sharedLimit / c.blocks - 1024)
        ++c.stages;
      if (tf32SharedBytes(c) <= sharedLimit)
        list.push_back(c);
    }
  }
  for (int bm : {64, 128})
    for (int bn : {48, 64, 72, 96})
      for (int splitK : {1, 2}) {
        const int64_t blocks = divideCeilSigned(rows, bm) * divideCeilSigned(n, bn) * splitK;
        if (!wgmma || rows <= 32 || (bm == 128 && rows <= 64) || kTiles < 4 * splitK ||
            (splitK > 1 && blocks > processors))
          continue;
        LinearTf32WgmmaConfig c{Scalar::F32, bm, bn, 2, splitK};
        for (LinearTf32WgmmaConfig deeper = c; deeper.stages <= std::min<int64_t>(8, kTiles);
             ++deeper.stages)
          if (tf32SharedBytes(deeper) <= sharedLimit - 256) // the barriers
            c = deeper;
        list.push_back(c);
      }
  return list;
}

// Fitted to times of the products of GPT-2 124M at 16 to 4096 rows. A k-tile of K takes a block
// alone `alone`; blocks that share a multiprocessor share its matrix units and its way to the
// weights.
double tf32Cost(const LinearTf32Config &c, const LinearShape &s) {
  const int64_t rows = s.rows, n = s.n, k = s.k, processors = s.target.multiprocessors;
  const double area = c.bm * c.bn,
               kTiles = double(divideCeilSigned(divideCeilSigned(k, 32), c.splitK));
  const int64_t blocks = divideCeilSigned(rows, c.bm) * divideCeilSigned(n, c.bn) * c.splitK;
  // Over few k-tiles small tiles wait for each other's beginnings more than for the fullest
  // multiprocessor.
  const double each = area < 3072 && kTiles <= 16 ? std::max(1.0, double(blocks) / processors)
                                                  : double(divideCeilSigned(blocks, processors));
  const double alone = 0.2 + area * 0.112e-3,
               shared = std::max(0.04 + area * 0.125e-3, (c.bm + c.bn) * 128 / 35e3);
  return 3.5 + (c.splitK > 1 ? 2.0 + 0.1 * c.splitK : 0.0) +
         kTiles * (c.blocks == 1 ? std::max(alone, shared) * each : std::max(alone, shared * each));
}

double tf32Cost(const LinearTf32WgmmaConfig &c, const LinearShape &s) {
  const int64_t rows = s.rows, n = s.n, k = s.k, processors = s.target.multiprocessors;
  const double area = c.bm * c.bn,
               kTiles = double(divideCeilSigned(divideCeilSigned(k, 32), c.splitK));
  const int64_t blocks = divideCeilSigned(rows, c.bm) * divideCeilSigned(n, c.bn) * c.splitK;
  return 3.3 + (c.splitK > 1 ? 1.3 : 0.0) +
         kTiles * double(divideCeilSigned(blocks, processors)) *
             (0.21 + area * 0.057e-3 + (c.bm == 64 ? 0.04 : 0.0));
}
static double costOf(const Tf32Tile &tile, const LinearShape &s) {
  return std::visit([&](const auto &c) { return tf32Cost(c, s); }, tile);
}

Tf32Tile bestTf32Tile(const LinearShape &s) {
  std::vector<Tf32Tile> list = tf32Configs(s);
  return *std::min_element(list.begin(), list.end(), [&](const Tf32Tile &a, const Tf32Tile &b) {
    return costOf(a, s) < costOf(b, s);
  });
}

std::vector<Tf32Tile> tf32Candidates(const LinearShape &s) {
  auto ofType = [&](Tf32Tile tile) {
    std::visit([&](auto &c) { c.y = s.y; }, tile);
    return tile;
  };
  std::vector<Tf32Tile> configs = tf32Configs(s);
  for (Tf32Tile &tile : configs)
    tile = ofType(tile);
  return cheapest(
      ofType(bestTf32Tile(s)), std::move(configs),
      [&](const Tf32Tile &tile) { return costOf(tile, s); }, s.batchInvariant);
}

std::string tf32Refusal(const LinearProblem &p) {
  return p.hasPairs() && p.n % 4 != 0 ? "pairs of columns that are no multiple of 4" : "";
}

} // namespace gpt2c
