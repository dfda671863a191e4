// Drivers that the tests of products share: each adds a kernel in one configuration, with a case
// for each shape.
#pragma once

#include "LinearProblem.h"
#include "tests/suite/kernels/DrawnRows.h"

namespace gpt2c::kernels {

template <typename Config>
using MakeKernel = KernelSource (*)(llvm::StringRef, const Config &, const Epilogue &);

/// Shapes of any kernel that takes any K.
inline std::vector<Shape> smallShapes() {
  return {{1, 1, 1}, {17, 33, 40}, {65, 130, 72}, {33, 7, 13}, {3, 129, 770}};
}
/// Those and whole layers.
inline std::vector<Shape> largeShapes() {
  std::vector<Shape> shapes = smallShapes();
  shapes.insert(shapes.end(),
                {{128, 768, 768}, {300, 2304, 768}, {200, 768, 3072}, {100, 1021, 64}});
  return shapes;
}
/// Those of them whose K is a multiple of 8.
inline std::vector<Shape> alignedShapes() {
  std::vector<Shape> shapes = largeShapes();
  std::erase_if(shapes, [](Shape s) { return s.k % 8 != 0; });
  shapes.insert(shapes.end(), {{1, 1, 8}, {129, 7, 136}});
  return shapes;
}

/// Shapes of kernels for fp32 operands whose K is a multiple of 4.
inline std::vector<Shape> tf32Shapes() {
  return {{1, 1, 4},       {17, 33, 40},     {65, 130, 72},    {33, 7, 12},    {3, 129, 772},
          {128, 768, 768}, {300, 2304, 768}, {200, 768, 3072}, {100, 1021, 64}};
}

/// Kernels with a grid of tiles and split K; types are those of x, w and y.
template <typename Config>
void tiled(Suite &suite, const std::string &group, MakeKernel<Config> make,
           const std::string &label, const Config &c, std::array<Scalar, 3> types,
           const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  int id = suite.kernel(group, [&](llvm::StringRef name) { return make(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(caseOf(group, label, s), [=](Run &run) {
      Problem p(run, s, types[0], types[1], types[2], epilogue);
      Arguments arguments = p.arguments();
      const SplitK scratch(run, s, c);
      scratch.addTo(arguments);
      check(run, id, p, gridFor(c, s), arguments, c.y);
    });
}

/// Scales and zero points of weights of four bits.
struct NibbleGroups {
  Tensor scale, zero;

  /// Draws those that the kernel takes, and makes p.w what the weights are with them.
  template <typename Config> void add(Run &run, Problem &p, const Config &c, Arguments &arguments) {
    std::vector<double> &weights = p.w.values;
    const int group = c.wGroup ? c.wGroup : p.shape.k;
    if (c.wZeros) {
      const std::vector<int> zeros = run.integers(weights.size() / group, -8, 7);
      zero = run.input({zeros.begin(), zeros.end()}, Scalar::I8);
      for (size_t i = 0; i < weights.size(); ++i)
        weights[i] -= zero.values[i / group];
      arguments.set("wZero", &zero);
    }
    if (c.wGroup > 0) {
      scale = randomScales(run, weights.size() / group);
      for (size_t i = 0; i < weights.size(); ++i)
        weights[i] *= scale.values[i / group];
      arguments.set("wScale", &scale);
    }
  }
};

/// Kernels that compute all rows in a block, after a norm when the config asks for one; types are
/// those of x and w.
template <typename Config>
void fewRows(Suite &suite, const std::string &group, MakeKernel<Config> make,
             const std::string &label, const Config &c, std::array<Scalar, 2> types,
             const Epilogue &epilogue, const std::vector<Shape> &shapes, int wGroup = 0) {
  int id = suite.kernel(group, [&](llvm::StringRef name) { return make(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(caseOf(group, label, s), [=](Run &run) {
      run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
      Problem p(run, s, types[0], types[1], c.y, epilogue);
      Arguments arguments = p.arguments();
      std::vector<double> weights = p.w.values;
      Tensor wScale;
      NibbleGroups nibbles;
      if constexpr (requires { c.wZeros; })
        if (c.w == Scalar::I4) {
          nibbles.add(run, p, c, arguments);
          p.compute(p.x.values, p.w.values, epilogue, c.y);
        }
      if (wGroup > 0) {
        wScale = randomScales(run, (size_t)s.n * (s.k / wGroup));
        for (size_t i = 0; i < weights.size(); ++i)
          weights[i] *= wScale.values[i / wGroup];
        arguments.set("wScale", &wScale);
        p.compute(p.x.values, weights, epilogue, c.y);
      }
      Tensor gain = run.input(run.normal(s.k), c.p), shift = run.input(run.normal(s.k), c.p);
      if (c.norm != NormKind::None) {
        const bool hasShift = c.norm == NormKind::Layer;
        arguments.set("gain", &gain).set("epsilon", 1e-5F);
        arguments.set("shift", hasShift ? Argument(&shift) : Argument(nullptr));
        p.computeNormalised(normalised(p.x, gain.values,
                                       hasShift ? shift.values : std::vector<double>(), s.m, s.k,
                                       c.norm, (float)1e-5f),
                            epilogue, types[0], c.y);
      }
      check(run, id, p, gridFor(c, s), arguments, c.y);
    });
}

/// The greedy choice that argmax_parts, the kernel `choose`, makes of what a product left in
/// `best`: the place of the largest logit that the product wrote, row by row.
/// With `drawn` some rows are drawn instead.
void expectChoice(Run &run, Problem &p, int choose, const Tensor &best, int parts,
                  const DrawnRows *drawn = nullptr);
/// Adds argmax_parts.
int choiceKernel(Suite &suite, const std::string &group);

/// Kernels of a vocabulary past which rows stand still: the product, after a norm, and the greedy
/// choice.
template <typename Config>
void streamed(Suite &suite, const std::string &group, MakeKernel<Config> make,
              const std::string &label, const Config &c, const Epilogue &epilogue,
              const std::vector<Shape> &shapes) {
  const int choose = choiceKernel(suite, group);
  int id = suite.kernel(group, [&](llvm::StringRef name) { return make(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(caseOf(group, label, s), [=](Run &run) {
      run.expect(s.k == c.k && s.m <= c.rows, "the shape is not this kernel's");
      Problem p(run, s, c.x, c.w, c.y, epilogue);
      Arguments arguments = p.arguments();
      Tensor gain = run.input(run.normal(s.k), c.p), shift = run.input(run.normal(s.k), c.p);
      if (c.norm != NormKind::None) {
        arguments.set("gain", &gain).set("shift", &shift).set("epsilon", 1e-5F);
        p.computeNormalised(normalised(p.x, gain.values, shift.values, s.m, s.k, c.norm, 1e-5f),
                            epilogue, c.x, c.y);
      }
      const int processors = 5;
      Tensor best = run.zeroed(size_t(8) * s.m * processors);
      if (c.best)
        arguments.set("best", &best).set("choices", nullptr);
      check(run, id, p, gridFor(c, s, processors), arguments, c.y);
      if (!c.best)
        return;
      expectChoice(run, p, choose, best, processors);
      const DrawnRows drawn(run, s.m);
      run.launch(id, gridFor(c, s, processors), arguments.set("choices", &drawn.tensor));
      expectChoice(run, p, choose, best, processors, &drawn);
    });
}

} // namespace gpt2c::kernels
