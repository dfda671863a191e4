// Bounds of scores against what scores there are.
#include "passes/proof/bounds/ScoreBound.h"
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

/// Scores [batch, heads, seq, seq] of heads over a norm. Keys may be shared by all heads, heads be
/// turned, behind norms of their own, and products have a branch of low rank beside them.
struct ScoreGraph : Graph {
  explicit ScoreGraph(uint64_t seed) : Graph(seed) {
    x = argument({DType::F32, {batch, seq, Dim(width)}}, "x");
    positions = argument({DType::I64, {batch, seq}}, "positions");
    bool rms = choose.below(3) == 0;
    Value *n = rms ? (*this)(OpCode::RmsNorm, {x, random({width})})
                   : (*this)(OpCode::LayerNorm, {x, random({width}), random({width})});
    turns = choose.below(2), norms = turns && choose.below(2), together = choose.below(2);
    lowRank = choose.below(3) == 0;
    const int64_t shared = choose.below(2) ? heads : 1;
    Tensor angles = randomInput({4, headDim / 2}), cos(DType::F32, {4, headDim / 2}), sin = cos;
    for (int64_t i = 0; i < angles.count(); ++i) {
      cos.data<float>()[i] = float(1.5 * std::cos(9 * angles.data<double>()[i]));
      sin.data<float>()[i] = float(1.5 * std::sin(9 * angles.data<double>()[i]));
    }
    tables[0] = constant(cos), tables[1] = constant(sin);
    Value *q = rows(n, heads), *k = rows(n, heads / shared);
    k = (*this)(OpCode::Reshape, {k},
                {{"shape", Dims{batch, heads / shared, 1, seq, Dim(headDim)}}});
    k = (*this)(OpCode::Expand, {k},
                {{"shape", Dims{batch, heads / shared, shared, seq, Dim(headDim)}}});
    k = (*this)(OpCode::Reshape, {k}, {{"shape", Dims{batch, heads, seq, Dim(headDim)}}});
    k = (*this)(OpCode::Transpose, {k}, {{"perm", Dims{0, 1, 3, 2}}});
    scores = (*this)(OpCode::MatMul, {q, k});
    ret({scores});
  }

  /// [batch, count, seq, headDim] of a product, of which columns in front are dropped.
  Value *rows(Value *n, int64_t count) {
    const int64_t columns = count * headDim;
    Value *y = (*this)(OpCode::Linear, {n, random({columns + 2, width}), random({columns + 2})});
    if (lowRank) {
      Value *low = (*this)(OpCode::Linear, {n, random({2, width})});
      low = (*this)(OpCode::Linear, {low, random({columns + 2, 2})});
      low = (*this)(OpCode::Mul, {low, scalar(-0.5)});
      y = (*this)(OpCode::Add, {(*this)(OpCode::Add, {y, low}), random({columns + 2})});
    }
    y = (*this)(OpCode::Slice, {y},
                {{"starts", Dims{2}}, {"ends", Dims{columns + 2}}, {"axes", Dims{2}}});
    const Dims split{batch, seq, Dim(count), Dim(headDim)};
    if (norms && together) {
      y = (*this)(OpCode::RmsNorm, {y, random({columns})});
    } else if (norms) {
      y = (*this)(OpCode::Reshape, {y}, {{"shape", split}});
      y = (*this)(OpCode::RmsNorm, {y, random({headDim})});
      y = (*this)(OpCode::Reshape, {y}, {{"shape", Dims{batch, seq, Dim(columns)}}});
    }
    if (turns)
      y = (*this)(OpCode::Rope, {y, positions, tables[0], tables[1]}, {{"head_dim", headDim}});
    y = (*this)(OpCode::Reshape, {y}, {{"shape", split}});
    return (*this)(OpCode::Transpose, {y}, {{"perm", Dims{0, 2, 1, 3}}});
  }

  static constexpr int64_t width = 12, heads = 3, headDim = 4;
  const Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq");
  Value *x = nullptr, *positions = nullptr, *tables[2] = {}, *scores = nullptr;
  bool turns = false, norms = false, together = false; ///< norms: of heads, or of all of them
  bool lowRank = false; ///< a product of two products, and a vector, are added to each product
};

TEST(ScoreBound, NoScoreIsBeyond) {
  forSeeds(
      [](uint64_t seed) {
        ScoreGraph g(seed);
        Obstacle why;
        double bound = rangeOf(g.function, g.scores, why).magnitude();
        ASSERT_TRUE(std::isfinite(bound)) << why.reason;
        double most = 0;
        Tensor positions(DType::I64, {2, 12});
        for (int64_t i = 0; i < positions.count(); ++i)
          positions.data<int64_t>()[i] = int64_t(g.choose.below(4));
        for (int round = 0; round < 20; ++round) {
          // Rows with one element that stands out reach far.
          Tensor x = g.randomInput({2, 12, ScoreGraph::width});
          for (int64_t i = 0; i < x.count(); ++i)
            if (g.choose.below(8) == 0)
              x.data<double>()[i] *= 1000;
          auto out = Executor(g.function, {.float64 = true}).run({x, positions});
          ASSERT_TRUE(bool(out)) << llvm::toString(out.takeError());
          for (int64_t i = 0; i < (*out)[0].count(); ++i)
            most = std::max(most, std::abs((*out)[0].asDouble(i)));
        }
        EXPECT_LE(most, bound);
        // A rotation may turn the longest query away from the longest key.
        EXPECT_GE(most, bound / ((g.turns ? 60 : 20) * (g.lowRank ? 10 : 1)));
      },
      200);
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
