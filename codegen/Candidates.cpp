#include "codegen/Candidates.h"

#include "codegen/FusedLowerings.h"
#include "codegen/Int8Tiles.h"
#include "codegen/LinearTiles.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

using llvm::formatv;

std::string nameOf(const LinearRowDotConfig &c) {
  return formatv("linear_rowdot cols={0} warps={1} split={2}", c.cols, c.warps, c.kSplit).str();
}
std::string nameOf(const LinearSkinnyConfig &c) {
  return formatv("linear_skinny warps={0} split={1}", c.warps, c.kSplit).str();
}
std::string nameOf(const LinearRowsConfig &c) {
  return formatv("linear_rows groups={0} warps={1} splits={2}", c.groups, c.warps, c.splits).str();
}
std::string nameOf(const LinearStreamConfig &c) {
  if (c.slots > 0)
    return formatv("linear_stream_ring warps={0} columns={1} slots={2}", c.warps, c.columns,
                   c.slots)
        .str();
  return formatv("linear_stream warps={0}", c.warps).str();
}
std::string nameOf(const LinearClusterConfig &c) {
  return formatv("linear_cluster {0}x{1} parts={2} splits={3}", c.rows, clusterColumns(c), c.parts,
                 c.splits)
      .str();
}
std::string nameOf(const LinearStreamTmaConfig &c) {
  std::string name = formatv("linear_stream_tma {0}x{1} stages={2}", c.bm, c.bn, c.stages).str();
  return c.rawStages > 0 ? name + " raw=" + std::to_string(c.rawStages) : name;
}
/// Tiles of bm x bn, a ring, parts of K.
template <typename C> static std::string tilesOf(llvm::StringRef kernel, const C &c) {
  return formatv("{0} {1}x{2} stages={3} split={4}", kernel, c.bm, c.bn, c.stages, c.splitK).str();
}
std::string nameOf(const LinearTmaConfig &c) {
  if (c.w == Scalar::I8)
    return formatv("{0} raw={1}", tilesOf("linear_tma_int8_weights", c), c.rawStages).str();
  const std::string name = tilesOf(c.persistent ? "linear_tma_persistent" : "linear_tma", c);
  return c.columnsFirst ? name + " columns-first" : name;
}
std::string nameOf(const LinearWgmmaConfig &c) { return tilesOf("linear_wgmma", c); }
std::string nameOf(const LinearMmaConfig &c) {
  return formatv("{0} warps={1}x{2}", tilesOf("linear_mma", c), c.warpsM, c.warpsN).str();
}
std::string nameOf(const LinearInt8Config &c) { return tilesOf("linear_int8", c); }
std::string nameOf(const LinearInt8TmaConfig &c) {
  return c.stationary ? formatv("linear_int8_stationary {0}x{1} stages={2} parts={3}", c.bm, c.bn,
                                c.stages, c.parts)
                            .str()
                      : tilesOf("linear_int8_tma", c) + (c.alone ? " alone" : "");
}
std::string nameOf(const LinearSimtConfig &c) {
  return formatv("linear_simt {0}x{1}x{2} thread={3}x{4} split={5}", c.bm, c.bn, c.bk, c.tm, c.tn,
                 c.splitK)
      .str();
}
std::string nameOf(const LinearTf32Config &c) {
  if (c.wgmma)
    return tilesOf("linear_tf32_wgmma", c);
  return formatv("linear_tf32 {0}x{1} warps={2}x{3} stages={4} split={5}", c.bm, c.bn, c.warpsM,
                 c.warpsN, c.stages, c.splitK)
      .str();
}
std::string nameOf(const LinearConfig &c) {
  return std::visit([](const auto &config) { return nameOf(config); }, c);
}
std::string nameOf(const AttentionChoice &choice) {
  const AttentionConfig &c = choice.config;
  switch (choice.kernel) {
  case AttentionKernel::Decode:
    return formatv("attention_decode warps={0} splits={1} ring={2}", c.warps, c.splits, c.ring)
        .str();
  case AttentionKernel::DecodeMma:
    return formatv("attention_decode_mma warps={0} splits={1}", c.warps, c.splits).str();
  case AttentionKernel::Wgmma:
    return formatv("attention_prefill_wgmma splits={0}", c.splits).str();
  case AttentionKernel::Mma:
    return formatv("attention_prefill_mma warps={0} keys={1}", c.warps, c.keys).str();
  case AttentionKernel::Tf32:
    return formatv("attention_prefill_tf32 warps={0} keys={1} splits={2}", c.warps, c.keys,
                   c.splits)
        .str();
  case AttentionKernel::Simt:
    return formatv("attention_prefill_simt {0}x{1}", 16 * c.tq, 16 * c.tk).str();
  }
  llvm_unreachable("no such kernel");
}

