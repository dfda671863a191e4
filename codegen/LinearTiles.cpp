#include "codegen/LinearTiles.h"

#include "codegen/FusedLowerings.h"

#include <algorithm>

namespace gpt2c {

static unsigned ringLimit(bool half) {
  return (half ? halfShared : wholeShared) - 4096; // barriers, columns
}

static bool leavesHalf(const LinearTmaConfig &c) { return tmaSharedBytes(c) <= ringLimit(true); }

/// Whether a multiprocessor had better be shared: the next kernel's blocks begin to fetch their
/// weights meanwhile, or its own run by twos. A long K or wide slabs are worth the deeper ring. So
/// are narrow tiles of 65 to 128 rows: where blocks begin while the kernel before still runs, two
/// of half a multiprocessor would share one, and others have none.
static bool shouldLeaveHalf(const LinearTmaConfig &c, int64_t rows, int64_t blocks, int64_t slabs) {
  const bool spread = rows > 64 && rows <= 128 && c.bn <= 48 && slabs <= 12;
  return c.bm == 64 && (blocks > processors || (c.bn <= 64 && slabs <= 16 && !spread));
}

std::vector<LinearTmaConfig> tmaConfigs(int64_t rows, int64_t n, int64_t k) {
  const int64_t slabs = divideCeilSigned(k, 64);
  std::vector<LinearTmaConfig> list;
  for (int bm : {64, 128}) {
    if (bm == 128 && rows <= 64)
      continue;
    for (int bn : {32, 48, 64, 96, 128, 144, 192})
      for (int splitK : {1, 2, 3, 4}) {
        const int64_t blocks = divideCeilSigned(rows, bm) * divideCeilSigned(n, bn) * splitK;
        // Clusters cost more than they save once the tiles alone fill the chip; of three and four
        // blocks that need a multiprocessor each only 39 and 30 have room.
        const int64_t room = splitK == 3 ? 3 * 39 : splitK == 4 ? 4 * 30 : processors;
        if (splitK > 1 && (blocks > room || (bm == 128 && splitK > 3) || bn / 8 % splitK != 0 ||
                           slabs < 4 * splitK))
          continue;
        LinearTmaConfig c;
        c.bm = bm;
        c.bn = bn;
        c.splitK = splitK;
        int stagesBefore = 0;
        for (bool half : {true, false}) {
          c.blocks = half && blocks > processors && (bm == 64 || bn <= 96) ? 2 : 1;
          const int64_t most = std::min<int64_t>(14, std::max<int64_t>(2, slabs));
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
        if (splitK == 1 && bm == 128 && bn <= 64 && rows >= 1024 && slabs >= 32 &&
            blocks <= processors) {
          c.columnsFirst = true;
          list.push_back(c);
        }
      }
  }
  // A persistent block of 128 x 192 has no registers left for columns outside of the matrix. One
  // that has a single tile ends it with one warpgroup, which pays for thousands of rows.
  for (int bn : {96, 128, 144, 192})
    if (divideCeilSigned(rows, 128) * divideCeilSigned(n, bn) >
            (rows < 4096 ? processors : processors / 2) &&
        (bn < 192 || n % bn == 0))
      list.push_back({Scalar::F16, 128, bn, bn == 96 ? 7 : bn == 192 ? 5 : 6, 1, 1, true});
  return list;
}

// Fitted to times of all kernels of a layer in a chain, in fp16, and kept for int8 weights, with
// which tiles have not been timed in plans but for some (docs/kernels.md). A slab of K takes as
// long as its wgmmas, or its way from L2, which busy multiprocessors share, or as its share of the
// ring's latency. Blocks that follow each other on a multiprocessor add up, two that share it hide
// each other's ends.
static double int8WeightsCost(const LinearTmaConfig &c, int64_t rows, int64_t n, int64_t k) {
  const int64_t slabsOfK = divideCeilSigned(k, 64);
  const double slabs = double(divideCeilSigned(slabsOfK, c.splitK));
  const int64_t blocks = divideCeilSigned(rows, c.bm) * divideCeilSigned(n, c.bn) * c.splitK;
  const double waves = double(divideCeilSigned(blocks, processors)),
               busy = std::min(1.0, double(blocks) / processors);
  const double multiply = c.bm * c.bn / 32.0 * 0.6e-3,
               fetch = (c.bm + c.bn) * 128 / 116e3 * (0.52 + 0.48 * busy),
               latency = 1.02 / c.stages;
  const double end = 0.0085 * c.bn / c.splitK + (c.bm == 128 ? 0.31 : 0.0),
               sent = c.bm * c.bn * 4e-3 * (c.splitK - 1) / c.splitK; // KB of sums, of each block
  // Of each tile one ring was timed, and 128 rows in up to two parts.
  const bool should = shouldLeaveHalf(c, rows, blocks, slabsOfK),
             other = leavesHalf(c) ? !should && c.stages < std::min<int64_t>(14, slabsOfK) : should;
  const double around = (c.splitK > 1 ? 0.45 + 0.08 * sent : 0.0) +
                        (other || (c.bm == 128 && c.splitK > 2) ? 2 * waves : 0.0);
  if (c.blocks == 2 && waves == 2 && c.bn <= 144)
    return 1.35 + around + end +
           waves * slabs * std::max({multiply, 0.76 * fetch, latency / 2, 0.1});
  const double slower = c.bm == 128 && c.bn == 192 ? 1.55 : waves > 1 ? 1.2 : 1.0;
  const double slab = std::max({slower * multiply, fetch, latency, 0.1});
  return 1.3 + around + waves * (slabs * slab + end + (waves > 1 ? 2.0 : 0.0));
}

// Fitted to what plans of three layers of 124M and 355M take at 128 to 4096 rows with one tile or
// another in the place of a product's, everything else unchanged. A slab of K takes as long as its
// wgmmas, which one warpgroup does not keep busy, or its way from L2, which busy multiprocessors
// share and W's first slabs do not go while the kernel waits, or as its share of the way back
// through the ring. Two blocks that share a multiprocessor hide each other's ends; a persistent
// block hides the ends of its tiles, but not of a single one.
double tmaCost(const LinearTmaConfig &c, int64_t rows, int64_t n, int64_t k) {
  if (c.w == Scalar::I8)
    return int8WeightsCost(c, rows, n, k);
  const double slabs = double(divideCeilSigned(divideCeilSigned(k, 64), c.splitK));
  const int64_t blocks = divideCeilSigned(rows, c.bm) * divideCeilSigned(n, c.bn) * c.splitK;
  const double waves = double(divideCeilSigned(blocks, processors)),
               busy = std::min(1.0, double(blocks) / processors);
  if (c.persistent) { // on a chip that its power slows down
    const double multiply = c.bm * c.bn / 32.0 * 0.775e-3,
                 fetch = (c.bm + c.bn) * 128 / 96e3 * (0.52 + 0.48 * busy),
                 lastEnd = waves == 1 ? 0.014 * c.bn : 0.0;
    return 3.12 + waves * (slabs * std::max({multiply, fetch, 1.02 / c.stages}) + 1.76) + lastEnd;
  }
  const bool one = c.bm == 64; // warpgroup
  const double multiply = c.bm * c.bn / 32.0 * (one ? 0.717e-3 : 0.639e-3),
               ahead = 0.15 * c.bn * std::min<double>(c.stages, slabs) / slabs,
               fetch = (c.bm + c.bn - ahead) * 128 / 110e3 *
                       ((c.columnsFirst ? 0.27 : 0.44) + 0.72 * busy) *
                       (one && c.bn >= 128 ? 1.21 : 1.0),
               back = 1.65 * std::max(0.0, 1.0 / c.stages - 0.74 / slabs);
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
  // A block of more than 12 slabs is worth the deeper ring.
  const bool tooDeep = !leavesHalf(c) &&
                       shouldLeaveHalf(c, rows, blocks, divideCeilSigned(k, 64)) &&
                       (blocks > processors || slabs <= 12);
  const double around =
      split + 0.685 * double(blocks) / processors + (tooDeep ? 0.72 * waves : 0.0);
  if (c.blocks == 2 && waves == 2)
    return 1.67 + around + end + (c.bm * c.bn >= 128 * 96 ? 0.41 : 0.0) +
           waves * slabs * std::max({1.22 * multiply, 0.71 * fetch, 0.68 * back, 0.117});
  // Of 128 x 192 two warpgroups read all of W from shared memory each; a short sum has X earlier.
  const double slower = !one && c.bn == 192 ? (slabs <= 16 ? 1.19 : 1.34) : waves > 1 ? 1.35 : 1.0;
  return 1.27 + around + waves * (slabs * std::max({slower * multiply, fetch, back, 0.117}) + end);
}

LinearTmaConfig bestTmaConfig(int64_t rows, int64_t n, int64_t k, int normParts, bool statistics) {
  std::vector<LinearTmaConfig> list = tmaConfigs(rows, n, k);
  for (LinearTmaConfig &c : list)
    c.normParts = normParts;
  // Statistics are of parts of rows that divide them; without any the norm is a launch.
  constexpr double launch = 2;
  auto cost = [&](const LinearTmaConfig &c) {
    return tmaCost(c, rows, n, k) + (statistics && n % statisticsWidth(c) != 0 ? launch : 0);
  };
  return *std::min_element(list.begin(), list.end(),
                           [&](const auto &a, const auto &b) { return cost(a) < cost(b); });
}

std::vector<LinearTf32Config> tf32Configs(int64_t rows, int64_t n, int64_t k, unsigned sharedLimit,
                                          bool hopper) {
  struct Tile {
    int bm, bn, warpsM, warpsN;
  };
  const int64_t slabs = divideCeilSigned(k, 32);
  std::vector<LinearTf32Config> list;
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
      if (splitK > 1 && (tiles * splitK > 3 * processors || slabs < 4 * splitK ||
                         (splitK > 2 && t.bm * t.bn > 64 * 48)))
        continue;
      LinearTf32Config c{Scalar::F32, t.bm, t.bn, t.warpsM, t.warpsN, 2, splitK, 1};
      c.blocks = t.bm * t.bn <= 64 * 96 && tiles * splitK > processors ? 2 : 1;
      // Nor do more than 15 clusters of eight for each block that a multiprocessor has room for.
      if (splitK == 8 && tiles > 15 * c.blocks)
        continue;
      const int64_t deepest = std::clamp<int64_t>(slabs / splitK, 2, 6);
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
        if (!hopper || rows <= 32 || (bm == 128 && rows <= 64) || slabs < 4 * splitK ||
            (splitK > 1 && blocks > processors))
          continue;
        LinearTf32Config c{Scalar::F32, bm, bn, 0, 0, 2, splitK, 1, true};
        for (LinearTf32Config deeper = c; deeper.stages <= std::min<int64_t>(8, slabs);
             ++deeper.stages)
          if (tf32SharedBytes(deeper) <= sharedLimit - 256) // the barriers
            c = deeper;
        list.push_back(c);
      }
  return list;
}

// Fitted to times of the products of GPT-2 124M at 16 to 4096 rows. A slab of K takes a block alone
// `alone`; blocks that share a multiprocessor share its matrix units and its way to the weights.
double tf32Cost(const LinearTf32Config &c, int64_t rows, int64_t n, int64_t k) {
  const double area = c.bm * c.bn,
               slabs = double(divideCeilSigned(divideCeilSigned(k, 32), c.splitK));
  const int64_t blocks = divideCeilSigned(rows, c.bm) * divideCeilSigned(n, c.bn) * c.splitK;
  if (c.wgmma)
    return 3.3 + (c.splitK > 1 ? 1.3 : 0.0) +
           slabs * double(divideCeilSigned(blocks, processors)) *
               (0.21 + area * 0.057e-3 + (c.bm == 64 ? 0.04 : 0.0));
  // Over few slabs small tiles wait for each other's beginnings more than for the fullest
  // multiprocessor.
  const double each = area < 3072 && slabs <= 16 ? std::max(1.0, double(blocks) / processors)
                                                 : double(divideCeilSigned(blocks, processors));
  const double alone = 0.2 + area * 0.112e-3,
               shared = std::max(0.04 + area * 0.125e-3, (c.bm + c.bn) * 128 / 35e3);
  return 3.5 + (c.splitK > 1 ? 2.0 + 0.1 * c.splitK : 0.0) +
         slabs * (c.blocks == 1 ? std::max(alone, shared) * each : std::max(alone, shared * each));
}

LinearTf32Config bestTf32Config(int64_t rows, int64_t n, int64_t k, unsigned sharedLimit,
                                bool hopper) {
  std::vector<LinearTf32Config> list = tf32Configs(rows, n, k, sharedLimit, hopper);
  return *std::min_element(list.begin(), list.end(), [&](const auto &a, const auto &b) {
    return tf32Cost(a, rows, n, k) < tf32Cost(b, rows, n, k);
  });
}

std::vector<LinearClusterConfig> clusterConfigs(int64_t rows, int64_t n, int64_t k) {
  std::vector<LinearClusterConfig> list;
  for (int tile : {8, 16, 32, 64}) {
    if (tile >= 2 * rows || (rows > tile && tile < 32))
      continue;
    for (int groups : {1, 2})
      for (int parts : {1, 2, 4})
        for (int splits : {4, 8}) {
          // In whole plans, clusters of eight took 0.65 ms a step of 64 sequences where those of
          // four took 0.60, but 1.09 instead of 1.11 of 128.
          if (splits == 8 && rows > 32 && rows <= 64)
            continue;
          LinearClusterConfig c;
          c.rows = tile;
          c.groups = groups;
          c.parts = parts;
          c.splits = splits;
          c.k = int(k);
          // Each thread holds chunks of 32 k of two columns, 8 registers each, and half a row's
          // sums.
          const int64_t chunks = divideCeilSigned(divideCeilSigned(k, 32), int64_t(parts) * splits);
          const int64_t blocks =
              divideCeilSigned(rows, tile) * divideCeilSigned(n, clusterColumns(c)) * splits;
          if (2 * splits <= tile && clusterThreads(c) <= 512 && 8 * chunks + tile / 2 <= 128 &&
              (chunks >= 3 || parts * splits == 4) && blocks <= 3 * processors &&
              clusterSharedBytes(c) <= halfShared)
            list.push_back(c);
        }
  }
  return list;
}

// Fitted to times of the products of GPT-2 124M at 32 to 128 rows in chains of dependent launches.
// A block reads its slice of the rows, multiplies, sends sums; wgmma with W in registers takes 36
// cycles of 0.57 ns at least.
double clusterCost(const LinearClusterConfig &c, int64_t rows, int64_t n, int64_t k) {
  const int64_t blocks =
      divideCeilSigned(rows, c.rows) * divideCeilSigned(n, clusterColumns(c)) * c.splits;
  const double each = 0.7 * double(divideCeilSigned(blocks, processors)) +
                      0.3 * std::max(1.0, double(blocks) / processors); // of a multiprocessor
  const double read = c.rows * double(k) / c.splits * 2;
  const double sent = c.parts * c.rows * clusterColumns(c) * 4.0 * (c.splits - 1) / c.splits;
  const double multiply = c.groups * double(k) / c.splits / 16 * std::max(c.rows / 2, 36) * 0.57e-3;
  return 0.9 + each * (read / 35e3 + sent / 12e3 + 2.2 * multiply);
}

LinearClusterConfig bestClusterConfig(int64_t rows, int64_t n, int64_t k) {
  std::vector<LinearClusterConfig> list = clusterConfigs(rows, n, k);
  return *std::min_element(list.begin(), list.end(), [&](const auto &a, const auto &b) {
    return clusterCost(a, rows, n, k) < clusterCost(b, rows, n, k);
  });
}

} // namespace gpt2c
