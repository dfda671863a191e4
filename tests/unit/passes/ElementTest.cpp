// Elements as functions of indices and lengths, against the reference executor.
#include "passes/proof/Lengths.h"
#include "passes/proof/bounds/ChainBound.h"
#include "passes/proof/masks/AttentionProbe.h"
#include "tests/unit/passes/Preserved.h"

#include <cmath>
#include <numeric>

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

const Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq");

/// A copy of `v`, whose shape has no axis of no elements at `batch` and `seq` from 1 on.
Value *copied(Graph &g, Value *v) {
  const Shape s = v->type.shape;
  const int64_t rank = int64_t(s.size()), axis = int64_t(g.choose.below(rank));
  switch (g.choose.below(8)) {
  case 0: {
    Dims perm(rank);
    for (int64_t i = 0; i < rank; ++i)
      perm[i] = Dim((i + axis) % rank);
    return g(OpCode::Transpose, {v}, {{"perm", perm}});
  }
  case 1: { // an axis of a constant even size in two, or two neighbours as one
    Dims shape(s.begin(), s.end());
    if (auto n = s[axis].constant(); n && *n % 2 == 0 && *n > 0) {
      shape[axis] = Dim(2);
      shape.insert(shape.begin() + axis + 1, Dim(*n / 2));
    } else if (axis + 1 < rank) {
      shape[axis] = s[axis] * s[axis + 1];
      shape.erase(shape.begin() + axis + 1);
    }
    return g(OpCode::Reshape, {v}, {{"shape", shape}});
  }
  case 2:
    return g(OpCode::Concat, {v, v}, {{"axis", axis}});
  case 3: {
    if (!s[axis].isConstant() || *s[axis].constant() < 2)
      return v;
    const int64_t n = *s[axis].constant(), from = int64_t(g.choose.below(n - 1));
    return g(OpCode::Slice, {v},
             {{"starts", Dims{g.choose.coin() ? from : from - n}},
              {"ends", Dims{n - int64_t(g.choose.below(2))}},
              {"axes", Dims{axis}},
              {"steps", Dims{1 + int64_t(g.choose.below(2))}}});
  }
  case 4: {
    Dims shape(s.begin(), s.end());
    shape.insert(shape.begin() + axis, Dim(1));
    Value *one = g(OpCode::Reshape, {v}, {{"shape", shape}});
    shape[axis] = Dim(1 + int64_t(g.choose.below(3)));
    return g(OpCode::Expand, {one}, {{"shape", shape}});
  }
  case 5: {
    Value *rows = g.constant(Tensor::of<int64_t>({0, -1, 0}, {3}));
    return g(OpCode::Gather, {v, rows}, {{"axis", axis}});
  }
  case 6: { // the same rows by a computed index
    if (s[axis] != seq)
      return v;
    Value *rows =
        g(OpCode::Range, {}, {{"start", Dims{0}}, {"limit", Dims{seq}}, {"delta", Dims{1}}});
    return g(OpCode::Gather, {v, rows}, {{"axis", axis}});
  }
  default:
    return g(OpCode::Trilu, {v}, {{"upper", g.choose.coin()}});
  }
}

/// The element of the numbered `x` that `e` stands for; 0 for the zeros of a triangle, none where
/// that is not known.
std::optional<double> follow(const Element *e, const Tensor &x, const SymbolMap &symbols) {
  if (e->kind == Element::Choice) {
    auto a = valueOf(e->operands[0], symbols), b = valueOf(e->operands[1], symbols);
    return a && b ? follow(e->operands[*a < *b ? 2 : 3], x, symbols) : std::nullopt;
  }
  if (e->kind == Element::Real)
    return e->real;
  if (e->kind != Element::Read)
    return std::nullopt;
  int64_t at = 0;
  for (auto [axis, index] : llvm::enumerate(e->operands)) {
    auto i = valueOf(index, symbols);
    if (!i || *i < 0 || *i >= x.dim(int(axis)))
      return std::nullopt;
    at = at * x.dim(int(axis)) + *i;
  }
  return x.asDouble(at);
}

