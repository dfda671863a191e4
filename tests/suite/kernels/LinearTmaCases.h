// What linear_tma, linear_tma_persistent and linear_tma_int8_weights share in their tests.
#pragma once

#include "LinearCandidates.h"
#include "LinearCases.h"

#include "templates/linear/tma_persistent/LinearTmaPersistent.h"

namespace gpt2c::kernels {

/// A kernel for a shape, as the driver launches it.
struct TmaCase {
  std::string group;
  Shape shape;
  Epilogue epilogue;
  Scalar x, w, y, gain;
  int rowsOfX, bm, bn; ///< of boxes
  int normParts, normWidth;
  bool rms, statistics;
  int statisticsWidth;
  bool residualByMap = false, backwards = false;
  std::function<KernelSource(llvm::StringRef)> make = {};
  Grid grid = {};

  bool hasInt8Weights() const { return isQuantised(w); }
};
void tma(Suite &suite, const TmaCase &of);

/// Adds a kernel for each shape, with a case. With c.normParts x lies far from zero and is normed;
/// with c.statistics those of y are read.
template <typename Config>
void tma(Suite &suite, MakeKernel<Config> make, const std::string &kernel, const std::string &label,
         Config c, const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  const std::string group = kernel + " " + label;
  for (Shape s : shapes) {
    if ((s.k + 63) / 64 < c.splitK)
      continue;
    c.n = s.n;
    c.k = s.k;
    if (c.normParts > 0)
      c.normWidth = s.k / c.normParts;
    TmaCase of{.group = group,
               .shape = s,
               .epilogue = epilogue,
               .x = Scalar::F16,
               .w = Scalar::I8,
               .y = c.y,
               .gain = Scalar::F32,
               .rowsOfX = c.bm,
               .bm = c.bm,
               .bn = c.bn,
               .normParts = c.normParts,
               .normWidth = c.normWidth,
               .rms = c.rms,
               .statistics = c.statistics,
               .statisticsWidth = statisticsWidth(c)};
    if constexpr (requires { c.xRows; })
      of.rowsOfX = xRowsOf(c);
    if constexpr (requires { c.w; }) {
      of.w = c.w;
      if (!isQuantised(c.w))
        of.x = c.w;
    }
    if constexpr (requires { c.p; })
      of.gain = c.p;
    if constexpr (std::is_same_v<Config, LinearTmaPersistentConfig>) {
      of.residualByMap = takesResidualByMap(c, epilogue);
      of.backwards = true;
    }
    of.make = [=](llvm::StringRef name) { return make(name, c, epilogue); };
    of.grid = gridOfRounds(c, s);
    tma(suite, of);
  }
}
/// The shape of a candidate's case: columns that some configurations have to fill, and lines leave
/// whole where they do.
template <typename Config> Shape tmaShape(const LinearCandidateCase &of, const Config &c) {
  const bool filled = c.statistics || c.bn == 192 || c.normParts > 0;
  return {of.rows, filled ? 2 * c.bn : 301, of.k};
}

} // namespace gpt2c::kernels
