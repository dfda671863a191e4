// The ways in which exporters write what GPT-2 computes, one chosen at random.
#pragma once

#include "tests/unit/passes/RandomGraph.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace gpt2c::test {

inline const Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq"), past = Dim::symbol("past");

struct NormOptions {
  double epsilon = 1e-5;
  bool rms = false, subtractsMean = true, epsilonInside = true;
};

inline Value *mean(Graph &g, Value *x, int64_t width) {
  Dims last{g.choose.coin() ? int64_t(-1) : int64_t(x->type.rank() - 1)};
  if (g.choose.coin())
    return g(OpCode::ReduceMean, {x}, {{"axes", last}});
  return g(OpCode::Div, {g(OpCode::ReduceSum, {x}, {{"axes", last}}), g.scalar(double(width))});
}

/// A layer norm, or an RMS norm, or what is nearly one.
inline Value *norm(Graph &g, Value *x, int64_t width, const NormOptions &o) {
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

/// Halves of x (1 + f), multiplied in some order.
inline Value *halfTimes(Graph &g, Value *x, Value *f) {
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

inline Value *cube(Graph &g, Value *x) {
  if (g.choose.coin())
    return g(OpCode::Pow, {x, g.scalar(3)});
  return g.either(OpCode::Mul, g(OpCode::Mul, {x, x}), x);
}

/// GELU, with one of its constants multiplied by `off`.
inline Value *gelu(Graph &g, Value *x, bool tanh, double off) {
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

enum class Mask { None, Causal, AntiCausal, Window };

/// bool[seq, keys]: what the mask lets through; queries are the last of the keys.
inline Value *visible(Graph &g, Mask mask, const Dim &seq, const Dim &keys) {
  auto range = [&](const Dim &from, const Dim &to) {
    return g(OpCode::Range, {}, {{"start", Dims{from}}, {"limit", Dims{to}}, {"delta", Dims{1}}});
  };
  Value *key = g(OpCode::Reshape, {range(0, keys)}, {{"shape", Dims{1, keys}}});
  Value *query = g(OpCode::Reshape, {range(keys - seq, keys)}, {{"shape", Dims{seq, 1}}});
  if (mask == Mask::AntiCausal)
    return g(OpCode::GreaterEqual, {key, query});
  Value *causal = g.choose.coin() ? g(OpCode::LessEqual, {key, query})
                                  : g(OpCode::Not, {g(OpCode::Greater, {key, query})});
  if (mask == Mask::Causal)
    return causal;
  Value *oldest = g(OpCode::Sub, {query, g.index(2)});
  return g.either(OpCode::And, causal, g(OpCode::Greater, {key, oldest}));
}

/// A type of masks of ones and zeros that callers give.
inline DType maskType(Graph &g) {
  return g.choose.oneOf({DType::I64, DType::I64, DType::I32, DType::F32, DType::Bool});
}

/// Scores that softmax makes 0 where `visible` is false, however large they are.
inline Value *hide(Graph &g, Value *scores, Value *visible) {
  double lowest =
      g.choose.oneOf({-1e32, double(std::numeric_limits<float>::lowest()), double(-INFINITY)});
  if (lowest == -INFINITY || g.choose.coin())
    return g(OpCode::Where, {visible, scores, g.scalar(lowest)});
  Value *hidden = g(OpCode::Sub, {g.scalar(1), g(OpCode::Cast, {visible}, {{"to", DType::F32}})});
  return g.either(OpCode::Add, scores, g.either(OpCode::Mul, hidden, g.scalar(lowest)));
}

} // namespace gpt2c::test
