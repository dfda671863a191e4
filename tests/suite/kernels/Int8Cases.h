// What tests of products with int8 and fp8 operands share. Sums of int8 equal an int32 reference
// bit for bit; scaled, and of fp8, they are near float64; quantised results are those of the same
// kernel without quantisation, quantised, with scales of groups or with one that is given.
#pragma once

#include "LinearCases.h"

#include "ir/ops/Quantize.h"
#include "templates/linear/parts/Int8TmaTiles.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <set>
#include <type_traits>

namespace gpt2c::kernels {

inline Epilogue scaledColumns(Epilogue rest = {}) {
  rest.insert(rest.begin(), {{EpilogueStage::ScaleColumn}});
  return rest;
}
/// What ends a product of quantised rows and weights.
inline Epilogue dequantisedGelu() {
  return {{EpilogueStage::ScaleRow},
          {EpilogueStage::ScaleColumn},
          {EpilogueStage::AddBias, Scalar::F16},
          {EpilogueStage::GeluTanh}};
}
inline Epilogue scaledResidual() {
  return scaledColumns(
      {{EpilogueStage::AddBias, Scalar::F16}, {EpilogueStage::AddMatrix, Scalar::F16}});
}

inline std::vector<Shape> oddInt8Shapes() {
  return {{1, 1, 16}, {17, 33, 80}, {129, 130, 784}, {65, 7, 1600}};
}
/// Those and whole layers.
inline std::vector<Shape> int8Shapes() {
  std::vector<Shape> shapes = oddInt8Shapes();
  shapes.insert(shapes.end(), {{128, 768, 768}, {300, 2304, 768}, {200, 768, 3072}});
  return shapes;
}
/// Groups of 64, or 128, elements divide K.
inline std::vector<Shape> groupsOf64() {
  return {{1, 1, 64}, {129, 130, 192}, {128, 768, 768}, {65, 33, 1600}};
}
inline std::vector<Shape> groupsOf128() { return {{1, 1, 128}, {129, 130, 384}, {200, 768, 3072}}; }
/// Groups of 64 and 128 columns divide N.
inline std::vector<Shape> wholeGroups() {
  return {{1, 128, 16}, {129, 384, 784}, {300, 3072, 768}};
}

/// What rows and weights are stored in.
template <typename Config> Scalar operandsOf(const Config &c) {
  if constexpr (requires { c.x; })
    return c.x;
  else
    return Scalar::I8;
}

/// A product of quantised rows and weights in tiles. `maps`: the kernel reads them by tensor maps.
template <typename Config> struct Int8Tiles {
  static constexpr bool maps = std::is_constructible_v<Int8TmaTile, Config>;
  int id;
  Config c;

  /// Scales of a row that the kernel applies.
  int scales(Shape s) const {
    if constexpr (maps)
      if (c.rowScale)
        return 1;
    return c.xGroup > 0 ? s.k / c.xGroup : 0;
  }
  Arguments arguments(const Problem &p, const Tensor *xScale, const Tensor *yScale,
                      const SplitK *scratch) const {
    Arguments list;
    if constexpr (maps) {
      list = p.mapped(c.bm, c.bn, p.shape.k / 2, p.shape.k / 2);
      if (c.residual)
        p.mapLast(list, "rMap", c.bm);
    } else {
      list = p.arguments();
      if (scratch)
        scratch->addTo(list);
    }
    if (scales(p.shape) > 0)
      list.set("xScale", xScale);
    if (c.yGroup > 0)
      list.set("yScale", yScale);
    return list;
  }
};

/// Cases of a kernel whose result is not quantised.
template <typename Config>
void plainInt8(Suite &suite, const std::string &group, MakeKernel<Config> make,
               const std::string &label, const Config &c, const Epilogue &epilogue,
               const std::vector<Shape> &shapes) {
  Epilogue inKernel = epilogue;
  if constexpr (Int8Tiles<Config>::maps)
    if (c.residual)
      inKernel.pop_back();
  Int8Tiles<Config> tiles{
      suite.kernel(group, [&](llvm::StringRef n) { return make(n, c, inKernel); }), c};
  for (Shape s : shapes) {
    const int scales = tiles.scales(s);
    suite.test(
        caseOf(group, label, s),
        [=](Run &run) {
          const Scalar x = operandsOf(c);
          Problem p(run, s, x, x, c.y, epilogue);
          Tensor xScale;
          const SplitK scratch(run, s, c);
          if (scales > 0) {
            xScale = randomScales(run, (size_t)s.m * scales);
            std::vector<double> rows = p.x.values;
            for (size_t i = 0; i < rows.size(); ++i)
              rows[i] *= xScale.values[i / (s.k / scales)];
            p.compute(rows, p.w.values, epilogue, c.y);
          }
          const bool exact = epilogue.empty() && scales == 0 && x == Scalar::I8;
          if (exact)
            p.bound.assign(p.bound.size(), 0);
          check(run, tiles.id, p, gridOfRounds(c, s),
                tiles.arguments(p, &xScale, nullptr, &scratch), c.y, exact ? 0 : relative(c.y));
        },
        Int8Tiles<Config>::maps);
  }
}

/// The same product with a quantised and with a plain result.
template <typename Config>
void quantisedInt8(Suite &suite, const std::string &group, MakeKernel<Config> make,
                   const std::string &label, const Config &c, const Epilogue &epilogue,
                   const std::vector<Shape> &shapes) {
  Config plainConfig = c;
  plainConfig.y = Scalar::F32;
  plainConfig.yGroup = 0;
  bool nearly = false; // gelu and what follows are in fp16
  if constexpr (Int8Tiles<Config>::maps) {
    nearly = c.gelu;
    plainConfig.gelu = false;
  }
  Epilogue plainEpilogue = epilogue;
  if (nearly)
    plainEpilogue.push_back({EpilogueStage::GeluTanhHalf});
  auto add = [&](const Config &config, const Epilogue &end) {
    return suite.kernel(group, [&](llvm::StringRef n) { return make(n, config, end); });
  };
  Int8Tiles<Config> tiles{add(c, epilogue), c}, exact{add(plainConfig, plainEpilogue), plainConfig};
  auto body = [=](Shape s) {
    return [=](Run &run) {
      const int groups = s.n / c.yGroup;
      const Scalar x = operandsOf(c);
      Problem p(run, s, x, x, Scalar::F32, epilogue);
      Tensor xScale = randomScales(run, (size_t)s.m * std::max(1, tiles.scales(s)));
      Tensor q = run.output((size_t)s.m * s.n, x),
             yScale = run.output((size_t)s.m * groups, Scalar::F32);
      run.launch(exact.id, gridOfRounds(exact.c, s), exact.arguments(p, &xScale, nullptr, nullptr));
      std::vector<double> values = run.read(p.y), want(values.size()), scales(yScale.values.size());
      for (size_t g = 0; g < scales.size(); ++g) {
        float largest = 0;
        for (int i = 0; i < c.yGroup; ++i)
          largest = std::max(largest, std::fabs((float)values[g * c.yGroup + i]));
        const float scale = largest == 0 ? 1 : largest / stepsOf(x), inverse = 1 / scale;
        scales[g] = scale;
        for (int i = 0; i < c.yGroup; ++i) {
          const float steps = (float)values[g * c.yGroup + i] * inverse;
          want[g * c.yGroup + i] =
              x == Scalar::I8 ? std::nearbyint(steps) : fp8ToFloat(floatToFp8(steps));
        }
      }
      std::swap(p.y, q);
      run.launch(tiles.id, gridOfRounds(c, s), tiles.arguments(p, &xScale, &yScale, nullptr));
      if (nearly) {
        std::vector<double> got = run.read(p.y), gotScales = run.read(yScale);
        double worst = 0; // of what rounding may change, and gelu, a quarter of a step of int8
        for (size_t i = 0; i < got.size(); ++i) {
          const double scale = scales[i / c.yGroup],
                       allowed = halfStep(x, values[i] / scale) + 0.25 * stepsOf(x) / int8Steps,
                       error = std::fabs(got[i] * gotScales[i / c.yGroup] - values[i]) / scale;
          worst = std::max(worst, error / allowed);
        }
        run.worst = std::max(run.worst, worst);
        run.expect(worst <= 1, "off by " + std::to_string(worst) + " times what may be");
        return;
      }
      run.expectNear(yScale, scales, 0, {});
      run.expectNear(p.y, want, 0, {});
    };
  };
  for (Shape s : shapes)
    suite.test(caseOf(group, label, s), body(s), Int8Tiles<Config>::maps);
}

/// The same with one scale that is given, as the last stage of the epilogue.
template <typename Config>
void givenProduct(Suite &suite, const std::string &group, MakeKernel<Config> make,
                  const std::string &label, const Config &c, const Epilogue &epilogue, Given given,
                  const std::vector<Shape> &shapes) {
  Config plainConfig = c;
  plainConfig.y = Scalar::F32;
  Epilogue plainEpilogue = epilogue, end = epilogue;
  bool nearly = false; // gelu and what follows are in fp16
  if constexpr (Int8Tiles<Config>::maps) {
    nearly = c.gelu;
    plainConfig.gelu = false;
    plainConfig.given = Given::None;
  }
  if (nearly)
    plainEpilogue.push_back({EpilogueStage::GeluTanhHalf});
  else
    end.push_back({stageOf(given)});
  auto add = [&](const Config &config, const Epilogue &e) {
    return suite.kernel(group, [&](llvm::StringRef n) { return make(n, config, e); });
  };
  Int8Tiles<Config> exact{add(plainConfig, plainEpilogue), plainConfig}, tiles{add(c, end), c};
  for (Shape s : shapes)
    suite.test(
        caseOf(group, label + (given == Given::ScaleAndZero ? " given with zero" : " given"), s),
        [=](Run &run) {
          const Scalar x = operandsOf(c);
          Problem p(run, s, x, x, Scalar::F32, epilogue);
          Tensor xScale = randomScales(run, (size_t)s.m * std::max(1, tiles.scales(s)));
          Tensor q = run.output((size_t)s.m * s.n, x);
          const SplitK scratch(run, s, c);
          run.launch(exact.id, gridOfRounds(exact.c, s),
                     exact.arguments(p, &xScale, nullptr, &scratch));
          std::vector<double> want = run.read(p.y);
          for (double &v : want)
            v = nearly ? givenValue(given, v) : givenInteger(given, v);
          std::swap(p.y, q);
          Arguments arguments = tiles.arguments(p, &xScale, nullptr, &scratch);
          setGiven(given, arguments);
          run.launch(tiles.id, gridOfRounds(c, s), arguments);
          run.expectNear(p.y, want, 0, std::vector<double>(nearly ? want.size() : 0, 0.75));
        },
        Int8Tiles<Config>::maps);
}

/// Cases of a kernel, whose result is quantised where its config says so.
template <typename Config>
void int8Product(Suite &suite, const std::string &group, MakeKernel<Config> make,
                 const std::string &label, const Config &c, const Epilogue &epilogue,
                 const std::vector<Shape> &shapes) {
  if (c.yGroup > 0)
    quantisedInt8(suite, group, make, label, c, epilogue, shapes);
  else
    plainInt8(suite, group, make, label, c, epilogue, shapes);
}

template <typename Config> std::string tileOf(const Config &c) {
  return std::to_string(c.bm) + "x" + std::to_string(c.bn);
}

/// The same for the kernels by tensor maps: a kernel for each shape, and a module for each tile,
/// since they compile in parallel.
template <typename Config>
void int8Tma(Suite &suite, MakeKernel<Config> make, const std::string &kernel,
             const std::string &label, Config c, const Epilogue &epilogue,
             const std::vector<Shape> &shapes) {
  for (Shape s : shapes) {
    c.n = s.n;
    c.k = s.k;
    int8Product(suite, kernel + "_" + tileOf(c), make, label, c, epilogue, {s});
  }
}
/// A result quantised by a scale that is given.
template <typename Config>
void int8TmaByScale(Suite &suite, MakeKernel<Config> make, const std::string &kernel,
                    const std::string &label, Config c, const Epilogue &epilogue, Given given,
                    const std::vector<Shape> &shapes) {
  c.y = operandsOf(c);
  for (Shape s : shapes) {
    c.n = s.n;
    c.k = s.k;
    givenProduct(suite, kernel + "_" + tileOf(c), make, label, c, epilogue, given, {s});
  }
}

/// Calls `add` with products of GPT-2 124M and 1.5B, of int8 and then of fp8.
void forInt8Products(llvm::function_ref<void(const LinearProblem &)> add);
/// All that the compiler or the tuner takes of one of them for such a product.
template <typename Config>
void int8TmaCandidateCases(Suite &suite, MakeKernel<Config> make, const std::string &kernel) {
  const Epilogue gelu =
      scaledColumns({{EpilogueStage::AddBias, Scalar::F16}, {EpilogueStage::GeluTanh}});
  std::set<std::string> done;
  forInt8Products([&](const LinearProblem &p) {
    const bool quantised = p.int8.yGroup > 0;
    const int k = int(p.k);
    for (Config c : only<Config>(int8TmaCandidates(p))) {
      if constexpr (requires { c.parts; })
        c.parts = std::min(c.parts, 2); // no matter of the kernel
      const std::string label = "candidate " + nameOf(c) + (p.x == Scalar::I8 ? "" : " fp8") +
                                " x in " + std::to_string(p.int8.group) + " y in " +
                                std::to_string(p.int8.yGroup);
      const bool whole = !std::is_same_v<Config, LinearInt8TmaConfig> || c.residual;
      if (done.insert(label + std::to_string(k)).second)
        int8Tma(suite, make, kernel, label, c, quantised ? gelu : scaledResidual(),
                {{150,
                  whole       ? int(p.n)
                  : quantised ? 384
                              : 301,
                  k}});
    }
  });
}

} // namespace gpt2c::kernels
