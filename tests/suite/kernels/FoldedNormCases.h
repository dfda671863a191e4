// Kernels of a few rows, with a norm that is folded into the epilogue, against float64.
#pragma once

#include "LinearCases.h"

namespace gpt2c::kernels {

/// The norm of a case: `offset` is added to x.
struct Norm {
  double offset = 0;
  bool gainAndShift = true;
};

/// What the kernel is told of a norm that it folds into its epilogue.
struct FoldedNorm {
  Tensor gain, rowSums, shiftSums;
};

/// After they are rounded, ((x gain) W^T - mean c) / deviation + s: moves p.x, and p.want becomes
/// that of the norm. Rows are multiplied by a gain that has been rounded to their type.
template <typename Config>
FoldedNorm foldNorm(Run &run, Problem &p, const std::vector<double> &weights, const Config &config,
                    const Epilogue &epilogue, Norm of) {
  const size_t m = p.shape.m, n = p.shape.n, k = p.shape.k;
  std::vector<double> moved = p.x.values;
  for (double &v : moved)
    v += of.offset;
  p.x = run.input(moved, config.x);
  const bool gainAndShift = of.gainAndShift;
  const bool layer = config.norm == NormKind::Layer;
  FoldedNorm folded;
  const Tensor &gain = folded.gain = run.input(run.normal(k), config.p);
  std::vector<double> shift = run.normal(k), c(n), s(n);
  for (size_t j = 0; j < n; ++j)
    for (size_t i = 0; i < k; ++i) {
      c[j] += weights[j * k + i] * (gainAndShift ? gain.values[i] : 1);
      s[j] += weights[j * k + i] * (gainAndShift && layer ? shift[i] : 0);
    }
  folded.rowSums = run.input(c, Scalar::F32);
  folded.shiftSums = run.input(s, Scalar::F32);
  // [x gain / deviation, -mean / deviation, 1] [W, c, s]^T
  std::vector<double> x(m * (k + 2)), w(n * (k + 2)), far(m);
  for (size_t i = 0; i < m; ++i) {
    const double *row = &p.x.values[i * k];
    double mean = 0, square = 0;
    for (size_t j = 0; layer && j < k; ++j)
      mean += row[j] / (double)k;
    for (size_t j = 0; j < k; ++j)
      square += (row[j] - mean) * (row[j] - mean) / (double)k;
    const double deviation = std::sqrt(square + 1e-5);
    far[i] = std::fabs(mean) / deviation;
    double *to = &x[i * (k + 2)];
    for (size_t j = 0; j < k; ++j)
      to[j] =
          (gainAndShift ? rounded(row[j] * rounded(gain.values[j], config.x), config.x) : row[j]) /
          deviation;
    to[k] = -mean / deviation;
    to[k + 1] = 1;
  }
  for (size_t j = 0; j < n; ++j) {
    std::copy_n(&weights[j * k], k, &w[j * (k + 2)]);
    w[j * (k + 2) + k] = folded.rowSums.values[j];
    w[j * (k + 2) + k + 1] = folded.shiftSums.values[j];
  }
  p.shape.k += 2;
  p.compute(x, w, epilogue, config.y);
  p.shape.k -= 2;
  // The square of a large mean is subtracted from that of x.
  for (size_t at = 0; at < p.bound.size(); ++at) {
    const double mean = far[at / (p.bound.size() / m)];
    p.bound[at] *= 1 + mean * mean;
  }
  return folded;
}

/// Kernels of a few rows that fold a norm into their epilogue.
template <typename Config>
void foldedRows(Suite &suite, const std::string &group, MakeKernel<Config> make,
                const std::string &label, const Config &c, const Epilogue &epilogue,
                const std::vector<Shape> &shapes, Norm norm = {}) {
  int id = suite.kernel(group, [&](llvm::StringRef name) { return make(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(
        caseOf(group, label, s),
        [=](Run &run) {
          run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
          Problem p(run, s, c.x, c.w, c.y, epilogue);
          Arguments arguments = p.arguments();
          std::vector<double> weights = p.w.values;
          Tensor wScale;
          NibbleGroups nibbles;
          if constexpr (requires { c.wZeros; })
            if (c.w == Scalar::I4) {
              nibbles.add(run, p, c, arguments);
              weights = p.w.values;
            }
          if constexpr (requires { c.wGroup; })
            if (c.wGroup > 0 && c.w != Scalar::I4) {
              wScale = randomScales(run, (size_t)s.n * (s.k / c.wGroup));
              for (size_t i = 0; i < weights.size(); ++i)
                weights[i] = rounded(weights[i] * wScale.values[i / c.wGroup], Scalar::F16);
              arguments.set("wScale", &wScale);
            }
          FoldedNorm folded;
          if (c.norm == NormKind::None) {
            p.compute(p.x.values, weights, epilogue, c.y);
          } else {
            folded = foldNorm(run, p, weights, c, epilogue, norm);
            const bool shift = norm.gainAndShift && c.norm == NormKind::Layer;
            arguments.set("gain", norm.gainAndShift ? Argument(&folded.gain) : Argument(nullptr));
            arguments.set("rowSums", &folded.rowSums).set("epsilon", 1e-5F);
            arguments.set("shiftSums", shift ? Argument(&folded.shiftSums) : Argument(nullptr));
          }
          check(run, id, p, gridFor(c, s), arguments, c.y);
        },
        c.splits > 1);
}

} // namespace gpt2c::kernels