namespace {
template <typename C> class List {
public:
  explicit List(const C &model) : configs_{model} {}
  void add(const C &c) {
    if (llvm::none_of(configs_, [&](const C &other) { return nameOf(other) == nameOf(c); }))
      configs_.push_back(c);
  }
  size_t size() const { return configs_.size(); }
  std::vector<C> take() { return std::move(configs_); }

private:
  std::vector<C> configs_;
};

/// Those of `configs` whose estimated time is near that of `model`, the cheapest first.
template <typename C, typename Cost>
std::vector<C> cheapest(const C &model, std::vector<C> configs, Cost cost) {
  constexpr double tooSlow = 1.6;
  constexpr size_t most = 16;
  llvm::sort(configs, [&](const C &a, const C &b) {
    const double first = cost(a), second = cost(b);
    return first != second ? first < second : nameOf(a) < nameOf(b);
  });
  List list(model);
  for (const C &c : configs)
    if (list.size() < most && cost(c) <= tooSlow * cost(model))
      list.add(c);
  return list.take();
}
} // namespace

std::vector<LinearRowDotConfig> candidates(const LinearRowDotConfig &model, int64_t n) {
  List list(model);
  if (model.w == Scalar::I8)
    return list.take();
  const int vector = 16 / scalarBytes(model.w);
  for (int warps : {4, 8})
    for (int cols : {1, 2, 4})
      for (int split = 1; split <= warps; split *= 2) {
        LinearRowDotConfig c = model;
        c.warps = warps;
        c.cols = cols;
        c.kSplit = split;
        // Registers for the weights on their way and the sums; lanes without any weights;
        // multiprocessors without a block where smaller ones would do.
        if (cols * model.rows > 16 || (split > 1 && 32 * vector * split > model.k) ||
            (cols > 1 && 4 * divideCeilSigned(n, rowDotColumns(c)) < processors))
          continue;
        list.add(c);
      }
  return list.take();
}

std::vector<LinearSkinnyConfig> candidates(const LinearSkinnyConfig &model) {
  List list(model);
  if (model.w == Scalar::I8)
    return list.take();
  for (auto [warps, split] : {std::pair(4, 4), {8, 4}, {8, 8}, {16, 8}, {16, 16}}) {
    LinearSkinnyConfig c = model;
    c.warps = warps;
    c.kSplit = split;
    if (32 * split <= model.k)
      list.add(c);
  }
  return list.take();
}

std::vector<LinearRowsConfig> candidates(const LinearRowsConfig &model, bool clusters) {
  List list(model);
  for (int groups : {1, 2})
    for (int warps : {4, 8, 16})
      for (int splits : {1, 2, 4}) {
        LinearRowsConfig c = model;
        c.groups = groups;
        c.warps = warps;
        c.splits = splits;
        // Registers for the sums; warps without any weights; shared memory that every GPU has.
        if (groups * c.rows > 64 || 32 * warps * splits > c.k || rowsSharedBytes(c) > 64 * 1024 ||
            (splits > 1 && (!clusters || c.norm != FusedNorm::None || c.k < 768 * splits)) ||
            (splits != model.splits && c.k > 2048 * splits))
          continue;
        list.add(c);
      }
  return list.take();
}

std::vector<LinearStreamConfig> candidates(const LinearStreamConfig &model) {
  List list(model);
  LinearStreamConfig c = model;
  for (c.columns = 2; model.slots > 0 && c.columns <= 8; c.columns *= 2) {
    c.slots = streamSlots(c);
    if (c.slots >= 2)
      list.add(c);
  }
  c.slots = 0;
  c.rows = std::max(c.rows, 8);
  for (int warps : {8, 12, 16}) {
    c.warps = warps;
    list.add(c);
  }
  return list.take();
}