TEST(Element, CopiesAreFollowed) {
  unsigned known = 0, all = 0;
  forSeeds(
      [&](uint64_t seed) {
        Graph g(seed);
        Value *x = g.argument({DType::F32, {batch, seq, Dim(12)}}, "x");
        Value *y = x;
        for (uint64_t n = 1 + g.choose.below(6); n > 0; --n)
          y = copied(g, y);
        g.ret({y});
        Elements elements;
        auto at = elements.variablesOf(y);
        const Element *e = elements.at(y, at);
        for (auto [b, s] : {std::pair(1, 1), {2, 3}, {3, 5}, {1, 17}}) {
          Tensor in(DType::F32, {b, s, 12});
          std::iota(in.data<float>(), in.data<float>() + in.count(), 1.0f);
          SymbolMap symbols{{"batch", b}, {"seq", s}};
          auto out = Executor(g.function).run({in});
          ASSERT_TRUE(bool(out)) << llvm::toString(out.takeError()) << toText(g.function);
          const Tensor &expected = out->front();
          for (int64_t i = 0; i < expected.count(); ++i) {
            int64_t rest = i;
            for (size_t axis = at.size(); axis-- > 0; rest /= expected.dim(int(axis)))
              if (auto symbol = at[axis]->number.asSymbol())
                symbols[*symbol] = rest % expected.dim(int(axis));
            auto value = follow(e, in, symbols);
            ++all;
            known += value.has_value();
            if (value) {
              ASSERT_EQ(*value, expected.asDouble(i)) << i << toText(g.function);
            }
          }
        }
      },
      400);
  EXPECT_GT(known, all * 9 / 10);
}

/// y = f(seq) as one number.
struct LengthGraph : Graph {
  LengthGraph() : Graph(1) { argument({DType::I64, {batch, seq}}, "ids"); }
  Value *length() {
    return (*this)(OpCode::Cast,
                   {(*this)(OpCode::DimValues, {}, {{"values", Dims{seq}}, {"scalar", true}})},
                   {{"to", DType::F32}});
  }
  Value *number(float v) { return constant(Tensor::scalar(v)); }
  /// What is foreign in `v` for up to `context` tokens.
  std::string foreign(Value *v, int64_t context) {
    Elements elements;
    auto at = elements.variablesOf(v);
    Allowed allowed{[](const Dim &) { return false; }, [](const Element &) { return false; }};
    auto why = DependenceProof(elements, {seq, seq, context}, allowed).foreign(elements.at(v, at));
    return why ? why->reason : "";
  }
};

TEST(Lengths, EveryLengthIsTried) {
  // 1 + max(0, 1 - |seq - n|) differs for n tokens alone.
  for (int64_t n : {1, 2, 11, 97, 200}) {
    LengthGraph g;
    Value *off = g(OpCode::Abs, {g(OpCode::Sub, {g.length(), g.number(float(n))})});
    Value *y = g(OpCode::Add, {g.number(1), g(OpCode::Relu, {g(OpCode::Sub, {g.number(1), off})})});
    g.ret({y});
    EXPECT_NE(g.foreign(y, 200), "") << n;
    if (n > 1) {
      EXPECT_EQ(g.foreign(y, n - 1), "") << n;
    }
  }
}

TEST(Lengths, TheLargestPosition) {
  // min((max(0, 1, .. seq - 1) + 1) / 12, 1)
  LengthGraph g;
  Value *positions =
      g(OpCode::Range, {}, {{"start", Dims{0}}, {"limit", Dims{seq}}, {"delta", Dims{1}}});
  Value *largest = g(OpCode::ReduceMax, {g(OpCode::Cast, {positions}, {{"to", DType::F32}})},
                     {{"axes", Dims{0}}, {"keepdims", true}});
  Value *y = g(OpCode::Min, {g(OpCode::Div, {g(OpCode::Add, {largest, g.number(1)}), g.number(12)}),
                             g.number(1)});
  Value *always = g(OpCode::Max, {y, g.number(1)});
  g.ret({y, always});
  EXPECT_NE(g.foreign(y, 64), "");
  EXPECT_EQ(g.foreign(always, 64), "");
}

TEST(Lengths, OtherSizesHaveNoPlace) {
  LengthGraph g;
  Value *sequences = g(OpCode::DimValues, {}, {{"values", Dims{batch}}, {"scalar", true}});
  Value *ids = g.function.argument("ids");
  Value *most = g(OpCode::ReduceMax, {ids}, {{"axes", Dims{0, 1}}, {"keepdims", false}});
  g.ret({sequences, most});
  EXPECT_NE(g.foreign(sequences, 64), "");
  EXPECT_NE(g.foreign(most, 64), "");
}

//===-- heads
//-----------------------------------------------------------------------------------===//

/// [batch, seq, 8] as two heads, each repeated twice where `repeats`.
Value *inHeads(Graph &g, Value *x, bool repeats) {
  Value *split = g(OpCode::Reshape, {x}, {{"shape", Dims{batch, seq, 2, 4}}});
  Value *y = g(OpCode::Transpose, {split}, {{"perm", Dims{0, 2, 1, 3}}});
  if (!repeats)
    return y;
  Value *one = g(OpCode::Reshape, {y}, {{"shape", Dims{batch, 2, 1, seq, 4}}});
  Value *all = g(OpCode::Expand, {one}, {{"shape", Dims{batch, 2, 2, seq, 4}}});
  return g(OpCode::Reshape, {all}, {{"shape", Dims{batch, 4, seq, 4}}});
}

