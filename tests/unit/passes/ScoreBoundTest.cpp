// Bounds of scores against what scores there are.
#include "passes/ScoreBound.h"
#include "tests/unit/passes/Preserved.h"

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

/// A A^T of a random A [n, n + 3].
std::vector<double> gramOf(Graph &g, int64_t n) {
  int64_t m = n + 3;
  Tensor a = g.randomInput({n, m});
  std::vector<double> out(n * n, 0.0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t k = 0; k < m; ++k)
        out[i * n + j] += a.data<double>()[i * m + k] * a.data<double>()[j * m + k];
  return out;
}

/// The largest eigenvalue of P Q by the power method, which comes near it from below.
double byPowers(llvm::ArrayRef<double> p, llvm::ArrayRef<double> q, int64_t n) {
  auto times = [n](llvm::ArrayRef<double> m, const std::vector<double> &v) {
    std::vector<double> out(n, 0.0);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        out[i] += m[i * n + j] * v[j];
    return out;
  };
  std::vector<double> v(n, 1.0);
  double length = 0;
  for (int round = 0; round < 3000; ++round) {
    v = times(p, times(q, v));
    length = 0;
    for (double x : v)
      length += x * x;
    length = std::sqrt(length);
    for (double &x : v)
      x /= length;
  }
  return length;
}

TEST(ScoreBound, LargestEigenvalue) {
  forSeeds(
      [](uint64_t seed) {
        Graph g(seed);
        int64_t n = 1 + int64_t(g.choose.below(20));
        auto p = gramOf(g, n), q = gramOf(g, n);
        double bound = largestEigenvalue(p, q, n), least = byPowers(p, q, n);
        EXPECT_GE(bound, least * (1 - 1e-9));
        EXPECT_LE(bound, least * 1.08);
      },
      60);
}

/// softmax-less heads over a norm: scores [batch, heads, seq, seq].
struct ScoreGraph : Graph {
  explicit ScoreGraph(uint64_t seed) : Graph(seed) {
    const Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq");
    Value *x = argument({DType::F32, {batch, seq, Dim(width)}}, "x");
    bool rms = choose.below(3) == 0;
    Value *n = rms ? (*this)(OpCode::RmsNorm, {x, random({width})})
                   : (*this)(OpCode::LayerNorm, {x, random({width}), random({width})});
    Value *parts[2];
    for (Value *&part : parts) {
      Value *y = (*this)(OpCode::Linear, {n, random({width, width}), random({width})});
      y = (*this)(OpCode::Reshape, {y}, {{"shape", Dims{batch, seq, heads, width / heads}}});
      part = (*this)(OpCode::Transpose, {y}, {{"perm", Dims{0, 2, 1, 3}}});
    }
    Value *k = (*this)(OpCode::Transpose, {parts[1]}, {{"perm", Dims{0, 1, 3, 2}}});
    scores = (*this)(OpCode::MatMul, {parts[0], k});
    ret({scores});
  }
  static constexpr int64_t width = 12, heads = 3;
  Value *scores = nullptr;
};

TEST(ScoreBound, NoScoreIsBeyond) {
  forSeeds(
      [](uint64_t seed) {
        ScoreGraph g(seed);
        Obstacle why;
        double bound = rangeOf(g.function, g.scores, why).magnitude();
        ASSERT_TRUE(std::isfinite(bound)) << why.reason;
        double most = 0;
        for (int round = 0; round < 20; ++round) {
          // Rows with one element that stands out reach far.
          Tensor x = g.randomInput({2, 12, ScoreGraph::width});
          for (int64_t i = 0; i < x.count(); ++i)
            if (g.choose.below(8) == 0)
              x.data<double>()[i] *= 1000;
          auto out = Executor(g.function, {.float64 = true}).run({x});
          ASSERT_TRUE(bool(out)) << llvm::toString(out.takeError());
          for (int64_t i = 0; i < (*out)[0].count(); ++i)
            most = std::max(most, std::abs((*out)[0].asDouble(i)));
        }
        EXPECT_LE(most, bound);
        EXPECT_GE(most, bound / 20);
      },
      100);
}

TEST(ScoreBound, IsNotKnownWithoutANorm) {
  const Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq");
  Graph g(1);
  Value *x = g.argument({DType::F32, {batch, seq, Dim(4)}}, "x");
  Value *y = g(OpCode::Linear, {x, g.random({4, 4})});
  g.ret({y});
  Obstacle why;
  EXPECT_TRUE(std::isinf(rangeOf(g.function, y, why).magnitude()));
  EXPECT_EQ(why.reason, "argument x has no bound");
}

} // namespace