std::vector<LinearStreamTmaConfig> candidates(const LinearStreamTmaConfig &model) {
  constexpr unsigned limit = 223 * 1024; // beside barriers and columns
  List list(model);
  for (int bn : {96, 128, 192})
    for (int raw : {0, 2, 3, 4, 5, 6}) {
      LinearStreamTmaConfig c = model;
      c.bn = bn;
      c.rawStages = raw;
      if ((raw > 0) != (c.w == Scalar::I8))
        continue;
      for (c.stages = 3; streamSharedBytes(c) <= limit;)
        ++c.stages;
      if (--c.stages >= 3)
        list.add(c);
    }
  return list.take();
}

/// With what `model` has that is no matter of speed.
template <typename C> static C like(const C &model, const C &tiles) {
  C c = model;
  c.bm = tiles.bm;
  c.bn = tiles.bn;
  c.stages = tiles.stages;
  c.splitK = tiles.splitK;
  c.blocks = tiles.blocks;
  c.persistent = tiles.persistent;
  c.columnsFirst = tiles.columnsFirst;
  return c;
}

std::vector<LinearTmaConfig> candidates(const LinearTmaConfig &model, int64_t rows, int64_t n,
                                        int64_t k) {
  std::vector<LinearTmaConfig> configs;
  for (const LinearTmaConfig &tiles : tmaConfigs(rows, n, k)) {
    LinearTmaConfig c = like(model, tiles);
    if (!c.statistics || n % statisticsWidth(c) == 0)
      configs.push_back(c);
  }
  return cheapest(model, std::move(configs), [&](const auto &c) { return tmaCost(c, rows, n, k); });
}

std::vector<LinearClusterConfig> candidates(const LinearClusterConfig &model, int64_t rows,
                                            int64_t n) {
  std::vector<LinearClusterConfig> configs;
  for (const LinearClusterConfig &tiles : clusterConfigs(rows, n, model.k)) {
    LinearClusterConfig c = model;
    c.rows = tiles.rows;
    c.groups = tiles.groups;
    c.parts = tiles.parts;
    c.splits = tiles.splits;
    configs.push_back(c);
  }
  return cheapest(model, std::move(configs),
                  [&](const auto &c) { return clusterCost(c, rows, n, c.k); });
}

std::vector<LinearInt8TmaConfig> candidates(const LinearInt8TmaConfig &model, int64_t rows,
                                            int64_t n, int64_t k, bool residual) {
  std::vector<LinearInt8TmaConfig> configs;
  for (bool alone : {false, true})
    for (LinearInt8TmaConfig c :
         int8TmaConfigs(rows, n, k, model.xGroup, model.yGroup, residual, alone)) {
      c.y = model.y;
      c.rowScale = model.rowScale;
      configs.push_back(c);
    }
  return cheapest(model, std::move(configs),
                  [&](const auto &c) { return int8TmaCost(c, rows, n, k, residual); });
}

std::vector<LinearInt8Config> candidates(const LinearInt8Config &model) {
  List list(model);
  for (auto [bm, bn, stages] : {std::tuple(128, 128, 3), {64, 128, 3}, {64, 128, 4}, {64, 64, 6}}) {
    LinearInt8Config c = model;
    c.bm = bm;
    c.bn = bn;
    c.stages = stages;
    if (c.yGroup == 0 || bn % c.yGroup == 0)
      list.add(c);
  }
  return list.take();
}

std::vector<LinearWgmmaConfig> candidates(const LinearWgmmaConfig &model, int64_t rows, int64_t n,
                                          int64_t k, unsigned sharedLimit) {
  List list(model);
  for (auto [bm, bn, stages] : {std::tuple(128, 192, 3),
                                {128, 128, 3},
                                {128, 64, 4},
                                {64, 192, 3},
                                {64, 128, 4},
                                {64, 64, 6},
                                {64, 64, 4}})
    for (int split : {1, 2, 4}) {
      LinearWgmmaConfig c{model.y, bm, bn, stages, split};
      const int64_t tiles = divideCeilSigned(rows, bm) * divideCeilSigned(n, bn);
      if (wgmmaSharedBytes(c) > sharedLimit || (bm == 128 && rows <= 64) ||
          (split > 1 && (tiles >= processors || k < 256 * split)))
        continue;
      list.add(c);
    }
  return list.take();
}

