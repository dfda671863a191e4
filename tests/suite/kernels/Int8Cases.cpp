// linear with int8 operands: sums equal an int32 reference bit for bit; scaled, they are near
// float64; quantised results are those of the same kernel without quantisation, quantised, with
// scales of groups or with one that is given.
#include "LinearCases.h"

#include "templates/norm/Norm.h"
#include "templates/quantize/Quantize.h"

#include <set>
#include <type_traits>

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

/// A product of int8 rows and weights in tiles. The scales of rows, or of groups of them, come
/// first.
template <typename Config> struct Tiles {
  static constexpr bool maps = std::is_same_v<Config, LinearInt8TmaConfig>;
  int id;
  Config c;

  /// Scales of a row.
  int scales(Shape s) const {
    if constexpr (maps)
      if (c.rowScale)
        return 1;
    return c.xGroup > 0 ? s.k / c.xGroup : 0;
  }
  std::vector<Argument> arguments(const Problem &p, const Tensor *xScale, const Tensor *yScale,
                                  const Tensor *partial, const Tensor *counters) const {
    std::vector<Argument> list = p.arguments();
    if constexpr (maps) { // in halves
      list[0] = MapOf{&p.x, p.shape.m, p.shape.k / 2, c.bm};
      list[1] = MapOf{&p.w, p.shape.n, p.shape.k / 2, c.bn};
      list.resize(4); // the kernel knows n and k
      if (c.residual)
        list.insert(list.begin() + 2, MapOf{&p.operands.back(), p.shape.m, p.shape.n, c.bm});
    }
    if (scales(p.shape) > 0)
      list.push_back(xScale);
    if (c.yGroup > 0)
      list.push_back(yScale);
    if (c.splitK > 1 && !maps)
      list.insert(list.end(), {Argument(partial), Argument(counters)});
    p.appendOperands(list);
    if constexpr (maps)
      if (c.residual)
        list.pop_back(); // the map stands for it
    return list;
  }
  std::array<unsigned, 3> grid(Shape s) const {
    unsigned tilesM = blocks(s.m, c.bm), tilesN = blocks(s.n, c.bn);
    if constexpr (maps)
      if (c.stationary)
        return {tilesM, (unsigned)c.parts, 1};
    return {tilesM, tilesN, (unsigned)c.splitK};
  }
};

template <typename Config>
void product(Suite &suite, const std::string &group, Make<Config> make, const char *label, Config c,
             const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  Epilogue inKernel = epilogue;
  if constexpr (Tiles<Config>::maps)
    if (c.residual)
      inKernel.pop_back();
  Tiles<Config> tiles{suite.kernel(group, [&](llvm::StringRef n) { return make(n, c, inKernel); }),
                      c};
  for (Shape s : shapes) {
    const int scales = tiles.scales(s);
    suite.test(
        {group + "/" + label + "/" + text(s), work(s)},
        [=](Run &run) {
          Problem p(run, s, i8, i8, c.y, epilogue);
          Tensor xScale, partial = run.output((size_t)c.splitK * s.m * s.n, f32),
                         counters = run.zeroed(4 * blocks(s.m, c.bm) * blocks(s.n, c.bn));
          if (scales > 0) {
            xScale = randomScales(run, (size_t)s.m * scales);
            std::vector<double> rows = p.x.values;
            for (size_t i = 0; i < rows.size(); ++i)
              rows[i] *= xScale.values[i / (s.k / scales)];
            p.compute(rows, p.w.values, epilogue, c.y);
          }
          auto arguments = tiles.arguments(p, &xScale, nullptr, &partial, &counters);
          if (epilogue.empty() && scales == 0)
            p.bound.assign(p.bound.size(), 0); // exact
          check(run, tiles.id, p, tiles.grid(s), arguments, c.y,
                epilogue.empty() && scales == 0 ? 0 : relative(c.y));
        },
        Tiles<Config>::maps);
  }
}

