#include "LinearTmaCases.h"

#include <algorithm>

namespace gpt2c::kernels {

namespace {
constexpr float epsilon = 1e-5F;

void normalise(std::span<const double> row, std::span<double> to, bool rms) {
  double mean = 0, square = 0;
  for (double v : row)
    mean += rms ? 0 : v / row.size();
  for (double v : row)
    square += (v - mean) * (v - mean) / row.size();
  for (size_t i = 0; i < row.size(); ++i)
    to[i] = (row[i] - mean) / std::sqrt(square + epsilon);
}

/// What a kernel is told of a norm that it folds into its epilogue, but for the gain.
struct FoldedNorm {
  std::vector<double> statistics, sums, shifts;
};

/// Puts x far from zero, and makes p.want that of its norm.
FoldedNorm foldNorm(Run &run, Problem &p, const TmaCase &c, const Tensor &gain) {
  const Shape s = p.shape;
  const bool int8 = c.hasInt8Weights();
  FoldedNorm folded{{}, std::vector<double>(s.n), std::vector<double>(s.n)};
  const double offset = 50;
  std::vector<double> rows = run.normal((size_t)s.m * s.k), normed = rows;
  for (int i = 0; i < s.m; ++i)
    for (int k = 0; k < s.k; ++k)
      rows[(size_t)i * s.k + k] =
          rounded((i % 3 - 1) * offset + (k % 7 + 1) * rows[(size_t)i * s.k + k], c.x);
  p.x = run.input(rows, c.x);
  folded.statistics = statisticsOf(rows, s.m, s.k, c.normWidth);
  for (int i = 0; i < s.m; ++i)
    normalise({&rows[(size_t)i * s.k], (size_t)s.k}, {&normed[(size_t)i * s.k], (size_t)s.k},
              c.rms);
  // int8 weights are multiplied by the gain, and products have those of the shift added.
  std::vector<double> weights = p.w.values;
  if (int8) {
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = rounded(weights[i] * rounded(gain.values[i % s.k], Scalar::F16), Scalar::F16);
    if (!c.rms)
      folded.shifts = run.normal(s.n);
  }
  std::vector<double> x((size_t)s.m * (s.k + 1), 1), w((size_t)s.n * (s.k + 1));
  for (int i = 0; i < s.m; ++i)
    std::copy_n(&normed[(size_t)i * s.k], s.k, &x[(size_t)i * (s.k + 1)]);
  for (int j = 0; j < s.n; ++j) {
    std::copy_n(&weights[(size_t)j * s.k], s.k, &w[(size_t)j * (s.k + 1)]);
    w[(size_t)j * (s.k + 1) + s.k] = folded.shifts[j];
    for (int k = 0; k < s.k; ++k)
      folded.sums[j] += weights[(size_t)j * s.k + k];
  }
  // The sums are of elements up to `offset` deviations large, less their mean.
  p.extra.resize((size_t)s.m * s.n);
  for (int i = 0; i < s.m && !run.isDry(); ++i)
    for (int j = 0; j < s.n; ++j) {
      double magnitude = 0;
      for (int k = 0; k < s.k; ++k)
        magnitude += std::fabs(rows[(size_t)i * s.k + k] * weights[(size_t)j * s.k + k]);
      if (int8) // as far as the scale of a column
        magnitude *= p.operands[0].values[j];
      p.extra[(size_t)i * s.n + j] = magnitude * 2e-6;
    }
  p.shape.k += 1;
  p.compute(x, w, c.epilogue, c.y);
  p.shape.k -= 1;
  return folded;
}
} // namespace

void tma(Suite &suite, const TmaCase &of) {
  const int id = suite.kernel(of.group, of.make);
  suite.test(
      {of.group + "/" + text(of.shape), work(of.shape)},
      [=](Run &run) {
        const Shape s = of.shape;
        const bool int8 = of.hasInt8Weights();
        Problem p(run, s, of.x, of.w, of.y, of.epilogue);
        Tensor gain = run.input(int8 ? run.normal(s.k) : std::vector<double>(2), of.gain);
        FoldedNorm folded;
        if (of.normParts > 0)
          folded = foldNorm(run, p, of, gain);
        Tensor xStatistics = run.input(folded.statistics, Scalar::F32),
               rowSums = run.input(folded.sums, Scalar::F32),
               shiftSums = run.input(folded.shifts, Scalar::F32);
        const int width = of.statisticsWidth;
        Tensor yStatistics =
            run.output(size_t(2) * s.m * divideCeilSigned(s.n, width), Scalar::F32);
        Arguments arguments = p.mapped(of.rowsOfX, of.bn, s.k, int8 ? s.k / 2 : s.k);
        if (of.residualByMap)
          p.mapLast(arguments, "residualMap", of.bm);
        if (of.backwards)
          arguments.set("backwards", s.m % 2);
        if (of.normParts > 0)
          arguments.set("xStatistics", &xStatistics).set("epsilon", epsilon);
        if (of.normParts > 0 && !of.rms)
          arguments.set("rowSums", &rowSums);
        if (of.normParts > 0 && int8)
          arguments.set("gain", &gain);
        if (of.normParts > 0 && int8 && !of.rms)
          arguments.set("shiftSums", &shiftSums);
        if (of.statistics)
          arguments.set("yStatistics", &yStatistics);
        check(run, id, p, of.grid, arguments, of.y);
        if (of.statistics)
          run.expectNear(yStatistics, statisticsOf(p.want, s.m, s.n, width), 1e-3,
                         std::vector<double>((size_t)s.m * 2 * (s.n / width), 1e-4));
      },
      true);
}

} // namespace gpt2c::kernels