TEST(HeadLayout, OfEveryTokenAndSequence) {
  for (bool repeats : {false, true}) {
    Graph g(1);
    Value *x = g.argument({DType::F32, {batch, seq, Dim(24)}}, "x");
    Value *k = inHeads(
        g, g(OpCode::Slice, {x}, {{"starts", Dims{8}}, {"ends", Dims{16}}, {"axes", Dims{2}}}),
        repeats);
    g.ret({k});
    Obstacle why;
    auto l = probeHeads(g.function, k, false, why);
    ASSERT_TRUE(l.has_value()) << why.reason;
    EXPECT_EQ(l->offset, 8);
    EXPECT_EQ(l->heads, repeats ? 4 : 2);
    EXPECT_EQ(l->group, repeats ? 2 : 1);
    EXPECT_EQ(l->factor, 1);
  }
}

/// Rows from `n` on are those in front of them.
Value *lateRows(Graph &g, Value *x, int64_t n) {
  auto part = [&](int64_t from, int64_t to) {
    return g(OpCode::Slice, {x}, {{"starts", Dims{from}}, {"ends", Dims{to}}, {"axes", Dims{1}}});
  };
  Value *both = g(OpCode::Concat, {part(0, n), part(n - 1, -1)}, {{"axis", int64_t(1)}});
  return g(OpCode::Reshape, {both}, {{"shape", Dims{batch, seq, 8}}});
}

TEST(HeadLayout, LateCopiesAreNone) {
  for (int64_t n : {7, 150, 4000})
    for (bool repeats : {false, true}) {
      Graph g(1);
      Value *x = g.argument({DType::F32, {batch, seq, Dim(8)}}, "x");
      Value *k = inHeads(g, lateRows(g, x, n), repeats);
      g.ret({k});
      Obstacle why;
      EXPECT_FALSE(probeHeads(g.function, k, false, why).has_value()) << n;
      EXPECT_NE(why.reason, "");
    }
}

//===-- between two points --------------------------------------------------------------------===//

double silu(double x) { return x / (1 + std::exp(-x)); }
double siluSlope(double x) { return 1 / (1 + std::exp(-x)) + x / (2 + std::exp(x) + std::exp(-x)); }

/// x sigmoid(x) + size (tanh(slope (x - at)) - tanh(slope (x - at - width)))
struct Bumped : Graph {
  Value *x, *y;
  Bumped(double at, double width, double slope, double size) : Graph(1) {
    x = argument({DType::F32, {seq}}, "x");
    auto number = [&](double v) { return constant(Tensor::scalar(float(v))); };
    auto step = [&](double from) {
      Value *off = (*this)(OpCode::Sub, {x, number(from)});
      return (*this)(OpCode::Tanh, {(*this)(OpCode::Mul, {off, number(slope)})});
    };
    y = (*this)(OpCode::Mul, {x, (*this)(OpCode::Sigmoid, {x})});
    if (size != 0)
      y = (*this)(OpCode::Add,
                  {y, (*this)(OpCode::Mul,
                              {(*this)(OpCode::Sub, {step(at), step(at + width)}), number(size)})});
    ret({y});
  }
  std::optional<double> changes() {
    std::vector<double> points, distances;
    for (unsigned bits = 0; bits <= UINT16_MAX; ++bits)
      if (double v = halfToFloat(bits); std::isfinite(v) && v != 0) // the tolerance is relative
        points.push_back(v);
    llvm::sort(points);
    distances.assign(points.size(), 0);
    return unboundedBetween(y, x, {silu, siluSlope}, points, distances, 3.2e-5);
  }
};

TEST(ChainBound, TheFormulaKeepsItsCourse) {
  EXPECT_EQ(Bumped(0, 0, 0, 0).changes(), std::nullopt);
}

TEST(ChainBound, ABumpBetweenTwoValuesIsFound) {
  for (double at : {1.0004, -0.30003, 20.003, 0.0100001, 1000.3})
    for (double size : {6.0, 0.01}) {
      if (2 * size < 3.2e-5 * std::abs(at))
        continue; // within the tolerance
      auto near = Bumped(at, std::abs(at) * 1e-4, 3e5 / std::abs(at), size).changes();
      ASSERT_TRUE(near.has_value()) << at;
      EXPECT_LT(std::abs(*near - at), std::abs(at) * 0.01) << at;
    }
}

} // namespace
