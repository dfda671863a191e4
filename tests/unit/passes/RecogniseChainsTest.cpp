// Random spellings of linear, layer norm and GELU, and of what is nearly one: recognised when they
// are, never changed in what they compute.
#include "tests/unit/passes/RandomGraph.h"

#include <numbers>

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

const Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq");

//===-- layer norm
//------------------------------------------------------------------------------===//

struct NormOptions {
  double epsilon = 1e-5;
  bool rms = false, subtractsMean = true, epsilonInside = true;
};

Value *mean(Graph &g, Value *x, int64_t width) {
  Dims last{g.choose.coin() ? int64_t(-1) : int64_t(x->type.rank() - 1)};
  if (g.choose.coin())
    return g(OpCode::ReduceMean, {x}, {{"axes", last}});
  return g(OpCode::Div, {g(OpCode::ReduceSum, {x}, {{"axes", last}}), g.scalar(double(width))});
}

Value *norm(Graph &g, Value *x, int64_t width, const NormOptions &o) {
  Value *centred = x;
  if (!o.rms) {
    Value *m = mean(g, x, width);
    centred = g.choose.coin() ? g(OpCode::Sub, {m, x}) : g(OpCode::Sub, {x, m});
  }
  Value *square =
      g.choose.coin() ? g(OpCode::Mul, {centred, centred}) : g(OpCode::Pow, {centred, g.scalar(2)});
  Value *variance = mean(g, square, width), *epsilon = g.scalar(o.epsilon);
  if (o.epsilonInside)
    variance = g.either(OpCode::Add, variance, epsilon);
  unsigned spelling = g.choose.below(o.epsilonInside ? 4 : 2);
  Value *root = spelling == 2   ? nullptr
                : spelling == 3 ? g(OpCode::Pow, {variance, g.scalar(0.5)})
                                : g(OpCode::Sqrt, {variance});
  if (!o.epsilonInside)
    root = g.either(OpCode::Add, root, epsilon);
  Value *numerator = o.subtractsMean ? centred : x;
  Value *y = spelling == 1 ? g.either(OpCode::Mul, numerator, g(OpCode::Reciprocal, {root}))
             : spelling == 2
                 ? g.either(OpCode::Mul, numerator, g(OpCode::Pow, {variance, g.scalar(-0.5)}))
                 : g(OpCode::Div, {numerator, root});
  if (g.choose.coin())
    y = g.either(OpCode::Mul, y, g.random({width}));
  if (!o.rms && g.choose.coin())
    y = g.either(OpCode::Add, y, g.random({1, width}));
  return y;
}

void testNorm(uint64_t seed, const NormOptions &options, bool recognised) {
  Graph g(seed);
  int64_t width = 2 + g.choose.below(15);
  Value *x = g.argument({DType::F32, {batch, seq, Dim(width)}}, "x");
  Value *before = g.choose.coin() ? g(OpCode::Sin, {x}) : x;
  Value *y = norm(g, before, width, options);
  g.ret({g.choose.coin() ? g(OpCode::Add, {y, x}) : y});
  expectPreserved(g, {"recognise-norm"}, g.randomInput({2, 3, width}));
  EXPECT_EQ(countOps(g.function, OpCode::LayerNorm), recognised && !options.rms)
      << toText(g.function);
  EXPECT_EQ(countOps(g.function, OpCode::RmsNorm), recognised && options.rms) << toText(g.function);
  EXPECT_EQ(countOps(g.function, OpCode::ReduceMean) + countOps(g.function, OpCode::ReduceSum),
            recognised    ? 0u
            : options.rms ? 1u
                          : 2u);
}

TEST(RecogniseChains, LayerNorm) {
  forSeeds([](uint64_t seed) {
    testNorm(seed, {.epsilon = Choices(seed).oneOf({1e-3, 1e-5, 1e-6, 1e-12})}, true);
  });
}
TEST(RecogniseChains, RmsNorm) {
  forSeeds([](uint64_t seed) {
    testNorm(seed, {.epsilon = Choices(seed).oneOf({1e-3, 1e-5, 1e-6, 1e-12}), .rms = true}, true);
  });
}
TEST(RecogniseChains, RmsNormWithEpsilonOutside) {
  forSeeds([](uint64_t seed) { testNorm(seed, {.rms = true, .epsilonInside = false}, false); });
}
TEST(RecogniseChains, NormWithoutMean) {
  forSeeds([](uint64_t seed) { testNorm(seed, {.subtractsMean = false}, false); });
}
TEST(RecogniseChains, NormWithEpsilonOutside) {
  forSeeds([](uint64_t seed) { testNorm(seed, {.epsilonInside = false}, false); });
}

//===-- GELU
//------------------------------------------------------------------------------------===//

/// Halves of x (1 + f), multiplied in some order.
Value *halfTimes(Graph &g, Value *x, Value *f) {
  if (g.choose.coin()) {
    Value *share =
        g.choose.coin()
            ? g.either(OpCode::Mul, g.either(OpCode::Add, f, g.scalar(1)), g.scalar(0.5))
            : g.either(OpCode::Add, g.either(OpCode::Mul, f, g.scalar(0.5)), g.scalar(0.5));
    return g.either(OpCode::Mul, x, share);
  }
  Value *sum = g.either(OpCode::Add, f, g.scalar(1));
  return g.choose.coin() ? g.either(OpCode::Mul, g.either(OpCode::Mul, x, g.scalar(0.5)), sum)
                         : g(OpCode::Div, {g.either(OpCode::Mul, x, sum), g.scalar(2)});
}