/// The same product with a quantised and with a plain result.
template <typename Config>
void quantisedProduct(Suite &suite, const std::string &group, Make<Config> make, const char *label,
                      Config c, const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  Config plainConfig = c;
  plainConfig.y = f32;
  plainConfig.yGroup = 0;
  bool nearly = false; // gelu and what follows are in fp16
  if constexpr (Tiles<Config>::maps) {
    nearly = c.gelu;
    plainConfig.gelu = false;
  }
  Epilogue plainEpilogue = epilogue;
  if (nearly)
    plainEpilogue.push_back({EpilogueStage::GeluTanhHalf});
  auto add = [&](const Config &config, const Epilogue &end) {
    return suite.kernel(group, [&](llvm::StringRef n) { return make(n, config, end); });
  };
  Tiles<Config> tiles{add(c, epilogue), c}, exact{add(plainConfig, plainEpilogue), plainConfig};
  auto body = [=](Shape s) {
    return [=](Run &run) {
      const int groups = s.n / c.yGroup;
      Problem p(run, s, i8, i8, f32, epilogue);
      Tensor xScale = randomScales(run, (size_t)s.m * std::max(1, tiles.scales(s)));
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
      if (nearly) {
        std::vector<double> got = run.read(p.y), gotScales = run.read(yScale);
        double worst = 0; // in steps, of which rounding takes a half
        for (size_t i = 0; i < got.size(); ++i) {
          const double step = scales[i / c.yGroup];
          worst = std::max(worst, std::fabs(got[i] * gotScales[i / c.yGroup] - values[i]) / step);
        }
        run.worst = std::max(run.worst, worst / 0.75);
        run.expect(worst <= 0.75, "off by " + std::to_string(worst) + " steps");
        return;
      }
      run.expectNear(yScale, scales, 0, {});
      run.expectNear(p.y, want, 0, {});
    };
  };
  for (Shape s : shapes)
    suite.test({group + "/" + label + "/" + text(s), work(s)}, body(s), Tiles<Config>::maps);
}

/// The same with one scale that is given, as the last stage of the epilogue.
template <typename Config>
void givenProduct(Suite &suite, const std::string &group, Make<Config> make, const char *label,
                  Config c, const Epilogue &epilogue, Given given,
                  const std::vector<Shape> &shapes) {
  Config plainConfig = c;
  plainConfig.y = f32;
  Epilogue plainEpilogue = epilogue, end = epilogue;
  bool nearly = false; // gelu and what follows are in fp16
  if constexpr (Tiles<Config>::maps) {
    nearly = c.gelu;
    plainConfig.gelu = false;
    plainConfig.given = Given::None;
  }
  if (nearly)
    plainEpilogue.push_back({EpilogueStage::GeluTanhHalf});
  else
    end.push_back({given == Given::Scale ? EpilogueStage::QuantiseByScale
                                         : EpilogueStage::QuantiseByScaleAndZero});
  auto add = [&](const Config &config, const Epilogue &e) {
    return suite.kernel(group, [&](llvm::StringRef n) { return make(n, config, e); });
  };
  Tiles<Config> exact{add(plainConfig, plainEpilogue), plainConfig}, tiles{add(c, end), c};
  for (Shape s : shapes)
    suite.test(
        {group + "/" + label + (given == Given::Scale ? " given" : " given with zero") + "/" +
             text(s),
         work(s)},
        [=](Run &run) {
          Problem p(run, s, i8, i8, f32, epilogue);
          Tensor xScale = randomScales(run, (size_t)s.m * std::max(1, tiles.scales(s)));
          Tensor q = run.output((size_t)s.m * s.n, i8);
          Tensor partial = run.output((size_t)c.splitK * s.m * s.n, f32),
                 counters = run.zeroed(4 * blocks(s.m, c.bm) * blocks(s.n, c.bn));
          run.launch(exact.id, exact.grid(s),
                     exact.arguments(p, &xScale, nullptr, &partial, &counters));
          std::vector<double> want = run.read(p.y);
          for (double &v : want)
            v = nearly ? givenValue(given, v) : givenInteger(given, v);
          std::swap(p.y, q);
          std::vector<Argument> arguments =
              tiles.arguments(p, &xScale, nullptr, &partial, &counters);
          appendGiven(given, arguments);
          run.launch(tiles.id, tiles.grid(s), arguments);
          run.expectNear(p.y, want, 0, std::vector<double>(nearly ? want.size() : 0, 0.75));
        },
        Tiles<Config>::maps);
}

