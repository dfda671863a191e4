// The record of linear_stream_tma.
#include "templates/linear/stream_tma/LinearStreamTma.h"

#include "templates/linear/Kernels.h"
#include "templates/linear/parts/LinearParams.h"
#include "templates/linear/rows/LinearRows.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const LinearStreamTmaConfig &c) {
  std::string name =
      llvm::formatv("linear_stream_tma {0}x{1} stages={2}", c.bm, c.bn, c.stages).str();
  return c.rawStages > 0 ? name + " raw=" + std::to_string(c.rawStages) : name;
}

Grid gridOf(const LinearStreamTmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors) {
  const plan::ExprT tiles =
      productExpr(ceilDivExpr(m, c.bm), rt::constantExpr(divideCeilSigned(n, c.bn)));
  return blocks(minExpr(tiles, rt::constantExpr(processors)));
}

KernelSource linearStreamTma(llvm::StringRef name, const LinearStreamTmaConfig &c,
                             const Epilogue &epilogue) {
  KernelWriter w(name, "templates/linear/stream_tma/linear_stream_tma.cuh",
                 "tile::linearStreamTma");
  w.type("X", c.x);
  w.type("W", c.w);
  w.type("Y", c.y);
  w.constant("N", c.n);
  w.constant("K", c.k);
  w.constant("BM", c.bm);
  w.constant("XRows", xRowsOf(c));
  w.constant("BN", c.bn);
  w.constant("Stages", c.stages);
  w.constant("RawStages", c.rawStages);
  w.flag("Best", c.best);
  passMaps(w);
  w.out("y", c.y);
  w.i32("m");
  passLargest(w, c.best);
  passTurn(w);
  w.pass("dynamicShared");
  w.pass(writeEpilogue(w, epilogue, std::to_string(c.n)));
  w.checkSizes("LinearStreamTma");
  return w.finish(2 * c.bm + (isQuantised(c.w) ? 192 : 32), streamTmaSharedBytes(c), 1);
}

namespace linear_stream_tma {

LinearStreamTmaConfig streamTmaConfig(const LinearProblem &s) {
  const bool bytes = isQuantised(s.w);
  LinearStreamTmaConfig c;
  c.y = s.y;
  c.x = s.x;
  c.w = s.w;
  c.n = s.n;
  c.k = s.k;
  c.best = s.fused.best;
  c.bm = s.rows <= 64 ? 64 : 128;
  c.xRows = xRowsFor(s.rows);
  // Beside the noise of drawn rows two rings for 192 columns would be short.
  c.bn = s.rows > 128 && !(bytes && c.best) ? 192 : 128;
  if (bytes) {
    c.stages = (c.bm == 64 ? 7 : c.bn == 128 ? 6 : 4) - c.best;
    c.rawStages = c.bm == 64 ? 3 : 2;
  } else {
    c.stages = c.bm == 64 ? 9 - c.best : c.bn == 128 ? 6 : 5 - c.best;
  }
  return c;
}

std::vector<LinearStreamTmaConfig> configs(const LinearProblem &p) {
  const LinearStreamTmaConfig model = streamTmaConfig(p);
  constexpr unsigned limit = 223 * 1024; // beside barriers and columns
  ConfigList list(model);
  for (int bn : {96, 128, 192})
    for (int raw : {0, 2, 3, 4, 5, 6}) {
      LinearStreamTmaConfig c = model;
      c.bn = bn;
      c.rawStages = raw;
      if ((raw > 0) != isQuantised(c.w))
        continue;
      for (c.stages = 3; streamTmaSharedBytes(c) <= limit;)
        ++c.stages;
      if (--c.stages >= 3)
        list.add(c);
    }
  return list.take();
}

std::string refusal(const LinearProblem &p) {
  return p.k == 0 || p.k % (isQuantised(p.w) ? 16 : 8) != 0
             ? "K is no multiple of 8, or 16 with weights of a byte"
             : "";
}
/// Weights of a byte are converted, by all warps but those that multiply, before memory binds.
double ofVocabulary(const LinearProblem &p) {
  const double rate = isQuantised(p.w) ? 2.1e6 : 4.0e6; // bytes a microsecond
  const TargetRates &rates = p.target.rates;
  return 2.0 * rates.launches() + rates.reads() * double(p.weightBytes()) / rate;
}
/// With a norm as a launch of its own.
double withNorm(const LinearProblem &p) {
  return ofVocabulary(p) + (p.hasNorm() ? 3.0 * p.target.rates.launches() : 0);
}
/// Whether it is faster than kernels that keep two to eight rows of floats, whose lanes load
/// weights at 2.3 to 2.8 TB/s, but for linear_stream_ring. A norm is a launch of its own then.
bool isFasterOfFew(const LinearProblem &p) {
  if (linearStreamRingKernel().refusal(p.plain()).empty())
    return false;
  constexpr double kept = 2.6e6; // bytes a microsecond
  return withNorm(p) < p.target.rates.reads() * double(p.weightBytes()) / kept;
}
/// Rows up to which kernels that keep rows take less time; of a long K they have no room for many.
int64_t fewRows(const LinearProblem &p) {
  return !keepsRows(p)       ? (isVocabularyForStreams(p) ? 0 : 1)
         : !isQuantised(p.w) ? (isFasterOfFew(p) ? 1 : 8)
         : p.k > 1600        ? 16
                             : 32;
}

std::string slower(const LinearProblem &p) {
  return !wideRefusal(p).empty() ? wideRefusal(p)
         : p.rows <= fewRows(p)  ? "few rows: linear_stream"
         : p.rows > 256          ? "more than 256 rows: linear_tma"
                                 : "";
}
llvm::Error emit(LinearLaunch &l, const LinearStreamTmaConfig &c) {
  if (c.best)
    l.addLargest(divideCeilSigned(l.p.n, c.bn));
  l.addMaps(xRowsOf(c), c.bn, l.p.k, l.p.k * scalarBytes(c.w) / 2);
  return l.launch(linearStreamTma(l.name("linear_stream_tma"), c, l.call.epilogue), c);
}
} // namespace linear_stream_tma

bool isForStreamTma(const LinearProblem &p) {
  return linearStreamTmaKernel().refusal(p.plain()).empty() &&
         (p.rows > 1 || linear_stream_tma::withNorm(p) < rowsMicroseconds(p));
}

const LinearKernel &linearStreamTmaKernel() {
  using namespace linear_stream_tma;
  static const LinearKernelOf<LinearStreamTmaConfig> kernel({
      .name = "linear_stream_tma",
      .summary = "a vocabulary for up to 256 rows on Hopper: blocks take tile after tile, largest "
                 "elements with them",
      .needs = wgmmaTiles,
      .can = {LinearAbility::F16, LinearAbility::BF16, LinearAbility::F16Bytes,
              LinearAbility::FloatSteps, LinearAbility::Best, LinearAbility::AnyRows},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .microseconds =
          [](const LinearProblem &p) {
            return wideRefusal(p).empty() ? std::optional(ofVocabulary(p)) : std::nullopt;
          },
      .emit = emit,
      // As linear_tma, but for GELU.
      .sumOrder =
          [](const LinearStreamTmaConfig &c, const LinearProblem &) {
            return std::string(isQuantised(c.w) ? "wgmma.k16 of int8 weights" : "wgmma.k16");
          },
  });
  return kernel;
}

} // namespace gpt2c