Value *cube(Graph &g, Value *x) {
  if (g.choose.coin())
    return g(OpCode::Pow, {x, g.scalar(3)});
  return g.either(OpCode::Mul, g(OpCode::Mul, {x, x}), x);
}

Value *gelu(Graph &g, Value *x, bool tanh, double off) {
  if (!tanh) {
    double root = std::numbers::sqrt2 * off;
    Value *argument = g.choose.coin() ? g(OpCode::Div, {x, g.scalar(root)})
                                      : g.either(OpCode::Mul, x, g.scalar(1 / root));
    return halfTimes(g, x, g(OpCode::Erf, {argument}));
  }
  double outer = std::sqrt(2 / std::numbers::pi), inner = 0.044715 * off;
  Value *argument = nullptr;
  if (g.choose.coin())
    argument = g.either(
        OpCode::Mul, g.either(OpCode::Add, x, g.either(OpCode::Mul, cube(g, x), g.scalar(inner))),
        g.scalar(outer));
  else
    argument = g.either(OpCode::Add, g.either(OpCode::Mul, x, g.scalar(outer)),
                        g.either(OpCode::Mul, cube(g, x), g.scalar(inner * outer)));
  if (g.choose.below(3) == 0) {
    Value *share = g(OpCode::Sigmoid, {g.either(OpCode::Add, argument, argument)});
    return g.either(OpCode::Mul, x, share);
  }
  return halfTimes(g, x, g(OpCode::Tanh, {argument}));
}

void testGelu(uint64_t seed, double off) {
  Graph g(seed);
  bool tanh = g.choose.coin();
  Value *x = g.argument({DType::F32, {batch, Dim(8)}}, "x");
  Value *input = g.choose.coin() ? g.either(OpCode::Add, x, g.random({8})) : x;
  Value *y = gelu(g, input, tanh, off);
  g.ret({g.choose.coin() ? g.either(OpCode::Mul, y, g.random({8})) : y});
  expectPreserved(g, {"recognise-gelu"}, g.randomInput({5, 8}), 1e-5);
  bool recognised = off == 1;
  EXPECT_EQ(countOps(g.function, OpCode::Gelu), recognised) << toText(g.function);
  EXPECT_EQ(countOps(g.function, OpCode::Tanh) + countOps(g.function, OpCode::Erf) +
                countOps(g.function, OpCode::Sigmoid),
            recognised ? 0u : 1u);
  for (auto &op : g.function.ops())
    if (op->is(OpCode::Gelu)) {
      EXPECT_EQ(op->stringAttr("approximate"), tanh ? "tanh" : "none");
    }
}

TEST(RecogniseChains, Gelu) {
  forSeeds([](uint64_t seed) { testGelu(seed, 1); });
}
TEST(RecogniseChains, GeluWithAnotherConstant) {
  forSeeds([](uint64_t seed) { testGelu(seed, 1.003); });
}

//===-- linear
//----------------------------------------------------------------------------------===//

void testLinear(uint64_t seed) {
  Graph g(seed);
  int64_t k = 1 + g.choose.below(4), n = 1 + g.choose.below(4);
  bool rows = g.choose.coin();
  Value *x = rows ? g.argument({DType::F32, {batch, Dim(k)}}, "x")
                  : g.argument({DType::F32, {batch, seq, Dim(k)}}, "x");
  llvm::SmallVector<int64_t> shape =
      rows ? llvm::SmallVector<int64_t>{6, k} : llvm::SmallVector<int64_t>{2, 3, k};
  Value *w = g.choose.coin() ? g.random({k, n})
                             : g(OpCode::Transpose, {g.random({n, k})}, {{"perm", Dims{1, 0}}});
  Value *y = g(OpCode::MatMul, {x, w});
  // A vector for the columns is a bias; one number, or a tensor that makes the product larger, is
  // none.
  unsigned kind = g.choose.below(4);
  if (kind == 0)
    y = g.either(OpCode::Add, y, g.choose.coin() ? g.random({n}) : g.random({1, n}));
  else if (kind == 1)
    y = g.either(OpCode::Add, y, g.random({}));
  else if (kind == 2)
    y = g.either(OpCode::Add, y, g.random({1, 1, 1, n}));
  Value *residual = g.choose.coin() ? g(OpCode::Exp, {y}) : nullptr;
  if (residual && kind == 3)
    y = g.either(OpCode::Add, g.either(OpCode::Add, g(OpCode::MatMul, {x, w}), residual),
                 g.random({n}));
  g.ret({y});
  expectPreserved(g, {"recognise-linear", "simplify", "fuse-epilogues"}, g.randomInput(shape));
  EXPECT_EQ(countOps(g.function, OpCode::MatMul), 0u) << toText(g.function);
  EXPECT_EQ(countOps(g.function, OpCode::Add), kind == 1 || kind == 2 ? 1u : 0u)
      << toText(g.function);
}

TEST(RecogniseChains, Linear) { forSeeds(testLinear); }

} // namespace