void int8(Suite &suite, const char *label, LinearInt8Config c, const Epilogue &epilogue,
          const std::vector<Shape> &shapes) {
  if (c.yGroup > 0)
    quantisedProduct<LinearInt8Config>(suite, "linear_int8", linearInt8, label, c, epilogue,
                                       shapes);
  else
    product<LinearInt8Config>(suite, "linear_int8", linearInt8, label, c, epilogue, shapes);
}
void int8Tma(Suite &suite, const char *label, LinearInt8TmaConfig c, const Epilogue &epilogue,
             const std::vector<Shape> &shapes) {
  // A module for each tile: they compile in parallel.
  const std::string group =
      std::string(c.stationary ? "linear_int8_stationary_" : "linear_int8_tma_") +
      std::to_string(c.bm) + "x" + std::to_string(c.bn);
  for (Shape s : shapes) {
    c.n = s.n;
    c.k = s.k;
    if (c.yGroup > 0)
      quantisedProduct<LinearInt8TmaConfig>(suite, group, int8TmaKernel, label, c, epilogue, {s});
    else
      product<LinearInt8TmaConfig>(suite, group, int8TmaKernel, label, c, epilogue, {s});
  }
}
void int8Mma(Suite &suite, const char *label, LinearMmaConfig c, const Epilogue &epilogue,
             const std::vector<Shape> &shapes) {
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

  const Epilogue scaledGelu =
                     scaledColumns({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanh}}),
                 approxGelu =
                     scaledColumns({{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanhHalf}});
  const std::vector<Shape> deep = {{130, 192, 3072}, {65, 96, 784}};
  int8Tma(suite, "64x48 sums", {.y = f32, .bm = 64, .bn = 48, .stages = 6}, plain, all);
  int8Tma(suite, "64x144 bias+gelu_tanh", {.bm = 64, .bn = 144, .rowScale = true}, scaledGelu, all);
  int8Tma(suite, "128x192 bias+residual", {.bn = 192, .rowScale = true}, residual, all);
  int8Tma(suite, "64x64 split 4 bias+residual",
          {.bm = 64, .bn = 64, .stages = 6, .splitK = 4, .rowScale = true}, residual, deep);
  int8Tma(suite, "64x48 x in 64 bias+residual", {.bm = 64, .bn = 48, .stages = 6, .xGroup = 64},
          residual, in64);
  int8Tma(suite, "64x96 x in 128 bias+residual", {.bm = 64, .bn = 96, .stages = 6, .xGroup = 128},
          residual, in128);
  int8Tma(suite, "64x64 split 4 x in 128 f32",
          {.y = f32, .bm = 64, .bn = 64, .stages = 3, .splitK = 4, .xGroup = 128}, scaledColumns(),
          {{130, 192, 3072}});
  int8Tma(suite, "128x96 x in 64 f32", {.y = f32, .bn = 96, .xGroup = 64}, scaledColumns(), in64);
  int8Tma(suite, "128x192 x in 64 bias+residual", {.bn = 192, .xGroup = 64}, residual, in64);
  int8Tma(suite, "128x192 x in 128 bias+residual", {.bn = 192, .xGroup = 128}, residual, in128);
  const std::vector<Shape> columns192 = {{1, 192, 128}, {129, 384, 384}, {300, 768, 768}};
  int8Tma(suite, "64x64 residual by map", {.bm = 64, .bn = 64, .rowScale = true, .residual = true},
          residual, columns192);
  int8Tma(suite, "64x64 x in 128 residual by map",
          {.bm = 64, .bn = 64, .stages = 6, .xGroup = 128, .residual = true}, residual, columns192);
  int8Tma(suite, "128x192 x in 64 residual by map", {.bn = 192, .xGroup = 64, .residual = true},
          residual, columns192);
  int8Tma(suite, "64x128 y in 128 bias+gelu_tanh",
          {.y = i8, .bm = 64, .yGroup = 128, .rowScale = true}, scaledGelu, whole);
  int8Tma(suite, "128x128 y in 64 bias+gelu_tanh", {.y = i8, .yGroup = 64, .rowScale = true},
          scaledGelu, whole);
  int8Tma(suite, "64x128 x in 128 y in 128 bias",
          {.y = i8, .bm = 64, .stages = 3, .xGroup = 128, .yGroup = 128},
          scaledColumns({{EpilogueStage::AddBias, f16}}), {{1, 128, 128}, {130, 384, 3072}});
  const Epilogue scaledBias = scaledColumns({{EpilogueStage::AddBias, f16}});
  int8Tma(suite, "128x128 y in 128 bias+gelu_tanh in fp16",
          {.y = i8, .yGroup = 128, .rowScale = true, .gelu = true}, scaledBias, whole);
  int8Tma(suite, "64x192 y in 64 bias+gelu_tanh in fp16",
          {.y = i8, .bm = 64, .bn = 192, .stages = 3, .yGroup = 64, .rowScale = true, .gelu = true},
          scaledBias, whole);
  auto stationary = [&](const char *label, LinearInt8TmaConfig c, const Epilogue &epilogue) {
    c.stationary = true;
    for (int rows : {1, 129, 500})
      int8Tma(suite, label, c, epilogue, {{rows, c.n, c.k}});
  };
  stationary("128 sums", {.y = f32, .stages = 2, .n = 384, .k = 16, .parts = 3}, plain);
  stationary("128 bias+residual parts of different sizes",
             {.stages = 3, .rowScale = true, .n = 640, .k = 784, .parts = 3}, residual);
  stationary("96 bias+gelu_tanh", {.bn = 96, .rowScale = true, .n = 768, .k = 768, .parts = 3},
             scaledGelu);
  stationary("96 f32 bias", {.y = f32, .bn = 96, .stages = 3, .n = 576, .k = 208}, scaledBias);
  stationary("144 bias", {.bn = 144, .stages = 5, .rowScale = true, .n = 720, .k = 768},
             scaledBias);
  stationary("96 bias", {.bn = 96, .stages = 7, .rowScale = true, .n = 1152, .k = 768, .parts = 2},
             scaledBias);
  stationary("80 bias", {.bn = 80, .stages = 2, .rowScale = true, .n = 560, .k = 400}, scaledBias);
  stationary("128 y in 64 bias+gelu_tanh",
             {.y = i8, .stages = 5, .yGroup = 64, .rowScale = true, .n = 384, .k = 768},
             scaledGelu);
  stationary("128 y in 128 bias+gelu_tanh in fp16",
             {.y = i8,
              .stages = 7,
              .yGroup = 128,
              .rowScale = true,
              .gelu = true,
              .n = 3072,
              .k = 768,
              .parts = 4},
             scaledBias);
  stationary("64 y in 64 bias+gelu_tanh in fp16",
             {.y = i8,
              .bn = 64,
              .stages = 6,
              .yGroup = 64,
              .rowScale = true,
              .gelu = true,
              .n = 448,
              .k = 208,
              .parts = 2},
             scaledBias);

  // All that the compiler or the tuner takes for a product of GPT-2 124M.
  std::set<std::string> done;
  for (auto [n, k] : {std::pair(2304, 768), {768, 768}, {3072, 768}, {768, 3072}})
    for (int rows : {64, 128, 512, 1024, 4096})
      for (auto [xGroup, yGroup] : {std::pair(0, 0), {0, 128}, {64, 0}, {128, 0}}) {
        LinearProblem p(LinearShape{i8, i8, yGroup > 0 ? i8 : f16, n, k, rows});
        p.target = Target::of({"sm_90a"});
        p.int8 = {.group = xGroup, .yGroup = yGroup, .residual = yGroup == 0};
        for (LinearInt8TmaConfig c : int8TmaCandidates(p)) {
          c.parts = std::min(c.parts, 2); // no matter of the kernel
          const std::string label = "candidate " + nameOf(c) + " x in " + std::to_string(xGroup) +
                                    " y in " + std::to_string(yGroup);
          if (done.insert(label + std::to_string(k)).second)
            int8Tma(suite, label.c_str(), c, yGroup > 0 ? scaledGelu : residual,
                    {{150,
                      c.stationary || c.residual ? n
                      : yGroup > 0               ? 384
                                                 : 301,
                      k}});
        }
      }

  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    auto byScale = [&](const char *label, LinearInt8TmaConfig c, const Epilogue &epilogue,
                       const std::vector<Shape> &shapes) {
      const std::string group = std::string("linear_int8_given_") +
                                (c.stationary ? "stationary_" : "tma_") + std::to_string(c.bm) +
                                "x" + std::to_string(c.bn);
      c.y = i8;
      for (Shape s : shapes) {
        c.n = s.n;
        c.k = s.k;
        givenProduct<LinearInt8TmaConfig>(suite, group, int8TmaKernel, label, c, epilogue, given,
                                          {s});
      }
    };
    byScale("bias+gelu_tanh", {.bm = 64, .bn = 48, .stages = 6, .rowScale = true}, approxGelu, all);
    byScale("bias", {.bm = 64, .bn = 64, .stages = 6, .splitK = 4, .rowScale = true}, scaledBias,
            deep);
    byScale("bias+gelu_tanh", {.bn = 192, .rowScale = true}, approxGelu, all);
    byScale("x in 64 bias", {.bm = 64, .bn = 96, .stages = 6, .xGroup = 64}, scaledBias, in64);
    for (int bn : {80, 96, 128, 144})
      for (int rows : {1, 300}) {
        LinearInt8TmaConfig c{
            .bn = bn, .stages = 2, .rowScale = true, .stationary = true, .parts = 2};
        byScale("bias+gelu_tanh", c, approxGelu, {{rows, 5 * bn, 784}});
        c.gelu = true;
        c.given = given;
        byScale("bias+gelu_tanh in fp16", c, scaledBias, {{rows, 5 * bn, 784}});
      }
    for (int bn : {48, 144})
      byScale("bias+gelu_tanh in fp16",
              {.bm = 64, .bn = bn, .rowScale = true, .gelu = true, .given = given}, scaledBias,
              {{1, 8, 16}, {129, 136, 784}, {300, 2304, 768}});
    givenProduct<LinearInt8Config>(suite, "linear_int8_given", linearInt8, "128x128 bias+gelu_tanh",
                                   {i8, 128, 128, 3}, gelu, given, all);
    givenProduct<LinearInt8Config>(suite, "linear_int8_given", linearInt8,
                                   "64x64 split 2 bias+gelu_tanh", {i8, 64, 64, 6, 2}, gelu, given,
                                   all);
    givenProduct<LinearMmaConfig>(suite, "linear_mma_int8_given", linearMma,
                                  "64x64x64 bias+gelu_tanh", {i8, 64, 64, 64, 2, 2, 4, 1, i8}, gelu,
                                  given, {{1, 1, 1}, {33, 7, 13}, {129, 130, 784}, {70, 96, 203}});
  }

  std::vector<Shape> odd = all;
  odd.insert(odd.end(), {{1, 1, 1}, {33, 7, 13}, {3, 129, 770}});
  int8Mma(suite, "64x64x64 sums", {f32, 64, 64, 64, 2, 2, 4}, plain, odd);
  int8Mma(suite, "64x128x64 split 3 bias+gelu_tanh", {f16, 64, 128, 64, 2, 4, 3, 3}, gelu, odd);
  int8Mma(suite, "64x64x64 x in 64 bias+residual", {f16, 64, 64, 64, 2, 2, 3, 1, i8, 64}, residual,
          in64);
  int8Mma(suite, "64x128x64 y in 128 bias+gelu_tanh", {i8, 64, 128, 64, 4, 1, 3, 1, i8, 0, 128},
          gelu, whole);
}

} // namespace gpt2c::kernels
