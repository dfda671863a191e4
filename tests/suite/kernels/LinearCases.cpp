// linear: tensor-core, plain and row-dot kernels against Y = epilogue(X W^T) in float64.
#include "LinearProblem.h"

#include "codegen/FusedLowerings.h"

#include <algorithm>
#include <set>

namespace gpt2c::kernels {

namespace {
/// Mean and sum of squared deviations of parts of `width` columns, [parts, rows, 2].
std::vector<double> statisticsOf(const std::vector<double> &rows, int m, int n, int width) {
  std::vector<double> all;
  for (int part = 0; part < n / width; ++part)
    for (int i = 0; i < m; ++i) {
      const double *at = &rows[(size_t)i * n + part * width];
      double mean = 0, square = 0;
      for (int j = 0; j < width; ++j)
        mean += at[j] / width;
      for (int j = 0; j < width; ++j)
        square += (at[j] - mean) * (at[j] - mean);
      all.insert(all.end(), {mean, square});
    }
  return all;
}
void norm(std::span<const double> row, std::span<double> to, double epsilon) {
  double mean = 0, square = 0;
  for (double v : row)
    mean += v / row.size();
  for (double v : row)
    square += (v - mean) * (v - mean) / row.size();
  for (size_t i = 0; i < row.size(); ++i)
    to[i] = (row[i] - mean) / std::sqrt(square + epsilon);
}

template <typename Config>
using MakeTiled = KernelSource (*)(llvm::StringRef, const Config &, const Epilogue &);

/// What ends a product with int8 weights of one scale a column.
Epilogue scaledBias(Scalar t) {
  return {{EpilogueStage::ScaleColumn}, {EpilogueStage::AddBias, t}};
}
Epilogue scaledBias(Scalar t, EpilogueStage::Kind activation) {
  return {{EpilogueStage::ScaleColumn}, {EpilogueStage::AddBias, t}, {activation}};
}

/// Kernels with a grid of tiles and split K.
template <typename Config>
void tiled(Suite &suite, const std::string &group, MakeTiled<Config> make, const char *label,
           Config c, std::array<Scalar, 3> types, const Epilogue &epilogue,
           const std::vector<Shape> &shapes) {
  int id = suite.kernel(group, [&](llvm::StringRef name) { return make(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test({group + "/" + label + "/" + text(s), work(s)}, [=](Run &run) {
      Problem p(run, s, types[0], types[1], types[2], epilogue);
      auto arguments = p.arguments();
      unsigned tilesM = blocks(s.m, c.bm), tilesN = blocks(s.n, c.bn);
      Tensor partial = run.output((size_t)c.splitK * s.m * s.n, Scalar::F32),
             counters = run.zeroed(4 * tilesM * tilesN);
      if (c.splitK > 1) {
        arguments.push_back(&partial);
        arguments.push_back(&counters);
      }
      p.appendOperands(arguments);
      check(run, id, p, {tilesM, tilesN, (unsigned)c.splitK}, arguments, c.y);
    });
}

void mma(Suite &suite, const char *label, LinearMmaConfig c, const Epilogue &epilogue,
         const std::vector<Shape> &shapes) {
  tiled(suite, "linear_mma", linearMma, label, c, {Scalar::F16, Scalar::F16, c.y}, epilogue,
        shapes);
}
void wgmma(Suite &suite, const char *label, LinearWgmmaConfig c, const Epilogue &epilogue,
           const std::vector<Shape> &shapes) {
  tiled(suite, "linear_wgmma", linearWgmma, label, c, {Scalar::F16, Scalar::F16, c.y}, epilogue,
        shapes);
}
/// With c.normParts, 2, x lies far from zero and is normed; with c.statistics those of y are read.
void tma(Suite &suite, const char *label, LinearTmaConfig c, const Epilogue &epilogue,
         const std::vector<Shape> &shapes) {
  for (Shape s : shapes) {
    if ((s.k + 63) / 64 < c.splitK)
      continue;
    c.n = s.n;
    c.k = s.k;
    if (c.normParts > 0)
      c.normWidth = s.k / c.normParts;
    int id = suite.kernel(std::string("linear_tma ") + label,
                          [&](llvm::StringRef name) { return linearTma(name, c, epilogue); });
    suite.test(
        {std::string("linear_tma ") + label + "/" + text(s), work(s)},
        [=](Run &run) {
          Problem p(run, s, Scalar::F16, Scalar::F16, c.y, epilogue);
          const float epsilon = 1e-5f;
          std::vector<double> partsOfX, sums(s.n);
          if (c.normParts > 0) {
            const double offset = 50;
            std::vector<double> rows = run.normal((size_t)s.m * s.k), normed = rows;
            for (int i = 0; i < s.m; ++i)
              for (int k = 0; k < s.k; ++k)
                rows[(size_t)i * s.k + k] = rounded(
                    (i % 3 - 1) * offset + (k % 7 + 1) * rows[(size_t)i * s.k + k], Scalar::F16);
            p.x = run.input(rows, Scalar::F16);
            partsOfX = statisticsOf(rows, s.m, s.k, c.normWidth);
            for (int i = 0; i < s.m; ++i)
              norm({&rows[(size_t)i * s.k], (size_t)s.k}, {&normed[(size_t)i * s.k], (size_t)s.k},
                   epsilon);
            for (int j = 0; j < s.n; ++j)
              for (int k = 0; k < s.k; ++k)
                sums[j] += p.w.values[(size_t)j * s.k + k];
            p.compute(normed, p.w.values, epilogue, c.y);
            // The sums are of elements up to `offset` deviations large, less their mean.
            for (int i = 0; i < s.m; ++i)
              for (int j = 0; j < s.n; ++j) {
                double magnitude = 0;
                for (int k = 0; k < s.k; ++k)
                  magnitude +=
                      std::fabs(rows[(size_t)i * s.k + k] * p.w.values[(size_t)j * s.k + k]);
                p.bound[(size_t)i * s.n + j] += magnitude * 2e-6;
              }
          }
          Tensor xStatistics =
                     run.input(partsOfX.empty() ? std::vector<double>(2) : partsOfX, Scalar::F32),
                 rowSums = run.input(sums, Scalar::F32);
          const int width = statisticsWidth(c);
          Tensor yStatistics = run.output((size_t)s.m * 2 * blocks(s.n, width), Scalar::F32);
          std::vector<Argument> arguments = {MapOf{&p.x, s.m, s.k, c.bm},
                                             MapOf{&p.w, s.n, s.k, c.bn}, &p.y, s.m};
          p.appendOperands(arguments);
          if (c.normParts > 0)
            arguments.insert(arguments.end(), {&xStatistics, &rowSums, epsilon});
          if (c.statistics)
            arguments.push_back(&yStatistics);
          unsigned tilesM = blocks(s.m, c.bm), tilesN = blocks(s.n, c.bn);
          std::array<unsigned, 3> grid = {tilesM, tilesN, (unsigned)c.splitK};
          if (c.persistent) // fewer blocks than tiles, so that they go round
            grid = {std::max(1u, tilesM * tilesN / 3), 1, 1};
          check(run, id, p, grid, arguments, c.y);
          if (c.statistics)
            run.expectNear(yStatistics, statisticsOf(p.want, s.m, s.n, width), 1e-3,
                           std::vector<double>((size_t)s.m * 2 * (s.n / width), 1e-4));
        },
        true);
  }
}
void simt(Suite &suite, const char *label, LinearSimtConfig c, const Epilogue &epilogue,
          const std::vector<Shape> &shapes) {
  tiled(suite, "linear_simt", linearSimt, label, c, {c.x, c.w, c.y}, epilogue, shapes);
}

void tf32(Suite &suite, const std::string &group, const char *label, LinearTf32Config c,
          const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  if (!c.wgmma)
    return tiled(suite, group, linearTf32, label, c, {Scalar::F32, Scalar::F32, c.y}, epilogue,
                 shapes);
  int id = suite.kernel(group + " wgmma",
                        [&](llvm::StringRef name) { return linearTf32(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(
        {group + " wgmma/" + label + "/" + text(s), work(s)},
        [=](Run &run) {
          Problem p(run, s, Scalar::F32, Scalar::F32, c.y, epilogue);
          // A float is two halves to a tensor map.
          std::vector<Argument> arguments = {MapOf{&p.x, s.m, 2 * s.k, c.bm},
                                             MapOf{&p.w, s.n, 2 * s.k, c.bn},
                                             &p.y,
                                             s.m,
                                             s.n,
                                             s.k};
          p.appendOperands(arguments);
          check(run, id, p, {blocks(s.m, c.bm), blocks(s.n, c.bn), (unsigned)c.splitK}, arguments,
                c.y);
        },
        true);
}
void tf32(Suite &suite, const char *label, LinearTf32Config c, const Epilogue &epilogue,
          const std::vector<Shape> &shapes) {
  tf32(suite, "linear_tf32", label, c, epilogue, shapes);
}

/// The rows a fused norm hands to the product, as the kernel rounds them.
std::vector<double> normalised(const Tensor &x, const std::vector<double> &gain,
                               const std::vector<double> &shift, int m, int k, FusedNorm norm,
                               double epsilon) {
  std::vector<double> rows(x.values);
  for (int i = 0; i < m; ++i) {
    double *row = &rows[(size_t)i * k];
    double mean = 0, square = 0;
    if (norm == FusedNorm::Layer) {
      for (int j = 0; j < k; ++j)
        mean += row[j];
      mean /= k;
    }
    for (int j = 0; j < k; ++j)
      square += (row[j] - mean) * (row[j] - mean);
    double scale = 1 / std::sqrt(square / k + epsilon);
    for (int j = 0; j < k; ++j)
      row[j] = rounded((row[j] - mean) * scale * gain[j] + (shift.empty() ? 0 : shift[j]), x.type);
  }
  return rows;
}

/// Kernels that compute all rows in a block, after a norm when the config asks for one.
template <typename Config>
void fewRows(Suite &suite, const std::string &group, MakeTiled<Config> make, const char *label,
             Config c, std::array<Scalar, 2> types, int columns, const Epilogue &epilogue,
             const std::vector<Shape> &shapes, int wGroup = 0) {
  int id = suite.kernel(group, [&](llvm::StringRef name) { return make(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test({group + "/" + label + "/" + text(s), work(s)}, [=](Run &run) {
      run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
      Problem p(run, s, types[0], types[1], c.y, epilogue);
      std::vector<Argument> arguments = {&p.x, &p.w, &p.y, s.m, s.n};
      std::vector<double> weights = p.w.values;
      Tensor wScale;
      if (wGroup > 0) {
        wScale = randomScales(run, (size_t)s.n * (s.k / wGroup));
        for (size_t i = 0; i < weights.size(); ++i)
          weights[i] *= wScale.values[i / wGroup];
        arguments.push_back(&wScale);
        p.compute(p.x.values, weights, epilogue, c.y);
      }
      Tensor gain = run.input(run.normal(s.k), c.p), shift = run.input(run.normal(s.k), c.p);
      if (c.norm != FusedNorm::None) {
        const bool hasShift = c.norm == FusedNorm::Layer;
        arguments.insert(arguments.end(), {Argument(&gain), Argument(&shift), Argument(1e-5f)});
        if (!hasShift)
          arguments[arguments.size() - 2] = nullptr;
        p.computeNormalised(normalised(p.x, gain.values,
                                       hasShift ? shift.values : std::vector<double>(), s.m, s.k,
                                       c.norm, (float)1e-5f),
                            epilogue, types[0], c.y);
      }
      p.appendOperands(arguments);
      check(run, id, p, {blocks(s.n, columns), 1, 1}, arguments, c.y);
    });
}

/// The product, and the greedy choice that linear_stream and argmax_parts make of it.
void stream(Suite &suite, const char *label, LinearStreamConfig c, const Epilogue &epilogue,
            const std::vector<Shape> &shapes) {
  const std::string group = "linear_stream";
  int parts = suite.kernel(group, [&](llvm::StringRef name) { return argmaxParts(name); });
  int id =
      suite.kernel(group, [&](llvm::StringRef name) { return linearStream(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test({group + "/" + label + "/" + text(s), work(s)}, [=](Run &run) {
      run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
      Problem p(run, s, Scalar::F16, c.w, c.y, epilogue);
      std::vector<Argument> arguments = {&p.x, &p.w, &p.y, s.m, s.n};
      Tensor gain = run.input(run.normal(s.k), c.p), shift = run.input(run.normal(s.k), c.p);
      if (c.norm != FusedNorm::None) {
        arguments.insert(arguments.end(), {Argument(&gain), Argument(&shift), Argument(1e-5f)});
        p.computeNormalised(normalised(p.x, gain.values, shift.values, s.m, s.k, c.norm, 1e-5f),
                            epilogue, Scalar::F16, c.y);
      }
      const unsigned blockCount = 5;
      Tensor best = run.zeroed(8 * s.m * blockCount),
             next = run.integerInput(std::vector<int>(s.m, -1));
      if (c.best)
        arguments.push_back(&best);
      p.appendOperands(arguments);
      check(run, id, p, {blockCount, 1, 1}, arguments, c.y);
      if (!c.best)
        return;
      run.launch(parts, {(unsigned)s.m, 1, 1}, {&best, &next, (int)blockCount});
      std::vector<double> y = run.read(p.y);
      std::vector<int> want;
      for (int i = 0; i < s.m; ++i)
        want.push_back(int(std::max_element(&y[(size_t)i * s.n], &y[(size_t)(i + 1) * s.n]) -
                           &y[(size_t)i * s.n]));
      run.expectEqual(run.readIntegers(next), want, "next");
    });
}

/// The arguments of a norm that a kernel takes out of its sums, after they are rounded:
/// ((x gain) W^T - mean c) / deviation + s; p.x is moved by `offset` and p.want is that of the
/// norm.
std::vector<Argument> takenOut(Run &run, Problem &p, const std::vector<double> &weights,
                               FusedNorm norm, Scalar gainType, const Epilogue &epilogue, Scalar y,
                               double offset, bool gainAndShift, std::vector<Tensor> &kept) {
  const size_t m = p.shape.m, n = p.shape.n, k = p.shape.k;
  std::vector<double> moved = p.x.values;
  for (double &v : moved)
    v += offset;
  p.x = run.input(moved, Scalar::F16);
  const bool layer = norm == FusedNorm::Layer;
  kept.reserve(3);
  const Tensor &gain = kept.emplace_back(run.input(run.normal(k), gainType));
  std::vector<double> shift = run.normal(k), c(n), s(n);
  for (size_t j = 0; j < n; ++j)
    for (size_t i = 0; i < k; ++i) {
      c[j] += weights[j * k + i] * (gainAndShift ? gain.values[i] : 1);
      s[j] += weights[j * k + i] * (gainAndShift && layer ? shift[i] : 0);
    }
  const Tensor &sums = kept.emplace_back(run.input(c, Scalar::F32));
  const Tensor &shifts = kept.emplace_back(run.input(s, Scalar::F32));
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
      to[j] = (gainAndShift ? rounded(row[j] * rounded(gain.values[j], Scalar::F16), Scalar::F16)
                            : row[j]) /
              deviation;
    to[k] = -mean / deviation;
    to[k + 1] = 1;
  }
  for (size_t j = 0; j < n; ++j) {
    std::copy_n(&weights[j * k], k, &w[j * (k + 2)]);
    w[j * (k + 2) + k] = sums.values[j];
    w[j * (k + 2) + k + 1] = shifts.values[j];
  }
  p.shape.k += 2;
  p.compute(x, w, epilogue, y);
  p.shape.k -= 2;
  // The square of a large mean is subtracted from that of x.
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      p.bound[i * n + j] *= 1 + far[i] * far[i];
  return {gainAndShift ? Argument(&gain) : Argument(nullptr), &sums,
          gainAndShift && layer ? Argument(&shifts) : Argument(nullptr), 1e-5f};
}

/// `offset` is added to x.
void rows(Suite &suite, const std::string &group, const char *label, LinearRowsConfig c,
          const Epilogue &epilogue, const std::vector<Shape> &shapes, double offset = 0,
          bool gainAndShift = true) {
  int id = suite.kernel(group, [&](llvm::StringRef name) { return linearRows(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(
        {group + "/" + label + "/" + text(s), work(s)},
        [=](Run &run) {
          run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
          Problem p(run, s, Scalar::F16, c.w, c.y, epilogue);
          std::vector<double> weights = p.w.values;
          Tensor wScale;
          if (c.wGroup > 0) {
            wScale = randomScales(run, (size_t)s.n * (s.k / c.wGroup));
            for (size_t i = 0; i < weights.size(); ++i)
              weights[i] = rounded(weights[i] * wScale.values[i / c.wGroup], Scalar::F16);
          }
          std::vector<Tensor> kept;
          std::vector<Argument> ofNorm;
          if (c.norm == FusedNorm::None)
            p.compute(p.x.values, weights, epilogue, c.y);
          else
            ofNorm =
                takenOut(run, p, weights, c.norm, c.p, epilogue, c.y, offset, gainAndShift, kept);
          std::vector<Argument> arguments = {&p.x, &p.w, &p.y, s.m, s.n};
          if (c.wGroup > 0)
            arguments.push_back(&wScale);
          arguments.insert(arguments.end(), ofNorm.begin(), ofNorm.end());
          p.appendOperands(arguments);
          check(run, id, p, {(unsigned)c.splits, blocks(s.n, rowsColumns(c)), 1}, arguments, c.y);
        },
        c.splits > 1);
}

void cluster(Suite &suite, const std::string &group, const char *label, LinearClusterConfig c,
             const Epilogue &epilogue, const std::vector<Shape> &shapes, double offset = 0,
             bool gainAndShift = true) {
  int id =
      suite.kernel(group, [&](llvm::StringRef name) { return linearCluster(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(
        {group + "/" + label + "/" + text(s), work(s)},
        [=](Run &run) {
          run.expect(s.k == c.k, "the shape is not this kernel's");
          Problem p(run, s, Scalar::F16, c.w, c.y, epilogue);
          std::vector<Tensor> kept;
          std::vector<Argument> ofNorm;
          if (c.norm != FusedNorm::None)
            ofNorm = takenOut(run, p, p.w.values, c.norm, c.p, epilogue, c.y, offset, gainAndShift,
                              kept);
          std::vector<Argument> arguments = {&p.x, &p.w, &p.y, s.m, s.n};
          arguments.insert(arguments.end(), ofNorm.begin(), ofNorm.end());
          p.appendOperands(arguments);
          Tensor yStatistics = run.output((size_t)s.m * 2 * blocks(s.n, 64), Scalar::F32);
          if (c.statistics)
            arguments.push_back(&yStatistics);
          check(run, id, p,
                {(unsigned)c.splits, blocks(s.n, clusterColumns(c)), blocks(s.m, c.rows)},
                arguments, c.y);
          if (c.statistics)
            run.expectNear(yStatistics, statisticsOf(p.want, s.m, s.n, 64), 1e-3,
                           std::vector<double>((size_t)s.m * 2 * (s.n / 64), 1e-4));
        },
        true);
}

/// The product, and the greedy choice that it leaves for argmax_parts. Without `logits` only that.
void streamWgmma(Suite &suite, const char *label, LinearStreamWgmmaConfig c,
                 const Epilogue &epilogue, const std::vector<Shape> &shapes,
                 bool gainAndShift = true, bool logits = true) {
  const std::string group = "linear_stream_wgmma " + std::to_string(c.rows);
  int parts = suite.kernel(group, [&](llvm::StringRef name) { return argmaxParts(name); });
  int id = suite.kernel(group,
                        [&](llvm::StringRef name) { return linearStreamWgmma(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(
        {group + "/" + label + "/" + text(s), work(s)},
        [=](Run &run) {
          run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
          Problem p(run, s, Scalar::F16, c.w, c.y, epilogue);
          std::vector<Tensor> kept;
          std::vector<Argument> ofNorm;
          if (c.norm != FusedNorm::None)
            ofNorm =
                takenOut(run, p, p.w.values, c.norm, c.p, epilogue, c.y, 1.5, gainAndShift, kept);
          const unsigned blockCount = 5;
          Tensor best = run.zeroed(8 * s.m * blockCount),
                 next = run.integerInput(std::vector<int>(s.m, -1));
          auto arguments = [&](bool stored) {
            std::vector<Argument> list = {&p.x, &p.w, stored ? Argument(&p.y) : Argument(nullptr),
                                          s.m, s.n};
            list.insert(list.end(), ofNorm.begin(), ofNorm.end());
            if (c.best)
              list.push_back(&best);
            p.appendOperands(list);
            return list;
          };
          check(run, id, p, {blockCount, 1, 1}, arguments(true), c.y);
          if (!c.best)
            return;
          if (!logits) {
            best = run.zeroed(8 * s.m * blockCount);
            run.launch(id, {blockCount, 1, 1}, arguments(false));
          }
          run.launch(parts, {(unsigned)s.m, 1, 1}, {&best, &next, (int)blockCount});
          std::vector<double> y = run.read(p.y);
          std::vector<int> want;
          for (int i = 0; i < s.m; ++i)
            want.push_back(int(std::max_element(&y[(size_t)i * s.n], &y[(size_t)(i + 1) * s.n]) -
                               &y[(size_t)i * s.n]));
          run.expectEqual(run.readIntegers(next), want, "next");
        },
        true);
}

void rowDot(Suite &suite, const char *label, LinearRowDotConfig c, const Epilogue &epilogue,
            const std::vector<Shape> &shapes) {
  fewRows(suite, "linear_rowdot", linearRowDot, label, c, {c.x, c.w}, rowDotColumns(c), epilogue,
          shapes);
}
void skinny(Suite &suite, const char *label, LinearSkinnyConfig c, const Epilogue &epilogue,
            const std::vector<Shape> &shapes) {
  fewRows(suite, "linear_skinny", linearSkinny, label, c, {Scalar::F16, c.w}, skinnyColumns(c),
          epilogue, shapes, c.wGroup);
}
} // namespace

void addLinearCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  const std::vector<Shape> small = {
      {1, 1, 1}, {17, 33, 40}, {65, 130, 72}, {33, 7, 13}, {3, 129, 770}};
  std::vector<Shape> large = small;
  large.insert(large.end(), {{128, 768, 768}, {300, 2304, 768}, {200, 768, 3072}, {100, 1021, 64}});

  mma(suite, "128x128x32 f16 bias", {f16, 128, 128, 32, 2, 4, 4, 1}, bias(f16), large);
  mma(suite, "128x128x64 f16 bias+gelu_tanh", {f16, 128, 128, 64, 2, 2, 3, 1},
      biasGelu(f16, EpilogueStage::GeluTanh), large);
  mma(suite, "128x64x32 f32 bias f32", {f32, 128, 64, 32, 4, 1, 4, 1}, bias(f32), small);
  mma(suite, "64x64x32 f16 bias+residual", {f16, 64, 64, 32, 2, 2, 4, 1}, biasResidual(f16, f16),
      large);
  mma(suite, "64x64x64 f16 bias+residual f32", {f16, 64, 64, 64, 2, 2, 4, 1},
      biasResidual(f32, f32), small);
  mma(suite, "64x64x64 f32 split 4 bias+gelu_erf", {f32, 64, 64, 64, 2, 2, 3, 4},
      biasGelu(f16, EpilogueStage::GeluErf), large);
  mma(suite, "32x64x64 f16 all", {f16, 32, 64, 64, 1, 4, 3, 1}, everything(f16), small);
  mma(suite, "16x64x64 f32 plain", {f32, 16, 64, 64, 1, 4, 4, 1}, plain, small);

  std::vector<Shape> aligned;
  for (Shape s : large)
    if (s.k % 8 == 0)
      aligned.push_back(s);
  aligned.insert(aligned.end(), {{1, 1, 8}, {129, 7, 136}});
  wgmma(suite, "128x128 f16 bias+gelu_tanh", {f16, 128, 128, 3, 1},
        biasGelu(f16, EpilogueStage::GeluTanh), aligned);
  wgmma(suite, "128x192 f16 bias+residual", {f16, 128, 192, 3, 1}, biasResidual(f16, f16), aligned);
  wgmma(suite, "64x128 f16 bias+gelu_tanh", {f16, 64, 128, 4, 1},
        biasGelu(f16, EpilogueStage::GeluTanh), aligned);
  wgmma(suite, "128x64 f32 all", {f32, 128, 64, 3, 1}, everything(f16), aligned);
  wgmma(suite, "64x64 f32 plain", {f32, 64, 64, 6, 1}, plain, aligned);
  wgmma(suite, "64x64 f16 bias+residual", {f16, 64, 64, 6, 1}, biasResidual(f16, f16), aligned);
  wgmma(suite, "64x64 f16 split 2 bias+residual", {f16, 64, 64, 6, 2}, biasResidual(f16, f16),
        aligned);
  wgmma(suite, "64x64 f16 split 4 bias", {f16, 64, 64, 6, 4}, bias(f16), aligned);

  // The kernels are made for n and k.
  const std::vector<Shape> uneven = {{1, 1, 8}, {129, 7, 136}, {70, 130, 264}, {200, 384, 1024}};
  tma(suite, "64x32 f16 bias", {f16, 64, 32, 8, 1, 2}, bias(f16), uneven);
  tma(suite, "64x48 f16 bias+residual", {f16, 64, 48, 7, 1, 2}, biasResidual(f16, f16), uneven);
  tma(suite, "64x48 f16 split 3 bias+residual", {f16, 64, 48, 7, 3, 1}, biasResidual(f16, f16),
      uneven);
  tma(suite, "64x96 f16 split 2 all", {f16, 64, 96, 5, 2, 1}, everything(f16), uneven);
  tma(suite, "64x64 f32 split 4 plain", {f32, 64, 64, 6, 4, 1}, plain, uneven);
  tma(suite, "64x144 f16 bias", {f16, 64, 144, 4, 1, 1}, bias(f16), uneven);
  tma(suite, "128x96 f16 bias+gelu_tanh", {f16, 128, 96, 6, 1, 1},
      biasGelu(f16, EpilogueStage::GeluTanh), uneven);
  tma(suite, "128x192 f16 bias+residual", {f16, 128, 192, 5, 1, 1}, biasResidual(f16, f16), uneven);
  tma(suite, "128x128 f32 2 stages bias", {f32, 128, 128, 2, 1, 1}, bias(f32), uneven);
  const std::vector<Shape> several = {{1, 1, 8}, {129, 7, 136}, {500, 1000, 200}, {1024, 768, 768}};
  tma(suite, "persistent 96 f16 bias+residual", {f16, 128, 96, 7, 1, 1, true},
      biasResidual(f16, f16), several);
  tma(suite, "persistent 128 f16 bias+gelu_tanh", {f16, 128, 128, 6, 1, 1, true},
      biasGelu(f16, EpilogueStage::GeluTanhHalf), several);
  tma(suite, "persistent 144 f16 bias", {f16, 128, 144, 6, 1, 1, true}, bias(f16), several);
  tma(suite, "persistent 128 f32 all 2 stages", {f32, 128, 128, 2, 1, 1, true}, everything(f16),
      several);

  tma(suite, "persistent 192 f16 bias+residual", {f16, 128, 192, 5, 1, 1, true},
      biasResidual(f16, f16), several);
  auto normed = [&](LinearTmaConfig c) {
    c.normParts = 2;
    return c;
  };
  auto counted = [&](LinearTmaConfig c) {
    c.statistics = true;
    return c;
  };
  const std::vector<Shape> widths = {{1, 192, 64}, {70, 384, 192}, {300, 576, 768}};
  tma(suite, "64x48 f16 norm bias", normed({f16, 64, 48, 7, 1, 2}), bias(f16), widths);
  tma(suite, "64x48 f16 split 3 norm bias", normed({f16, 64, 48, 7, 3, 1}), bias(f16), widths);
  tma(suite, "128x96 f16 norm bias+gelu_tanh", normed({f16, 128, 96, 6, 1, 1}),
      biasGelu(f16, EpilogueStage::GeluTanhHalf), widths);
  tma(suite, "persistent 192 f16 norm bias", normed({f16, 128, 192, 5, 1, 1, true}), bias(f16),
      widths);
  tma(suite, "persistent 144 f16 norm bias", normed({f16, 128, 144, 6, 1, 1, true}), bias(f16),
      widths);
  tma(suite, "64x48 f16 bias+residual statistics", counted({f16, 64, 48, 7, 1, 2}),
      biasResidual(f16, f16), widths);
  tma(suite, "64x48 f16 split 3 bias+residual statistics", counted({f16, 64, 48, 7, 3, 1}),
      biasResidual(f16, f16), widths);
  tma(suite, "128x192 f16 bias+residual statistics", counted({f16, 128, 192, 5, 1, 1}),
      biasResidual(f16, f16), widths);
  tma(suite, "persistent 96 f16 bias+residual statistics", counted({f16, 128, 96, 7, 1, 1, true}),
      biasResidual(f16, f16), widths);

  simt(suite, "32x64 f32 split 8 bias+residual", {f32, f32, f32, 32, 64, 16, 4, 4, 8},
       biasResidual(f32, f32), large);
  simt(suite, "64x64 8x4 f32 split 4 bias+gelu_tanh", {f32, f32, f32, 64, 64, 16, 8, 4, 4},
       biasGelu(f32, EpilogueStage::GeluTanh), large);
  simt(suite, "128x64x16 8x8 f32 bias", {f32, f32, f32, 128, 64, 16, 8, 8, 1}, bias(f32), large);
  simt(suite, "128x128 f32 bias", {f32, f32, f32, 128, 128, 8, 8, 8, 1}, bias(f32), large);
  simt(suite, "64x64 f32 bias+residual", {f32, f32, f32, 64, 64, 16, 4, 4, 1},
       biasResidual(f32, f32), large);
  simt(suite, "64x64 f32 split 3 bias+gelu_tanh", {f32, f32, f32, 64, 64, 8, 8, 4, 3},
       biasGelu(f32, EpilogueStage::GeluTanh), small);
  simt(suite, "128x64 f32 all", {f32, f32, f32, 128, 64, 8, 8, 8, 1}, everything(f32), small);
  simt(suite, "64x64 f16 in f32 out plain", {f16, f16, f32, 64, 64, 8, 4, 4, 1}, plain, small);
  simt(suite, "64x64 f32 x i8 w split 2", {f32, Scalar::I8, f32, 64, 64, 16, 4, 4, 2},
       scaledBias(f32), large);
  simt(suite, "64x64 f16 bias+gelu_erf", {f16, f16, f16, 64, 64, 8, 4, 4, 1},
       biasGelu(f16, EpilogueStage::GeluErf), small);
}

void addTf32Cases(Suite &suite) {
  const Scalar f32 = Scalar::F32;
  std::vector<Shape> shapes = {{1, 1, 4},        {17, 33, 40},     {65, 130, 72},
                               {33, 7, 12},      {3, 129, 772},    {128, 768, 768},
                               {300, 2304, 768}, {200, 768, 3072}, {100, 1021, 64}};
  tf32(suite, "128x96 bias+gelu_tanh", {f32, 128, 96, 4, 2, 4, 1, 1},
       biasGelu(f32, EpilogueStage::GeluTanh), shapes);
  tf32(suite, "128x72 bias", {f32, 128, 72, 8, 1, 4, 1, 1}, bias(f32), shapes);
  tf32(suite, "128x96 split 4 bias+residual", {f32, 128, 96, 4, 2, 4, 4, 1}, biasResidual(f32, f32),
       shapes);
  tf32(suite, "64x80 2 stages all", {f32, 64, 80, 2, 2, 2, 1, 1}, everything(f32), shapes);
  tf32(suite, "32x64 split 3 plain", {f32, 32, 64, 2, 4, 6, 3, 1}, plain, shapes);
  tf32(suite, "16x32 bias", {f32, 16, 32, 1, 4, 3, 1, 2}, bias(f32), shapes);

  tf32(suite, "128x96 bias+gelu_tanh", {f32, 128, 96, 0, 0, 5, 1, 1, true},
       biasGelu(f32, EpilogueStage::GeluTanh), shapes);
  tf32(suite, "128x72 bias", {f32, 128, 72, 0, 0, 2, 1, 1, true}, bias(f32), shapes);
  tf32(suite, "64x64 split 2 bias+residual", {f32, 64, 64, 0, 0, 6, 2, 1, true},
       biasResidual(f32, f32), shapes);
  tf32(suite, "128x48 split 3 all", {f32, 128, 48, 0, 0, 3, 3, 1, true}, everything(f32), shapes);

  // Both parts of a number are exact at any magnitude.
  const LinearTf32Config config{f32, 64, 96, 2, 2, 3, 1, 1};
  const int id = suite.kernel(
      "linear_tf32", [&](llvm::StringRef name) { return linearTf32(name, config, plain); });
  suite.test("linear_tf32/64x96 magnitudes of 2^-30 to 2^30", [=](Run &run) {
    const Shape s{70, 100, 1024};
    Problem p(run, s, f32, f32, f32, plain);
    for (Tensor *t : {&p.x, &p.w}) {
      std::vector<double> values = t->values;
      const std::vector<int> exponents = run.integers(values.size(), -30, 30);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = std::ldexp(values[i], exponents[i]);
      *t = run.input(values, f32);
    }
    p.compute(p.x.values, p.w.values, plain, f32);
    check(run, id, p, {2, 2, 1}, p.arguments(), f32);
  });
  suite.test("linear_tf32/64x96 NaN stays NaN", [=](Run &run) {
    const Shape s{3, 5, 64};
    Problem p(run, s, f32, f32, f32, plain);
    std::vector<double> values = p.x.values;
    values[s.k + 7] = NAN;
    p.x = run.input(values, f32);
    p.compute(p.x.values, p.w.values, plain, f32);
    run.launch(id, {1, 1, 1}, p.arguments());
    run.expectNear(p.y, p.want, relative(f32), p.bound);
  });
}

void addRowDotCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int rows : {1, 2, 4, 8}) {
    std::string tag = "rows " + std::to_string(rows);
    auto shapes = [&](int k) {
      std::vector<Shape> list = {{rows, 768, k}, {rows, 1021, k}, {rows, 1, k}};
      if (rows > 1)
        list.push_back({rows - 1, 65, k});
      return list;
    };
    rowDot(suite, (tag + " f16 bias").c_str(), {f16, f16, f16, f32, rows, 2, 1, 8, 768}, bias(f16),
           shapes(768));
    rowDot(suite, (tag + " f16 ksplit bias+residual").c_str(),
           {f16, f16, f16, f32, rows, 2, 4, 8, 3072}, biasResidual(f16, f16), shapes(3072));
    rowDot(suite, (tag + " f16 norm bias+gelu").c_str(),
           {f16, f16, f16, f16, rows, 2, 1, 8, 768, FusedNorm::Layer},
           biasGelu(f16, EpilogueStage::GeluTanh), shapes(768));
    rowDot(suite, (tag + " f32 norm plain").c_str(),
           {f32, f32, f32, f32, rows, 1, 2, 4, 768, FusedNorm::Layer}, plain, shapes(768));
    rowDot(suite, (tag + " f32 bias+residual").c_str(), {f32, f32, f32, f32, rows, 4, 1, 4, 3072},
           biasResidual(f32, f32), shapes(3072));
    for (int k : {1, 13, 40, 770, 1604})
      rowDot(suite, (tag + " f16 rms").c_str(),
             {f16, f16, f32, f32, rows, 3, 1, 4, k, FusedNorm::Rms}, plain, shapes(k));
    rowDot(suite, (tag + " f16 x i8 w norm").c_str(),
           {f16, Scalar::I8, f16, f32, rows, 2, 1, 8, 768, FusedNorm::Layer},
           scaledBias(f16, EpilogueStage::GeluTanh), shapes(768));
    for (int k : {13, 770, 1600})
      rowDot(suite, (tag + " f32 x i8 w").c_str(), {f32, Scalar::I8, f32, f32, rows, 1, 2, 4, k},
             scaledBias(f32), shapes(k));
    for (int k : {5, 102, 1600})
      rowDot(suite, (tag + " f32 x f16 w").c_str(), {f32, f16, f32, f32, rows, 1, 1, 4, k},
             everything(f32), shapes(k));
  }
  for (int m : {8, 16, 32, 64}) {
    const std::string tag = "rows " + std::to_string(m), group = "linear_rows " + std::to_string(m);
    auto shapes = [&](int k) {
      return std::vector<Shape>{{m, 768, k}, {m - 3, 1022, k}, {1, 2, k}};
    };
    auto odd = [&](int k) { return std::vector<Shape>{{m, 1021, k}, {1, 1, k}, {m - 1, 65, k}}; };
    auto config = [&](int k) {
      LinearRowsConfig c;
      c.rows = m;
      c.k = k;
      return c;
    };
    for (int k : {8, 40, 768, 776, 3072}) {
      LinearRowsConfig c = config(k);
      rows(suite, group, "f16 bias", c, bias(f16), odd(k));
      c.pairs = true;
      c.groups = m <= 32 ? 2 : 1;
      c.warps = k == 3072 ? 16 / c.groups : 4;
      rows(suite, group, "f16 2 groups bias+residual", c, biasResidual(f16, f16), shapes(k));
      c.y = f32;
      rows(suite, group, "f32 all", c, everything(f16), shapes(k));
    }
    for (int splits : {2, 4, 8}) {
      LinearRowsConfig c = config(3072);
      c.splits = splits;
      c.groups = splits == 4 && m <= 32 ? 2 : 1;
      c.pairs = splits != 2;
      rows(suite, group, ("f16 bias+residual splits " + std::to_string(splits)).c_str(), c,
           biasResidual(f16, f16), c.pairs ? shapes(3072) : odd(3072));
    }
    for (int k : {104, 768}) {
      LinearRowsConfig c = config(k);
      c.p = k == 768 ? f16 : f32;
      c.norm = FusedNorm::Layer;
      rows(suite, group, "f16 norm bias+gelu", c, biasGelu(f16, EpilogueStage::GeluTanh), odd(k));
      c.pairs = true;
      c.groups = m <= 32 ? 2 : 1;
      for (double offset : {0.0, 30.0})
        rows(suite, group, ("f16 norm alone, offset " + std::to_string(int(offset))).c_str(), c,
             bias(f16), shapes(k), offset, false);
      c.norm = FusedNorm::Rms;
      c.y = f32;
      rows(suite, group, "f32 rms", c, plain, shapes(k));
      c.w = Scalar::I8;
      c.norm = FusedNorm::Layer;
      c.y = f16;
      rows(suite, group, "i8 w norm bias+gelu", c, scaledBias(f16, EpilogueStage::GeluTanh),
           shapes(k));
    }
    for (int k : {16, 768, 1600}) {
      LinearRowsConfig c = config(k);
      c.w = Scalar::I8;
      rows(suite, group, "i8 w bias", c, scaledBias(f16), odd(k));
    }
    for (int k : {64, 768, 1600}) {
      LinearStreamConfig c;
      c.rows = m;
      c.k = k;
      c.best = k != 64;
      c.warps = k == 768 ? 12 : 8;
      stream(suite, (tag + " f32").c_str(), c, plain, {{m, 1021, k}, {1, 1, k}, {m - 1, 2500, k}});
      c.p = f16;
      c.norm = FusedNorm::Layer;
      stream(suite, (tag + " f32 norm").c_str(), c, plain, {{m, 1021, k}});
      c.w = Scalar::I8;
      c.y = f16;
      stream(suite, (tag + " i8 w norm f16").c_str(), c, scaledBias(f16), {{m, 1021, k}});
    }
    for (int wGroup : {32, 128}) {
      LinearRowsConfig c = config(768);
      c.w = Scalar::I8;
      c.wGroup = wGroup;
      c.warps = 6;
      rows(suite, group, ("i8 w in groups of " + std::to_string(wGroup)).c_str(), c, bias(f16),
           odd(768));
      c.norm = FusedNorm::Layer;
      rows(suite, group, ("i8 w in groups of " + std::to_string(wGroup) + " norm").c_str(), c,
           bias(f16), odd(768));
    }
  }
  for (int m : {8, 16, 32, 64, 128}) {
    const std::string group = "linear_cluster " + std::to_string(m);
    auto shapes = [&](int k) {
      return std::vector<Shape>{{m, 768, k}, {m - 3, 1022, k}, {2 * m + 1, 130, k}, {1, 2, k}};
    };
    auto odd = [&](int k) { return std::vector<Shape>{{m, 321, k}, {1, 1, k}, {m + 1, 65, k}}; };
    auto config = [&](int k, int groups, int parts, int splits) {
      LinearClusterConfig c;
      c.rows = m;
      c.k = k;
      c.groups = groups;
      c.parts = parts;
      c.splits = splits;
      return c;
    };
    for (int k : {8, 40, 768, 776}) {
      LinearClusterConfig c = config(k, 1, 1, 4);
      cluster(suite, group, "f16 bias", c, bias(f16), odd(k));
      c = config(k, 2, 2, 2);
      c.pairs = true;
      c.y = f32;
      cluster(suite, group, "f32 2 groups 2 parts all", c, everything(f16), shapes(k));
      if (m > 64)
        continue;
      c = config(k, 3, 1, 4);
      c.p = k == 768 ? f32 : f16;
      c.norm = FusedNorm::Layer;
      cluster(suite, group, "f16 3 groups norm bias+gelu", c,
              biasGelu(f16, EpilogueStage::GeluTanh), odd(k));
      c.groups = 1;
      c.parts = 2;
      c.pairs = true;
      for (double offset : {0.0, 11.0})
        cluster(suite, group,
                ("f16 2 parts norm alone, offset " + std::to_string(int(offset))).c_str(), c,
                bias(f16), shapes(k), offset, false);
      c.w = Scalar::I8;
      cluster(suite, group, "i8 w norm bias+gelu", c, scaledBias(f16, EpilogueStage::GeluTanh),
              shapes(k));
      c.norm = FusedNorm::Rms;
      c.y = f32;
      cluster(suite, group, "i8 w rms f32", c, scaledBias(f16), shapes(k));
    }
    LinearClusterConfig c = config(3072, 1, 2, m > 8 ? 8 : 4);
    c.pairs = true;
    cluster(suite, group, "f16 bias+residual", c, biasResidual(f16, f16), shapes(3072));
    c.statistics = true;
    cluster(suite, group, "f16 bias+residual statistics", c, biasResidual(f16, f16),
            {{m, 768, 3072}, {m + 3, 192, 3072}});
    c = config(3072, 1, 4, 2);
    if (clusterSharedBytes(c) <= 200 * 1024)
      cluster(suite, group, "f16 bias+residual 4 parts", c, biasResidual(f16, f16), odd(3072));
    for (int k : {64, 768, 1600}) {
      LinearStreamWgmmaConfig v;
      v.rows = m;
      v.k = k;
      v.best = k != 64;
      v.depth = 2;
      if (streamSharedBytes(v) > 200 * 1024)
        continue;
      streamWgmma(suite, "f32", v, plain, {{m, 1021, k}, {1, 1, k}, {m - 1, 2500, k}}, true, false);
      v.p = f16;
      v.norm = FusedNorm::Layer;
      v.groups = 2;
      streamWgmma(suite, "f32 norm", v, plain, {{m, 1021, k}});
      streamWgmma(suite, "f32 norm alone", v, plain, {{m - 1, 1000, k}}, false);
      if (k == 64)
        continue;
      v.w = Scalar::I8;
      v.depth = k == 768 ? 4 : 5;
      v.y = f16;
      v.p = f32;
      streamWgmma(suite, "i8 w norm f16", v, scaledBias(f16), {{m, 1021, k}});
    }
  }
  for (int rows : {8, 16, 32, 64}) {
    std::string tag = "rows " + std::to_string(rows);
    auto shapes = [&](int k) {
      return std::vector<Shape>{{rows, 768, k}, {rows, 1021, k}, {1, 1, k}, {rows - 1, 65, k}};
    };
    skinny(suite, (tag + " f16 bias").c_str(), {f16, f32, rows, 8, 8, 768}, bias(f16), shapes(768));
    skinny(suite, (tag + " f16 bias+residual").c_str(), {f16, f32, rows, 8, 8, 3072},
           biasResidual(f16, f16), shapes(3072));
    if (rows <= 32)
      skinny(suite, (tag + " f16 16 warps bias+residual").c_str(), {f16, f32, rows, 16, 16, 768},
             biasResidual(f16, f16), shapes(768));
    for (int k : {8, 40, 776, 1600})
      skinny(suite, (tag + " f32 2 groups").c_str(), {f32, f32, rows, 4, 8, k}, everything(f16),
             shapes(k));
    for (int k : {16, 80, 768, 1600})
      skinny(suite, (tag + " i8 w bias").c_str(),
             {.rows = rows, .kSplit = 4, .warps = 4, .k = k, .w = Scalar::I8}, scaledBias(f16),
             shapes(k));
    skinny(suite, (tag + " i8 w bias+residual").c_str(),
           {.rows = rows, .kSplit = 8, .warps = 8, .k = 3072, .w = Scalar::I8},
           {{EpilogueStage::ScaleColumn},
            {EpilogueStage::AddBias, f16},
            {EpilogueStage::AddMatrix, f16}},
           shapes(3072));
    for (int group : {64, 128})
      skinny(suite, (tag + " i8 w in groups of " + std::to_string(group)).c_str(),
             {.rows = rows, .kSplit = 3, .warps = 6, .k = 768, .w = Scalar::I8, .wGroup = group},
             bias(f16), shapes(768));
    if (rows <= 16)
      for (int k : {768, 112})
        skinny(suite, (tag + " i8 w norm bias+gelu").c_str(),
               {.p = f16,
                .rows = rows,
                .kSplit = 6,
                .warps = 6,
                .k = k,
                .norm = FusedNorm::Layer,
                .w = Scalar::I8},
               scaledBias(f16, EpilogueStage::GeluTanh), shapes(k));
    if (rows <= 16)
      for (int k : {768, 104}) {
        skinny(suite, (tag + " f16 norm bias+gelu").c_str(),
               {f16, f16, rows, 8, 8, k, FusedNorm::Layer}, biasGelu(f16, EpilogueStage::GeluTanh),
               shapes(k));
        skinny(suite, (tag + " f32 rms").c_str(), {f32, f32, rows, 8, 8, k, FusedNorm::Rms}, plain,
               shapes(k));
      }
  }
}

//===-- candidates --------------------------------------------------------------------------===//

namespace {
/// Adds a case for a configuration that was listed for a product of that shape; the case is a
/// smaller product of the same K.
struct CandidateCase {
  Suite &suite;
  const std::string &label;
  LinearShape s;
  int k = int(s.k), some = int(std::min<int64_t>(s.rows, 150));

  std::string group(const char *kernel) const {
    // A group is a module, and modules are compiled in parallel.
    return std::string(kernel) + " candidates rows " + std::to_string(s.rows) + " k " +
           std::to_string(k);
  }
  Epilogue epilogue() const { return s.w == Scalar::I8 ? scaledBias(s.x) : bias(s.x); }

  void operator()(const LinearRowDotConfig &c) const {
    fewRows(suite, group("linear_rowdot"), linearRowDot, label.c_str(), c, {c.x, c.w},
            rowDotColumns(c), epilogue(), {{some, 301, k}});
  }
  void operator()(const LinearRowsConfig &c) const {
    rows(suite, group("linear_rows"), label.c_str(), c, epilogue(), {{some, 302, k}});
  }
  void operator()(const LinearClusterConfig &c) const {
    cluster(suite, group("linear_cluster"), label.c_str(), c, epilogue(),
            {{some, c.statistics ? 320 : 302, k}});
  }
  void operator()(const LinearStreamWgmmaConfig &c) const {
    streamWgmma(suite, label.c_str(), c, s.w == Scalar::I8 ? scaledBias(s.x) : plain,
                {{some, 2500, k}});
  }
  void operator()(const LinearStreamConfig &c) const {
    stream(suite, label.c_str(), c, s.w == Scalar::I8 ? scaledBias(s.x) : plain, {{some, 2500, k}});
  }
  void operator()(const LinearSkinnyConfig &c) const {
    fewRows(suite, group("linear_skinny"), linearSkinny, label.c_str(), c, {Scalar::F16, c.w},
            skinnyColumns(c), epilogue(), {{some, 301, k}}, c.wGroup);
  }
  void operator()(const LinearTmaConfig &c) const {
    // Columns that some configurations have to fill.
    const int n = c.statistics || c.bn == 192 ? 2 * c.bn : 301;
    tma(suite, label.c_str(), c, epilogue(), {{some, n, k}});
  }
  void operator()(const LinearTf32Config &c) const {
    tf32(suite, group("linear_tf32"), label.c_str(), c, epilogue(), {{some, 301, k}});
  }
  void operator()(const LinearWgmmaConfig &c) const {
    wgmma(suite, label.c_str(), c, epilogue(), {{some, 301, k}});
  }
  void operator()(const LinearMmaConfig &c) const {
    mma(suite, label.c_str(), c, epilogue(), {{some, 301, k}});
  }
  void operator()(const LinearSimtConfig &c) const {
    simt(suite, label.c_str(), c, epilogue(), {{some, 301, k}});
  }
};
} // namespace

/// Every configuration that the compiler or the tuner takes for a product of GPT-2 124M, from the
/// lists that they choose from.
void addLinearCandidates(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  std::set<std::string> done;
  auto add = [&](LinearShape s, const LinearDuties &duties) {
    s.hopper = true;
    s.sharedLimit = 227 * 1024;
    for (const LinearConfig &c : linearCandidates(s, duties)) {
      std::string label = "candidate " + nameOf(c) + (s.x == f16 ? " f16" : " f32") +
                          (s.w == Scalar::I8 ? " x i8" : "") +
                          (duties.norm != FusedNorm::None ? " norm" : "") +
                          (duties.statistics ? " statistics" : "");
      if (s.rows <= 64)
        label += " rows " + std::to_string(s.rows);
      if (done.insert(label + " " + std::to_string(s.k)).second)
        std::visit(CandidateCase{suite, label, s}, c);
    }
  };
  struct Weights {
    int64_t n, k;
    bool norm;
  };
  for (Weights w : {Weights{2304, 768, true},
                    {3072, 768, true},
                    {768, 768, false},
                    {768, 3072, false},
                    {50257, 768, true}})
    for (int64_t rows : {1, 2, 8, 16, 32, 64, 128, 512, 4096}) {
      const bool vocabulary = w.n > 16384;
      if (vocabulary && rows > 128)
        continue;
      LinearDuties duties;
      if (w.norm)
        duties.norm = FusedNorm::Layer;
      duties.best = vocabulary;
      LinearDuties inSums = duties;
      if (rows > 64 && w.norm)
        inSums.normParts = 8;
      inSums.statistics = rows > 64 && !w.norm;
      duties.gain = f16;
      add({f16, f16, vocabulary ? f32 : f16, w.n, w.k, rows},
          rows > 64 && !vocabulary ? inSums : duties);
      if (rows > 16)
        add({f16, f16, f16, w.n, w.k, rows}, {});
      if (rows <= 128)
        add({f16, Scalar::I8, f16, w.n, w.k, rows}, duties);
      duties.gain = f32;
      const bool few = rows <= (vocabulary ? 4 : 8);
      LinearShape single{f32, f32, f32, w.n, w.k, rows};
      single.tf32 = true;
      add(single, few ? duties : LinearDuties{});
      single.tf32 = false;
      if (!few && !vocabulary)
        add(single, {});
    }
}

} // namespace gpt2c::kernels