std::vector<LinearSimtConfig> candidates(const LinearSimtConfig &model, int64_t rows, int64_t n,
                                         int64_t k) {
  List list(model);
  for (auto [bm, bn, tm, tn] : {std::tuple(128, 128, 8, 8),
                                {128, 64, 8, 8},
                                {64, 64, 8, 4},
                                {64, 64, 4, 4},
                                {32, 64, 4, 4}})
    for (int split : {1, 2, 4}) {
      LinearSimtConfig c = model;
      c.bm = bm;
      c.bn = bn;
      c.bk = 16;
      c.tm = tm;
      c.tn = tn;
      c.splitK = split;
      const int64_t tiles = divideCeilSigned(rows, bm) * divideCeilSigned(n, bn);
      if ((bm > 32 && bm >= 2 * rows) || (split > 1 && (tiles >= processors || k < 256 * split)))
        continue;
      list.add(c);
    }
  return list.take();
}

std::vector<LinearTf32Config> candidates(const LinearTf32Config &model, int64_t rows, int64_t n,
                                         int64_t k, unsigned sharedLimit, bool hopper) {
  std::vector<LinearTf32Config> configs = tf32Configs(rows, n, k, sharedLimit, hopper);
  for (LinearTf32Config &c : configs)
    c.y = model.y;
  return cheapest(model, std::move(configs),
                  [&](const auto &c) { return tf32Cost(c, rows, n, k); });
}

std::vector<AttentionChoice> candidates(const AttentionChoice &model, int64_t rows) {
  List list(model);
  auto vary = [&](auto change) {
    AttentionChoice choice = model;
    change(choice.config);
    list.add(choice);
  };
  switch (model.kernel) {
  case AttentionKernel::Decode:
    for (int splits : {1, 2, 4, 8})
      for (int warps : {4, 8})
        for (int ring : {0, 4}) {
          AttentionConfig split = model.config;
          split.splits = splits;
          split.cluster = splits > 1;
          split.warps = warps;
          split.ring = ring;
          // Blocks for half of the multiprocessors; a ring where each has several.
          const int64_t blocks = rows * split.heads * splits;
          if ((splits == 8 || 2 * blocks > processors) &&
              (splits == 1 || blocks < 16 * processors) &&
              (ring == 0 ||
               (split.bulk && blocks >= 2 * processors && attentionRingBytes(split) <= 64 * 1024)))
            vary([&](AttentionConfig &c) { c = split; });
        }
    break;
  case AttentionKernel::DecodeMma:
    for (int splits : {1, 2, 4, 8})
      for (int warps : {4, 8})
        if (const int64_t blocks = rows * model.config.heads * splits;
            splits == 1 || blocks < 4 * processors)
          vary([&](AttentionConfig &c) {
            c.splits = splits;
            c.cluster = splits > 1;
            c.warps = warps;
            c.blocks = 12 / warps;
          });
    break;
  case AttentionKernel::Wgmma:
    for (int splits : {1, 2, 4})
      vary([&](AttentionConfig &c) { c.splits = splits; });
    break;
  case AttentionKernel::Mma:
    for (int warps : {2, 4, 8})
      for (int keys : {32, 64})
        if (keys <= model.config.keys)
          vary([&](AttentionConfig &c) {
            c.warps = warps;
            c.keys = keys;
          });
    break;
  case AttentionKernel::Tf32:
    for (int warps : {1, 2, 4})
      for (int splits : {1, 2, 4})
        if (warps * model.config.keys <= 256)
          vary([&](AttentionConfig &c) {
            c.warps = warps;
            c.splits = splits;
          });
    break;
  case AttentionKernel::Simt:
    break;
  }
  return list.take();
}

} // namespace gpt2c
