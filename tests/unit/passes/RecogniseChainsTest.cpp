// Random spellings of linear, layer norm and GELU, and of what is nearly one: recognised when they
// are, never changed in what they compute.
#include "tests/unit/passes/Preserved.h"
#include "tests/unit/passes/Spellings.h"

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

//===-- layer norm and RMS norm ---------------------------------------------------------------===//

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

//===-- GELU ----------------------------------------------------------------------------------===//

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

//===-- linear --------------------------------------------------------------------------------===//

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
