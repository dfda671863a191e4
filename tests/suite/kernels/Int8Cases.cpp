// linear with int8 operands: sums equal an int32 reference bit for bit; scaled, they are near
// float64; quantised results are those of the same kernel without quantisation, quantised.
#include "LinearProblem.h"

namespace gpt2c::kernels {

namespace {
const Scalar f16 = Scalar::F16, f32 = Scalar::F32, i8 = Scalar::I8;

/// What ends a product of quantised rows and weights.
Epilogue dequantised(Epilogue rest = {}) {
  rest.insert(rest.begin(), {{EpilogueStage::ScaleRow}, {EpilogueStage::ScaleColumn}});
  return rest;
}
Epilogue scaledColumns(Epilogue rest = {}) {
  rest.insert(rest.begin(), {{EpilogueStage::ScaleColumn}});
  return rest;
}

template <typename Config>
using Make = KernelSource (*)(llvm::StringRef, const Config &, const Epilogue &);

/// A product of int8 rows and weights in tiles. The scales of groups of x come first.
template <typename Config> struct Tiles {
  int id;
  Config c;

  std::vector<Argument> arguments(const Problem &p, const Tensor *xScale, const Tensor *yScale,
                                  const Tensor *partial, const Tensor *counters) const {
    std::vector<Argument> list = p.arguments();
    if (c.xGroup > 0)
      list.push_back(xScale);
    if (c.yGroup > 0)
      list.push_back(yScale);
    if (c.splitK > 1)
      list.insert(list.end(), {Argument(partial), Argument(counters)});
    p.appendOperands(list);
    return list;
  }
  std::array<unsigned, 3> grid(Shape s) const {
    return {blocks(s.m, c.bm), blocks(s.n, c.bn), (unsigned)c.splitK};
  }
};

template <typename Config>
void product(Suite &suite, const char *group, Make<Config> make, const char *label, Config c,
             Epilogue epilogue, std::vector<Shape> shapes) {
  Tiles<Config> tiles{suite.kernel(group, [&](llvm::StringRef n) { return make(n, c, epilogue); }),
                      c};
  for (Shape s : shapes)
    suite.test(std::string(group) + "/" + label + "/" + text(s), [=](Run &run) {
      Problem p(run, s, i8, i8, c.y, epilogue);
      Tensor xScale, partial = run.output((size_t)c.splitK * s.m * s.n, f32),
                     counters = run.zeroed(4 * blocks(s.m, c.bm) * blocks(s.n, c.bn));
      if (c.xGroup > 0) {
        xScale = randomScales(run, (size_t)s.m * (s.k / c.xGroup));
        std::vector<double> rows = p.x.values;
        for (size_t i = 0; i < rows.size(); ++i)
          rows[i] *= xScale.values[i / c.xGroup];
        p.compute(rows, p.w.values, epilogue, c.y);
      }
      auto arguments = tiles.arguments(p, &xScale, nullptr, &partial, &counters);
      if (epilogue.empty() && c.xGroup == 0)
        p.bound.assign(p.bound.size(), 0); // exact
      check(run, tiles.id, p, tiles.grid(s), arguments, c.y,
            epilogue.empty() && c.xGroup == 0 ? 0 : relative(c.y));
    });
}

/// The same product with a quantised and with a plain result.
template <typename Config>
void quantisedProduct(Suite &suite, const char *group, Make<Config> make, const char *label,
                      Config c, Epilogue epilogue, std::vector<Shape> shapes) {
  Config plainConfig = c;
  plainConfig.y = f32;
  plainConfig.yGroup = 0;
  auto add = [&](const Config &config) {
    return suite.kernel(group, [&](llvm::StringRef n) { return make(n, config, epilogue); });
  };
  Tiles<Config> tiles{add(c), c}, exact{add(plainConfig), plainConfig};
  for (Shape s : shapes)
    suite.test(std::string(group) + "/" + label + "/" + text(s), [=](Run &run) {
      const int groups = s.n / c.yGroup;
      Problem p(run, s, i8, i8, f32, epilogue);
      Tensor xScale = randomScales(run, (size_t)s.m * std::max(1, s.k / std::max(1, c.xGroup)));
      Tensor q = run.output((size_t)s.m * s.n, i8), yScale = run.output((size_t)s.m * groups, f32);
      run.launch(exact.id, exact.grid(s), exact.arguments(p, &xScale, nullptr, nullptr, nullptr));
      std::vector<double> values = run.read(p.y), want(values.size()), scales(yScale.values.size());
      for (size_t g = 0; g < scales.size(); ++g) {
        float largest = 0;
        for (int i = 0; i < c.yGroup; ++i)
          largest = std::max(largest, std::fabs((float)values[g * c.yGroup + i]));
        const float scale = largest == 0 ? 1 : largest / 127.0f, inverse = 1 / scale;
        scales[g] = scale;
        for (int i = 0; i < c.yGroup; ++i)
          want[g * c.yGroup + i] = std::nearbyint((float)values[g * c.yGroup + i] * inverse);
      }
      std::swap(p.y, q);
      run.launch(tiles.id, tiles.grid(s), tiles.arguments(p, &xScale, &yScale, nullptr, nullptr));
      run.expectNear(yScale, scales, 0, {});
      run.expectNear(p.y, want, 0, {});
    });
}

void int8(Suite &suite, const char *label, LinearInt8Config c, Epilogue epilogue,
          std::vector<Shape> shapes) {
  if (c.yGroup > 0)
    quantisedProduct<LinearInt8Config>(suite, "linear_int8", linearInt8, label, c, epilogue,
                                       shapes);
  else
    product<LinearInt8Config>(suite, "linear_int8", linearInt8, label, c, epilogue, shapes);
}
void mma(Suite &suite, const char *label, LinearMmaConfig c, Epilogue epilogue,
         std::vector<Shape> shapes) {
  c.x = i8;
  if (c.yGroup > 0)
    quantisedProduct<LinearMmaConfig>(suite, "linear_mma_int8", linearMma, label, c, epilogue,
                                      shapes);
  else
    product<LinearMmaConfig>(suite, "linear_mma_int8", linearMma, label, c, epilogue, shapes);
}
} // namespace

void addInt8Cases(Suite &suite) {
  const Epilogue gelu = dequantised({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanh}}),
                 residual = scaledColumns(
                     {{EpilogueStage::AddBias, f16}, {EpilogueStage::AddMatrix, f16}});
  const std::vector<Shape> any = {{1, 1, 16}, {17, 33, 80}, {129, 130, 784}, {65, 7, 1600}},
                           sizes = {{128, 768, 768}, {300, 2304, 768}, {200, 768, 3072}};
  std::vector<Shape> all = any;
  all.insert(all.end(), sizes.begin(), sizes.end());
  int8(suite, "128x128 sums", {f32, 128, 128, 3}, plain, all);
  int8(suite, "128x256 sums", {f32, 128, 256, 4}, plain, all);
  int8(suite, "64x128 sums", {f32, 64, 128, 4}, plain, all);
  int8(suite, "64x64 split 2 sums", {f32, 64, 64, 6, 2}, plain, all);
  int8(suite, "128x128 bias+gelu_tanh", {f16, 128, 128, 3}, gelu, all);
  int8(suite, "64x64 bias+gelu_tanh", {f16, 64, 64, 6}, gelu, all);
  int8(suite, "64x64 one scale for x", {f16, 64, 64, 6},
       {{EpilogueStage::ScaleAll}, {EpilogueStage::ScaleColumn}, {EpilogueStage::AddBias, f16}},
       any);
  const std::vector<Shape> in64 = {{1, 1, 64}, {129, 130, 192}, {128, 768, 768}, {65, 33, 1600}},
                           in128 = {{1, 1, 128}, {129, 130, 384}, {200, 768, 3072}};
  int8(suite, "128x128 x in 64 bias+residual", {f16, 128, 128, 4, 1, 64}, residual, in64);
  int8(suite, "64x64 x in 64 f32", {f32, 64, 64, 6, 1, 64}, scaledColumns(), in64);
  int8(suite, "128x128 x in 128 bias+residual", {f16, 128, 128, 3, 1, 128}, residual, in128);
  int8(suite, "64x128 x in 128 bias+residual", {f16, 64, 128, 3, 1, 128}, residual, in128);
  int8(suite, "64x64 split 4 x in 128 bias+residual", {f16, 64, 64, 4, 4, 128}, residual, in128);
  const std::vector<Shape> whole = {{1, 128, 16}, {129, 384, 784}, {300, 3072, 768}};
  int8(suite, "128x128 y in 128 bias+gelu_tanh", {i8, 128, 128, 3, 1, 0, 128}, gelu, whole);
  int8(suite, "64x128 y in 64 bias+gelu_tanh", {i8, 64, 128, 4, 1, 0, 64}, gelu, whole);

  std::vector<Shape> odd = all;
  odd.insert(odd.end(), {{1, 1, 1}, {33, 7, 13}, {3, 129, 770}});
  mma(suite, "64x64x64 sums", {f32, 64, 64, 64, 2, 2, 4}, plain, odd);
  mma(suite, "64x128x64 split 3 bias+gelu_tanh", {f16, 64, 128, 64, 2, 4, 3, 3}, gelu, odd);
  mma(suite, "64x64x64 x in 64 bias+residual", {f16, 64, 64, 64, 2, 2, 3, 1, i8, 64}, residual,
      in64);
  mma(suite, "64x128x64 y in 128 bias+gelu_tanh", {i8, 64, 128, 64, 4, 1, 3, 1, i8, 0, 128}, gelu,
      whole);
}

} // namespace gpt2c::kernels
