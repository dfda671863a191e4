#include "codegen/Candidates.h"

#include "codegen/FusedLowerings.h"
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
std::string nameOf(const LinearWgmmaConfig &c) {
  return formatv("linear_wgmma {0}x{1} stages={2} split={3}", c.bm, c.bn, c.stages, c.splitK).str();
}
std::string nameOf(const LinearSimtConfig &c) {
  return formatv("linear_simt {0}x{1}x{2} thread={3}x{4} split={5}", c.bm, c.bn, c.bk, c.tm, c.tn,
                 c.splitK)
      .str();
}
std::string nameOf(const LinearTf32Config &c) {
  if (c.wgmma)
    return formatv("linear_tf32_wgmma {0}x{1} stages={2} split={3}", c.bm, c.bn, c.stages, c.splitK)
        .str();
  return formatv("linear_tf32 {0}x{1} warps={2}x{3} stages={4} split={5}", c.bm, c.bn, c.warpsM,
                 c.warpsN, c.stages, c.splitK)
      .str();
}
std::string nameOf(const AttentionConfig &c) {
  return formatv("attention_decode warps={0} splits={1} ring={2}", c.warps, c.splits, c.ring).str();
}

namespace {
template <typename C> class List {
public:
  explicit List(const C &model) : configs_{model} {}
  void add(const C &c) {
    if (llvm::none_of(configs_, [&](const C &other) { return nameOf(other) == nameOf(c); }))
      configs_.push_back(c);
  }
  std::vector<C> take() { return std::move(configs_); }

private:
  std::vector<C> configs_;
};
int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
} // namespace

std::vector<LinearRowDotConfig> candidates(const LinearRowDotConfig &model) {
  List list(model);
  if (model.w == Scalar::I8)
    return list.take();
  const int vector = 16 / scalarBytes(model.w);
  for (int warps : {4, 8, 16})
    for (int cols : {1, 2, 4})
      for (int split = 1; split <= warps; split *= 2) {
        LinearRowDotConfig c = model;
        c.warps = warps;
        c.cols = cols;
        c.kSplit = split;
        // Registers for the weights on their way and the sums; lanes without any weights.
        if (cols * model.rows > 16 || (split > 1 && 32 * vector * split > model.k))
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
    for (int warps : {4, 6, 8, 12, 16})
      for (int splits : {1, 2, 4}) {
        LinearRowsConfig c = model;
        c.groups = groups;
        c.warps = warps;
        c.splits = splits;
        // Registers for the sums; warps without any weights; shared memory that every GPU has.
        if (groups * c.rows > 64 || 32 * warps * splits > c.k || rowsSharedBytes(c) > 64 * 1024 ||
            (splits > 1 && (!clusters || c.norm != FusedNorm::None || c.k < 384 * splits)))
          continue;
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
      const int64_t tiles = ceilDiv(rows, bm) * ceilDiv(n, bn);
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
      const int64_t tiles = ceilDiv(rows, bm) * ceilDiv(n, bn);
      if ((bm > 32 && bm >= 2 * rows) || (split > 1 && (tiles >= processors || k < 256 * split)))
        continue;
      list.add(c);
    }
  return list.take();
}

std::vector<LinearTf32Config> candidates(const LinearTf32Config &model, int64_t rows, int64_t n,
                                         int64_t k, unsigned sharedLimit, bool hopper) {
  List list(model);
  for (LinearTf32Config c : tf32Configs(rows, n, k, sharedLimit, hopper)) {
    c.y = model.y;
    if (tf32Cost(c, rows, n, k) <= 1.6 * tf32Cost(model, rows, n, k))
      list.add(c);
  }
  return list.take();
}

std::vector<AttentionConfig> candidates(const AttentionConfig &model) {
  List list(model);
  for (int splits : {1, 2, 4, 8})
    for (int warps : {4, 8})
      for (int ring : {0, 2, 4, 6}) {
        AttentionConfig c = model;
        c.splits = splits;
        c.cluster = splits > 1;
        c.warps = warps;
        c.ring = ring;
        if (ring == 0 || (model.bulk && attentionRingBytes(c) <= 64 * 1024))
          list.add(c);
      }
  return list.take();
}

} // namespace gpt2c
