// Products with weights: the kernels and configurations that may compute one, and the choice among
// them.
#include "codegen/LinearCandidates.h"
#include "codegen/LinearTiles.h"

#include "llvm/ADT/STLExtras.h"

#include <optional>

namespace gpt2c {

static int rowsOf(const LinearShape &s) {
  int rows = 8;
  while (rows < s.rows)
    rows *= 2;
  return rows;
}

/// linear_stream_ring, which is faster for one or two rows of fp16; slots 0: it has no room.
static LinearStreamConfig streamRingConfig(const LinearShape &s) {
  LinearStreamConfig c;
  c.y = s.y;
  c.k = s.k;
  c.rows = s.rows;
  if (!s.hopper || !s.isHalf() || s.rows > 2)
    return c;
  while (c.columns > 1 && streamSlots(c) < 3)
    c.columns /= 2;
  c.slots = streamSlots(c) < 3 ? 0 : streamSlots(c);
  return c;
}

static LinearStreamConfig streamConfig(const LinearShape &s) {
  if (LinearStreamConfig ring = streamRingConfig(s); ring.slots > 0)
    return ring;
  LinearStreamConfig c;
  c.y = s.y;
  c.k = s.k;
  c.w = s.w;
  c.rows = rowsOf(s);
  // As many warps as end at about the same time.
  const int64_t tiles = divideCeilSigned(s.n, 16);
  auto turns = [&](int64_t warps) { return divideCeilSigned(tiles, warps * processors) * warps; };
  for (int warps : {12, 16})
    if (turns(warps) <= turns(c.warps))
      c.warps = warps;
  // 32 rows by the tuner: 24 to 30 us with 16 warps, 33 to 46 with 12.
  LinearStreamConfig most = c;
  most.warps = 16;
  if (c.rows == 32 && s.w == Scalar::F16 && streamSharedBytes(most) <= s.sharedLimit)
    return most;
  return c;
}

/// Rows up to which products are split along K within a block.
static int64_t fewRows(const LinearShape &s) { return s.hopper && s.isHalf() ? 32 : 64; }

/// Whether linear_rows computes it.
static bool hasRows(const LinearShape &s) {
  return s.x == Scalar::F16 && s.w != Scalar::F32 && s.xGroup < 0 && s.k > 0 && s.k % 8 == 0 &&
         s.wGroup % 32 == 0 && s.rows <= fewRows(s);
}

/// Whether linear_stream_tma computes it.
static bool hasStreamTma(const LinearShape &s) {
  return s.hopper && s.x == Scalar::F16 && s.w != Scalar::F32 && s.xGroup < 0 && s.wGroup == 0 &&
         s.k > 0 && s.k % (s.w == Scalar::I8 ? 16 : 8) == 0;
}

static LinearStreamTmaConfig streamTmaConfig(const LinearShape &s) {
  const bool int8 = s.w == Scalar::I8;
  LinearStreamTmaConfig c;
  c.y = s.y;
  c.w = s.w;
  c.n = s.n;
  c.k = s.k;
  c.bm = s.rows <= 64 ? 64 : 128;
  c.bn = s.rows > 128 ? 192 : 128;
  if (int8) {
    c.stages = c.bm == 64 ? 7 : c.bn == 128 ? 6 : 4;
    c.rawStages = c.bm == 64 ? 3 : 2;
  } else {
    c.stages = c.bm == 64 ? 9 : c.bn == 128 ? 6 : 5;
  }
  return c;
}

LinearKind linearKind(const LinearShape &s) {
  const bool wide = s.n >= 16384; // a vocabulary: as many tiles as anyone can use
  // The gains of a norm, 2 K bytes, stand beside the ring.
  if (!wide && hasStreamTma(s) && s.w == Scalar::I8 && s.rows > 32 && s.rows <= 512 && s.k <= 16384)
    return LinearKind::TilesInt8Weights;
  if (!wide && hasRows(s) && (s.rows > 1 || s.w == Scalar::I8))
    return LinearKind::Rows;
  if (wide && hasStreamTma(s) && s.rows > (s.w == Scalar::I8 ? 32 : 8) && s.rows <= 256)
    return LinearKind::StreamTma;
  if (wide && s.x == Scalar::F16 && s.w != Scalar::F32 && s.xGroup < 0 && s.wGroup == 0 &&
      s.k > 0 && s.k % (s.w == Scalar::I8 ? 64 : 32) == 0 && s.rows <= 64 &&
      streamSharedBytes(streamConfig(s)) <= s.sharedLimit)
    return LinearKind::Stream;
  if (s.w == Scalar::I8 && s.x == Scalar::F16 && s.k > 0 && s.k % 16 == 0 &&
      s.rows <= (s.xGroup >= 0 ? 16 : 64) && s.wGroup % 64 == 0)
    return LinearKind::Skinny;
  if (s.k > 0 && s.isHalf() && s.k % 8 == 0 && s.rows > 1 && s.rows <= (wide ? 16 : fewRows(s)))
    return LinearKind::Skinny;
  return s.k > 0 && s.rows <= (s.tf32 && wide ? 4 : 8) ? LinearKind::RowDot : LinearKind::Tiles;
}

static LinearRowDotConfig rowDotConfig(const LinearShape &s) {
  LinearRowDotConfig c;
  c.x = s.x;
  c.w = s.w;
  c.y = s.y;
  c.k = s.k;
  for (c.rows = 1; c.rows < s.rows;)
    c.rows *= 2;
  if (s.isHalf() && c.rows == 1) // by the tuner
    c.cols = 1;
  // Warps share columns until there are two blocks for each multiprocessor, as long as each lane
  // still has two loads in flight; one row of fp32 in four parts at most.
  int64_t vector = 16 / scalarBytes(c.w);
  const int most = c.rows == 1 && !s.isHalf() ? 4 : c.warps;
  while (c.kSplit < most && s.n / rowDotColumns(c) < 2 * processors &&
         c.k >= 64 * vector * c.kSplit)
    c.kSplit *= 2;
  return c;
}

LinearSkinnyConfig skinnyConfig(const LinearShape &s) {
  LinearSkinnyConfig c;
  c.y = s.y;
  c.k = s.k;
  c.w = s.w;
  c.wGroup = s.wGroup;
  c.xGroup = s.xGroup;
  c.rows = rowsOf(s);
  if (c.w == Scalar::I8) {
    // A chunk of 64 k for each warp at least; fewer warps where each has many rows to load.
    const bool narrow = s.n < 16 * processors;
    int warps = s.n >= 16384 ? (c.rows <= 16 ? 4 : 6)
                : c.k > 1024 ? (c.rows <= 16   ? 16
                                : c.rows == 32 ? 12
                                               : 8)
                             : (c.rows <= 16 || (narrow && c.rows == 32) ? 12 : 6);
    c.kSplit = c.warps = std::min<int64_t>(warps, divideCeilSigned(c.k, 64));
    return c;
  }
  // With few blocks, more warps a block, unless each has many loads in flight already.
  if (s.n < 16 * processors && c.k <= 1024 && c.rows <= 32)
    c.kSplit = c.warps = 16;
  return c;
}

static LinearRowsConfig rowsConfig(const LinearShape &s, bool norm) {
  LinearRowsConfig c;
  c.y = s.y;
  c.k = s.k;
  c.w = s.w;
  c.wGroup = s.wGroup;
  c.pairs = s.n % 2 == 0;
  c.rows = rowsOf(s);
  // Every block reads its part of all rows: more columns a block where there are more than enough.
  if (s.n >= 16 * processors)
    c.groups = 2;
  while (s.hopper && !norm && c.splits < 4 && s.k >= 1536 * c.splits)
    c.splits *= 2;
  return c;
}

static LinearClusterConfig clusterConfig(const LinearShape &s) {
  LinearClusterConfig c = bestClusterConfig(s.rows, s.n, s.k);
  c.y = s.y;
  c.k = s.k;
  c.w = s.w;
  c.pairs = s.n % 2 == 0;
  return c;
}

bool hasWeightsKernel(const LinearShape &s) {
  const LinearKind kind = linearKind(s);
  if (kind == LinearKind::Rows || kind == LinearKind::Stream || kind == LinearKind::StreamTma ||
      kind == LinearKind::TilesInt8Weights)
    return true;
  const bool skinny = kind == LinearKind::Skinny;
  if (s.xGroup >= 0)
    return skinny && (s.xGroup == 0 || s.xGroup == 64 || s.xGroup == 128 || s.xGroup == 256) &&
           skinnyRowBytes(skinnyConfig(s)) <= 64 * 1024;
  if (skinny)
    return true;
  return s.wGroup == 0 && (linearKind(s) == LinearKind::RowDot || s.x == Scalar::F32);
}

bool hasTma(const LinearShape &s) { return s.hopper && s.isHalf() && s.k > 0 && s.k % 8 == 0; }

/// The largest tile that still gives every multiprocessor about one; where even small tiles do not,
/// K is split.
static LinearWgmmaConfig wgmmaConfig(const LinearShape &s) {
  LinearWgmmaConfig c;
  c.y = s.y;
  const int64_t n = s.n, k = s.k, rows = s.rows;
  auto tiles = [&](int64_t bm, int64_t bn) {
    return divideCeilSigned(rows, bm) * divideCeilSigned(n, bn);
  };
  if (tiles(128, 128) >= processors) {
    // One wave of 128 x 192 is shorter than one and a half of two 128 x 128 on each multiprocessor.
    LinearWgmmaConfig wide = {c.y, 128, 192, 3, 1};
    if (tiles(128, 192) <= processors && tiles(128, 128) > processors &&
        wgmmaSharedBytes(wide) <= s.sharedLimit)
      return wide;
    return c;
  }
  // More blocks, each with as many slabs on their way as shared memory holds twice on a
  // multiprocessor.
  if (tiles(64, 128) >= processors)
    return {c.y, 64, 128, 4, 1};
  c.bm = c.bn = 64;
  c.stages = 6;
  while (c.splitK < 4 && tiles(c.bm, c.bn) * c.splitK * 2 <= processors && k >= 1536 * c.splitK)
    c.splitK *= 2;
  return c;
}

static LinearSimtConfig simtConfig(const LinearShape &s) {
  LinearSimtConfig c;
  c.x = s.x;
  c.w = s.w;
  c.y = s.y;
  c.bk = 16;
  const int64_t n = s.n, k = s.k, rows = s.rows;
  auto tiles = [&](int64_t bm, int64_t bn) {
    return divideCeilSigned(rows, bm) * divideCeilSigned(n, bn);
  };
  if (tiles(128, 64) >= 2 * processors) {
    c.bm = 128;
    c.bn = 64;
  } else {
    c.bm = rows <= 32 ? 32 : 64;
    c.bn = 64;
    c.tm = c.bm == 64 && tiles(64, 64) >= processors ? 8 : 4;
    c.tn = 4;
    while (c.splitK < 8 && tiles(c.bm, c.bn) < processors &&
           c.splitK * tiles(c.bm, c.bn) < 2 * processors && k >= 384 * c.splitK &&
           c.splitK * rows <= 4096)
      c.splitK *= 2;
  }
  return c;
}

static std::vector<LinearTmaConfig> tmaCandidates(const LinearShape &s,
                                                  const LinearDuties &duties) {
  LinearTmaConfig c = bestTmaConfig(s.rows, s.n, s.k, duties.normParts, duties.statistics);
  c.y = s.y;
  c.n = s.n;
  c.k = s.k;
  c.normWidth = duties.normWidth;
  c.statistics = duties.statistics && s.n % statisticsWidth(c) == 0;
  return candidates(c, s.rows, s.n, s.k);
}

/// The same tile for int8 weights, whose rings share the shared memory that there is. None: there
/// is not enough of that, or of registers.
static std::optional<LinearTmaConfig> withInt8Weights(LinearTmaConfig c) {
  const int raw = divideCeilSigned(divideCeilSigned(c.k, 128), c.splitK);
  const unsigned beside = 4096 + raw * 256; // barriers and columns, and gains
  const unsigned whole = wholeShared - beside, half = halfShared - beside;
  const bool small = tmaSharedBytes(c) <= half;
  if (c.persistent || c.splitK > raw || c.bn > (c.bm == 64 ? 144 : 96))
    return std::nullopt;
  c.w = Scalar::I8;
  c.blocks = 1;
  c.columnsFirst = false;
  c.rawStages = std::clamp(raw, 2, small ? 3 : 6);
  for (c.stages = 2 * raw; c.stages > 2 && tmaSharedBytes(c) > (small ? half : whole);)
    --c.stages;
  // Slabs are made by twos, the second while the one before the first is still multiplied.
  if (c.stages < std::min(3, 2 * raw))
    return std::nullopt;
  return c;
}

/// linear_tma_int8_weights, the cheapest first by the cost of the same tiles in fp16. Statistics
/// are of parts of rows that divide them: where no tile's do, nobody leaves any and the norm is a
/// launch.
static std::vector<LinearTmaConfig> int8WeightsCandidates(const LinearShape &s,
                                                          const LinearDuties &duties) {
  const std::vector<LinearTmaConfig> tiles = tmaConfigs(s.rows, s.n, s.k);
  std::vector<std::pair<double, size_t>> byCost;
  for (auto [i, c] : llvm::enumerate(tiles)) {
    LinearTmaConfig int8 = c;
    int8.w = Scalar::I8;
    byCost.emplace_back(tmaCost(int8, s.rows, s.n, s.k), i);
  }
  llvm::sort(byCost);
  std::vector<LinearTmaConfig> list;
  for (const auto &[cost, i] : byCost) {
    LinearTmaConfig c = tiles[i];
    c.y = s.y;
    c.n = s.n;
    c.k = s.k;
    c.p = duties.gain;
    c.normParts = duties.normParts;
    c.normWidth = duties.normWidth;
    c.statistics = duties.statistics;
    if (!c.statistics || s.n % statisticsWidth(c) == 0)
      if (auto int8 = withInt8Weights(c); int8 && llvm::none_of(list, [&](const auto &other) {
                                            return nameOf(other) == nameOf(*int8);
                                          }))
        list.push_back(*int8);
  }
  if (list.empty() && duties.statistics) {
    LinearDuties fewer = duties;
    fewer.statistics = false;
    return int8WeightsCandidates(s, fewer);
  }
  list.resize(std::min<size_t>(list.size(), 8));
  return list;
}

std::vector<LinearConfig> linearCandidates(const LinearShape &s, const LinearDuties &duties) {
  const bool norm = duties.norm != FusedNorm::None;
  std::vector<LinearConfig> list;
  auto add = [&](const auto &configs) { list.insert(list.end(), configs.begin(), configs.end()); };
  LinearRowsConfig rows = rowsConfig(s, norm);
  rows.norm = duties.norm;
  rows.p = duties.gain;
  auto addTma = [&] {
    auto tma = tmaCandidates(s, duties);
    tma.resize(std::min<size_t>(tma.size(), 3));
    add(tma);
  };
  switch (linearKind(s)) {
  case LinearKind::RowDot: {
    LinearRowDotConfig c = rowDotConfig(s);
    c.norm = duties.norm;
    c.p = duties.gain;
    const bool alsoRows = hasRows(s) && (!norm || duties.normSums);
    // One row of up to 1024 columns takes linear_rows 0.7 to 0.8 of the time.
    const bool rowsFirst = alsoRows && s.k <= 1024;
    if (rowsFirst)
      list.emplace_back(rows);
    add(candidates(c, s.n));
    if (alsoRows && !rowsFirst)
      list.emplace_back(rows);
    return list;
  }
  case LinearKind::Rows:
    add(candidates(rows, s.hopper));
    if (!norm && s.rows > 16 && hasTma(s))
      addTma();
    return list;
  case LinearKind::TilesInt8Weights:
    add(int8WeightsCandidates(s, duties));
    if (s.rows <= 128 && !clusterConfigs(s.rows, s.n, s.k).empty()) {
      LinearClusterConfig c = clusterConfig(s);
      c.norm = duties.norm;
      c.p = duties.gain;
      c.statistics = duties.statistics && s.n % 64 == 0;
      if (c.statistics == duties.statistics)
        add(candidates(c, s.rows, s.n));
    }
    return list;
  case LinearKind::StreamTma: {
    LinearStreamTmaConfig c = streamTmaConfig(s);
    c.best = duties.best;
    add(candidates(c));
    return list;
  }
  case LinearKind::Stream: {
    LinearStreamConfig c = streamConfig(s);
    c.norm = duties.norm;
    c.p = duties.gain;
    c.best = duties.best;
    add(candidates(c));
    return list;
  }
  case LinearKind::Skinny: {
    LinearSkinnyConfig c = skinnyConfig(s);
    c.norm = duties.norm;
    c.p = duties.gain;
    add(candidates(c));
    return list;
  }
  case LinearKind::Tiles:
    break;
  }
  if (hasTma(s)) {
    add(tmaCandidates(s, duties));
    if (duties.normParts == 0 && !duties.statistics)
      list.emplace_back(wgmmaConfig(s));
  } else if (s.isHalf() && s.k % 8 == 0) {
    add(candidates(wgmmaConfig(s), s.rows, s.n, s.k, s.sharedLimit));
  } else if (s.isHalf()) {
    list.emplace_back(LinearMmaConfig{s.y, 64, 128, 32, 2, 4, 4, 1});
  } else if (s.tf32) {
    LinearTf32Config c = bestTf32Config(s.rows, s.n, s.k, s.sharedLimit, s.hopper);
    c.y = s.y;
    add(candidates(c, s.rows, s.n, s.k, s.sharedLimit, s.hopper));
  } else {
    add(candidates(simtConfig(s), s.rows, s.n, s.k));
  }
  return list;
}

} // namespace gpt2c
