// The record of linear_tma_int8_weights.
#include "templates/linear/tma_int8_weights/LinearTmaInt8Weights.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

KernelSource linearTmaInt8Weights(llvm::StringRef name, const LinearTmaInt8WeightsConfig &c,
                                  const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/tma_int8_weights/linear_tma_int8_weights.cuh",
                 "tile::linearTmaInt8Weights");
  w.type("W", c.w);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("N", c.n);
  w.constant("K", c.k);
  w.constant("BM", c.bm);
  w.constant("XRows", xRowsOf(c));
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("RawStages", c.rawStages);
  w.constant("SplitK", c.splitK);
  w.flag("Lines", leavesInLines(c, epilogue));
  if (c.splitK > 1)
    w.cluster(1, c.splitK);
  passMaps(w);
  w.out("y", c.y);
  w.i32("m");
  std::string norm = "NoNorm{}";
  if (c.normParts > 0) {
    w.in("gain", c.p);
    const std::string statistics = w.declare("const float2 *", "xStatistics"),
                      sums = c.rms ? "nullptr" : w.declare("const float *", "rowSums"),
                      shifts = c.rms ? "" : w.declare("const float *", "shiftSums"),
                      epsilon = w.declare("float", "epsilon");
    const std::string folded = "{" + statistics + ", " + sums + ", " + epsilon + "}";
    norm = c.rms ? "FoldedNorm" + normParts(c) + folded
                 : "FoldedNormShift" + normParts(c) + "{" + folded + ", " + shifts + "}";
  } else {
    w.pass("(const " + cudaType(c.p) + " *)nullptr");
  }
  passTileIndex(w);
  w.pass("dynamicShared");
  w.pass(writeEpilogue(w, epilogue, std::to_string(c.n)));
  w.pass(norm);
  passStatistics(w, c);
  w.checkSizes("LinearTmaInt8Weights");
  return w.finish(2 * c.bm + 320, tmaSharedBytes(c));
}

namespace linear_tma_int8_weights {

/// The same tile for int8 weights, whose rings share the shared memory that there is. None: there
/// is not enough of that, or of registers.
std::optional<LinearTmaInt8WeightsConfig> withInt8Weights(const LinearTmaConfig &tile) {
  const int raw = divideCeilSigned(divideCeilSigned(tile.k, 128), tile.splitK);
  const unsigned beside = 4096 + raw * 256; // barriers and columns, and gains
  const unsigned whole = wholeShared - beside, half = halfShared - beside;
  const bool small = tmaSharedBytes(tile) <= half;
  if (tile.splitK > raw || tile.bn > (tile.bm == 64 ? 144 : 96))
    return std::nullopt;
  LinearTmaInt8WeightsConfig c{.bm = tile.bm, .bn = tile.bn, .splitK = tile.splitK};
  c.xRows = tile.xRows;
  // Even, so that a stage that is used again belongs to one of the two warpgroups that convert;
  // each of these holds one, so two more are on their way.
  const int most = small ? 4 : 6;
  c.rawStages = std::clamp(raw, 2, most);
  for (c.stages = 2 * raw; c.stages > 2 && tmaSharedBytes(c) > (small ? half : whole);)
    --c.stages;
  // K-tiles are made by twos, the second while the one before the first is still multiplied.
  if (c.stages < std::min(3, 2 * raw))
    return std::nullopt;
  return c;
}

/// The cheapest first. Statistics are of parts of rows that divide them: where no tile's do, nobody
/// leaves any and the norm is a launch.
std::vector<LinearTmaInt8WeightsConfig> tilesThat(const LinearProblem &p, bool statistics) {
  std::vector<LinearTmaInt8WeightsConfig> list;
  for (const LinearTmaConfig &tile : only<LinearTmaConfig>(tmaTiles(p))) {
    auto c = withInt8Weights(tile);
    if (!c || (statistics && p.n % statisticsWidth(*c) != 0))
      continue;
    c->y = p.y;
    c->w = p.w;
    c->n = int(p.n);
    c->k = int(p.k);
    c->p = p.fused.gain;
    c->normParts = p.fused.normParts;
    c->normWidth = p.fused.normWidth;
    c->rms = p.fused.norm == NormKind::Rms;
    c->statistics = statistics;
    if (llvm::none_of(list, [&](const auto &other) { return nameOf(other) == nameOf(*c); }))
      list.push_back(*c);
  }
  llvm::stable_sort(list, [&](const auto &a, const auto &b) {
    return tmaProductCost(a, p) < tmaProductCost(b, p);
  });
  if (!p.batchInvariant)
    list.resize(std::min<size_t>(list.size(), 8));
  return list;
}

std::vector<LinearTmaInt8WeightsConfig> configs(const LinearProblem &p) {
  auto list = tilesThat(p, p.fused.statistics);
  return list.empty() ? tilesThat(p, false) : list;
}

std::string refusal(const LinearProblem &p) {
  return p.k == 0 || p.k % 16 != 0 ? "K is no multiple of 16"
         // The gains of a norm, 2 K bytes, stand beside the ring.
         : p.k > 16384 ? "K is more than 16384"
                       : "";
}
std::string slower(const LinearProblem &p) {
  return p.isWide() && !p.hasPairs()           ? "a vocabulary: linear_stream_tma"
         : p.rows <= 32 && !areRowsForTiles(p) ? "up to 32 rows: linear_rows"
         : p.rows > 512                        ? "more than 512 rows: weights become halves first"
                                               : "";
}
llvm::Error emit(LinearLaunch &l, const LinearTmaInt8WeightsConfig &c) {
  if (llvm::Error e = l.addNormSums())
    return e;
  l.halveActivations();
  if (c.statistics)
    l.addStatistics(statisticsWidth(c));
  l.addMaps(xRowsOf(c), c.bn, l.p.k, l.p.k / 2);
  return l.launch(linearTmaInt8Weights(l.name("linear_tma"), c, l.call.epilogue), c);
}
} // namespace linear_tma_int8_weights

const LinearKernel &linearTmaInt8WeightsKernel() {
  using namespace linear_tma_int8_weights;
  static const LinearKernelOf<LinearTmaInt8WeightsConfig> kernel({
      .name = "linear_tma_int8_weights",
      .summary = "17 to 512 rows in fp16 with int8 weights on Hopper, which become halves in "
                 "shared memory",
      .needs = wgmmaTiles | Features{Feature::Clusters},
      .can = {LinearAbility::F16Bytes, LinearAbility::FloatSteps, LinearAbility::NormByStatistics,
              LinearAbility::NormGain, LinearAbility::Gate, LinearAbility::Rotation,
              LinearAbility::Statistics, LinearAbility::AnyRows},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .cost = tmaProductCost,
      .emit = emit,
      .sumOrder = tmaSumOrder,
      .statisticsWidth = widthOfLeft,
  });
  return kernel;
}

} // namespace gpt2c
