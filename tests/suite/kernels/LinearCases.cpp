// linear: kernels of tiles, on tensor cores and plain, against Y = epilogue(X W^T) in float64.
#include "LinearCases.h"

namespace gpt2c::kernels {

namespace {
void norm(std::span<const double> row, std::span<double> to, double epsilon) {
  double mean = 0, square = 0;
  for (double v : row)
    mean += v / row.size();
  for (double v : row)
    square += (v - mean) * (v - mean) / row.size();
  for (size_t i = 0; i < row.size(); ++i)
    to[i] = (row[i] - mean) / std::sqrt(square + epsilon);
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
} // namespace

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
void tma(Suite &suite, const char *label, LinearTmaConfig c, const Epilogue &epilogue,
         const std::vector<Shape> &shapes) {
  for (Shape s : shapes) {
    if ((s.k + 63) / 64 < c.splitK)
      continue;
    c.n = s.n;
    c.k = s.k;
    if (c.normParts > 0)
      c.normWidth = s.k / c.normParts;
    const std::string group =
        (c.w == Scalar::I8 ? "linear_tma_int8_weights " : "linear_tma ") + std::string(label);
    int id =
        suite.kernel(group, [&](llvm::StringRef name) { return tmaKernel(name, c, epilogue); });
    suite.test(
        {group + "/" + text(s), work(s)},
        [=](Run &run) {
          Problem p(run, s, Scalar::F16, c.w, c.y, epilogue);
          const bool int8 = c.w == Scalar::I8;
          const float epsilon = 1e-5f;
          std::vector<double> partsOfX, sums(s.n), shifts(s.n);
          Tensor gain = run.input(int8 ? run.normal(s.k) : std::vector<double>(2), c.p);
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
            // int8 weights are multiplied by the gain, and products have those of the shift added.
            std::vector<double> weights = p.w.values;
            if (int8) {
              for (size_t i = 0; i < weights.size(); ++i)
                weights[i] =
                    rounded(weights[i] * rounded(gain.values[i % s.k], Scalar::F16), Scalar::F16);
              shifts = run.normal(s.n);
            }
            std::vector<double> x((size_t)s.m * (s.k + 1), 1), w((size_t)s.n * (s.k + 1));
            for (int i = 0; i < s.m; ++i)
              std::copy_n(&normed[(size_t)i * s.k], s.k, &x[(size_t)i * (s.k + 1)]);
            for (int j = 0; j < s.n; ++j) {
              std::copy_n(&weights[(size_t)j * s.k], s.k, &w[(size_t)j * (s.k + 1)]);
              w[(size_t)j * (s.k + 1) + s.k] = shifts[j];
              for (int k = 0; k < s.k; ++k)
                sums[j] += weights[(size_t)j * s.k + k];
            }
            p.shape.k += 1;
            p.compute(x, w, epilogue, c.y);
            p.shape.k -= 1;
            // The sums are of elements up to `offset` deviations large, less their mean.
            for (int i = 0; i < s.m; ++i)
              for (int j = 0; j < s.n; ++j) {
                double magnitude = 0;
                for (int k = 0; k < s.k; ++k)
                  magnitude += std::fabs(rows[(size_t)i * s.k + k] * weights[(size_t)j * s.k + k]);
                if (int8) // as far as the scale of a column
                  magnitude *= p.operands[0].values[j];
                p.bound[(size_t)i * s.n + j] += magnitude * 2e-6;
              }
          }
          Tensor xStatistics =
                     run.input(partsOfX.empty() ? std::vector<double>(2) : partsOfX, Scalar::F32),
                 rowSums = run.input(sums, Scalar::F32), shiftSums = run.input(shifts, Scalar::F32);
          const int width = statisticsWidth(c);
          Tensor yStatistics = run.output((size_t)s.m * 2 * blocks(s.n, width), Scalar::F32);
          std::vector<Argument> arguments = {MapOf{&p.x, s.m, s.k, c.bm},
                                             MapOf{&p.w, s.n, int8 ? s.k / 2 : s.k, c.bn}};
          const bool byMap = takesResidualByMap(c, epilogue);
          if (byMap)
            arguments.push_back(MapOf{&p.operands.back(), s.m, s.n, c.bm});
          arguments.insert(arguments.end(), {&p.y, s.m});
          if (c.persistent)
            arguments.push_back(s.m % 2); // backwards
          if (int8 && c.normParts > 0)
            arguments.insert(arguments.end(), {&gain, &xStatistics, &rowSums, &shiftSums, epsilon});
          p.appendOperands(arguments);
          if (byMap)
            arguments.pop_back();
          if (!int8 && c.normParts > 0)
            arguments.insert(arguments.end(), {&xStatistics, &rowSums, epsilon});
          if (c.statistics)
            arguments.push_back(&yStatistics);
          unsigned tilesM = blocks(s.m, c.bm), tilesN = blocks(s.n, c.bn);
          std::array<unsigned, 3> grid = {tilesM, tilesN, (unsigned)c.splitK};
          if (c.columnsFirst)
            std::swap(grid[0], grid[1]);
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
    return tiled(suite, group, tf32Kernel, label, c, {Scalar::F32, Scalar::F32, c.y}, epilogue,
                 shapes);
  int id = suite.kernel(group + " wgmma",
                        [&](llvm::StringRef name) { return tf32Kernel(name, c, epilogue); });
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
  tma(suite, "64x48 f16 bias+last rows", {f16, 64, 48, 7, 1, 2}, biasLastRows(f16), uneven);
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
  tma(suite, "persistent 128 f16 norm bias+gelu_tanh", normed({f16, 128, 128, 6, 1, 1, true}),
      biasGelu(f16, EpilogueStage::GeluTanhHalf), widths);
  tma(suite, "64x48 f16 bias+residual statistics", counted({f16, 64, 48, 7, 1, 2}),
      biasResidual(f16, f16), widths);
  tma(suite, "64x48 f16 split 3 bias+residual statistics", counted({f16, 64, 48, 7, 3, 1}),
      biasResidual(f16, f16), widths);
  tma(suite, "128x96 f16 split 2 bias+residual statistics", counted({f16, 128, 96, 6, 2, 1}),
      biasResidual(f16, f16), widths);
  tma(suite, "128x192 f16 bias+residual statistics", counted({f16, 128, 192, 5, 1, 1}),
      biasResidual(f16, f16), widths);
  tma(suite, "persistent 192 f16 bias+residual statistics", counted({f16, 128, 192, 5, 1, 1, true}),
      biasResidual(f16, f16), widths);
  tma(suite, "persistent 128 f16 bias+residual statistics", counted({f16, 128, 128, 6, 1, 1, true}),
      biasResidual(f16, f16), {{1, 128, 64}, {500, 768, 768}});
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

} // namespace gpt2c::kernels
