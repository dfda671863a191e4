// What the cases of linear share: a product with an epilogue, its operands, and its reference in
// float64 with the error that a correct kernel may make.
#pragma once

#include "Suite.h"

#include "templates/linear/parts/Epilogue.h"

#include <cmath>

namespace gpt2c::kernels {

struct Shape {
  int m, n, k;
};

inline double work(Shape s) { return (double)s.m * s.n * s.k; }
inline std::string text(Shape s) {
  return std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
}

inline double apply(const EpilogueStage &stage, double v, double operand) {
  switch (stage.kind) {
  case EpilogueStage::AddBias:
  case EpilogueStage::AddMatrix:
  case EpilogueStage::AddLastRows:
    return v + operand;
  case EpilogueStage::MulMatrix:
  case EpilogueStage::ScaleRow:
  case EpilogueStage::ScaleColumn:
  case EpilogueStage::ScaleAll:
  case EpilogueStage::ScaleByValue:
    return v * operand;
  case EpilogueStage::GeluTanh:
  case EpilogueStage::GeluTanhHalf:
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  case EpilogueStage::GeluErf:
    return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
  case EpilogueStage::Relu:
    return v > 0 ? v : 0;
  case EpilogueStage::Silu:
    return v / (1 + std::exp(-v));
  case EpilogueStage::Sigmoid:
    return 1 / (1 + std::exp(-v));
  case EpilogueStage::Tanh:
    return std::tanh(v);
  case EpilogueStage::QuantiseByScale:
    return givenInteger(Given::Scale, v);
  case EpilogueStage::QuantiseByScaleAndZero:
    return givenInteger(Given::ScaleAndZero, v);
  }
  return v;
}

inline bool isScale(const EpilogueStage &stage) {
  return stage.kind == EpilogueStage::ScaleRow || stage.kind == EpilogueStage::ScaleColumn ||
         stage.kind == EpilogueStage::ScaleAll;
}
/// Random elements: integers of the whole range for int8.
inline Tensor randomInput(Run &run, size_t count, Scalar type, double deviation = 1) {
  if (type != Scalar::I8)
    return run.input(run.normal(count, deviation), type);
  std::vector<int> values = run.integers(count, -127, 127);
  return run.input({values.begin(), values.end()}, type);
}
/// Random scales around 1 / 73, which give integers of the whole range the deviation 1.
inline Tensor randomScales(Run &run, size_t count) {
  std::vector<int> values = run.integers(count, 50, 150);
  std::vector<double> scales(values.begin(), values.end());
  for (double &s : scales)
    s /= 7300;
  return run.input(scales, Scalar::F32);
}

/// Operands of an epilogue, and the reference with the error a correct kernel may make.
struct Problem {
  Shape shape;
  Tensor x, w, y;
  std::vector<Tensor> operands;
  std::optional<size_t> gathered; ///< the operand of AddLastRows, of sequences of `seq` rows
  std::vector<int> lengths;
  Tensor lengthsInput;
  static constexpr int seq = 3;
  std::vector<double> want, bound;

  Problem(Run &run, Shape s, Scalar xt, Scalar wt, Scalar yt, const Epilogue &epilogue) : shape(s) {
    x = randomInput(run, (size_t)s.m * s.k, xt);
    w = randomInput(run, (size_t)s.n * s.k, wt, 1 / std::sqrt((double)s.k));
    y = run.output((size_t)s.m * s.n, yt);
    for (const EpilogueStage &stage : epilogue)
      if (isScale(stage))
        operands.push_back(randomScales(run, stage.kind == EpilogueStage::ScaleRow   ? s.m
                                             : stage.kind == EpilogueStage::ScaleAll ? 1
                                                                                     : s.n));
      else if (stage.kind == EpilogueStage::AddLastRows) {
        gathered = operands.size();
        operands.push_back(run.input(run.normal((size_t)s.m * seq * s.n), stage.operand));
        lengths = run.integers(s.m, 0, seq);
        lengthsInput = run.integerInput(lengths);
      } else if (hasOperand(stage))
        operands.push_back(
            run.input(run.normal(stage.kind == EpilogueStage::AddBias ? s.n : (size_t)s.m * s.n),
                      stage.operand));
    compute(x.values, w.values, epilogue, yt);
  }

  void compute(const std::vector<double> &rows, const std::vector<double> &weights,
               const Epilogue &epilogue, Scalar yt) {
    want.resize((size_t)shape.m * shape.n);
    bound.resize(want.size());
    for (int i = 0; i < shape.m; ++i)
      for (int j = 0; j < shape.n; ++j) {
        double sum = 0, magnitude = 0;
        for (int k = 0; k < shape.k; ++k) {
          double p = rows[(size_t)i * shape.k + k] * weights[(size_t)j * shape.k + k];
          sum += p;
          magnitude += std::fabs(p);
        }
        size_t next = 0;
        for (const EpilogueStage &stage : epilogue) {
          double operand = 0;
          if (hasOperand(stage)) {
            const Tensor &t = operands[next++];
            operand = t.values[stage.kind == EpilogueStage::ScaleAll   ? 0
                               : stage.kind == EpilogueStage::ScaleRow ? i
                               : stage.kind == EpilogueStage::AddLastRows
                                   ? ((size_t)i * seq + std::max(0, lengths[i] - 1)) * shape.n + j
                               : stage.kind == EpilogueStage::AddBias || isScale(stage)
                                   ? j
                                   : (size_t)i * shape.n + j];
            magnitude = isScale(stage) ? magnitude * operand : magnitude + std::fabs(operand);
          }
          if (stage.kind == EpilogueStage::GeluTanhHalf)
            magnitude += std::fabs(sum) / 4096 / 2e-6;
          sum = apply(stage, sum, operand);
        }
        size_t at = (size_t)i * shape.n + j;
        want[at] = sum;
        // fp32 sums of up to k terms, and the result's own rounding, also for subnormal halves.
        bound[at] = magnitude * 2e-6 + (yt == Scalar::F16 ? std::ldexp(1.0, -25) : 0);
      }
  }

  /// `rows` are normalised and rounded to `xt`. One that lies on the edge between two values may
  /// round either way; weights of deviation 1 / sqrt(k) make that small.
  void computeNormalised(const std::vector<double> &rows, const Epilogue &epilogue, Scalar xt,
                         Scalar yt) {
    compute(rows, w.values, epilogue, yt);
    double squares = 0;
    for (double v : w.values)
      squares += v * v;
    const double flip =
        (xt == Scalar::F16 ? 3e-4 : 1e-6) * std::sqrt(squares / (double)w.values.size() * shape.k);
    for (double &b : bound)
      b += flip;
  }

  std::vector<Argument> arguments() const { return {&x, &w, &y, shape.m, shape.n, shape.k}; }
  void appendOperands(std::vector<Argument> &list) const {
    for (const Tensor &t : operands) {
      list.push_back(&t);
      if (gathered && &t == &operands[*gathered]) {
        list.push_back(&lengthsInput);
        list.push_back(seq);
      }
    }
  }
};

inline double relative(Scalar y) { return y == Scalar::F16 ? 1.02 / 2048 : 3e-6; }
inline unsigned blocks(int total, int each) { return (unsigned)((total + each - 1) / each); }

/// Runs twice over the same workspace: counters must be zero again, and results the same bits.
inline void check(Run &run, int kernel, Problem &p, std::array<unsigned, 3> grid,
                  const std::vector<Argument> &arguments, Scalar y,
                  std::optional<double> share = {}) {
  run.launch(kernel, grid, arguments);
  std::vector<double> first = run.read(p.y);
  run.launch(kernel, grid, arguments);
  run.expect(run.read(p.y) == first, "a second launch gave other bits");
  run.expectNear(p.y, p.want, share.value_or(relative(y)), p.bound);
}

inline const Epilogue plain = {};
inline Epilogue bias(Scalar t) { return {{EpilogueStage::AddBias, t}}; }
inline Epilogue biasGelu(Scalar t, EpilogueStage::Kind kind) {
  return {{EpilogueStage::AddBias, t}, {kind}};
}
inline Epilogue biasLastRows(Scalar t) {
  return {{EpilogueStage::AddBias, t}, {EpilogueStage::AddLastRows, t}};
}
inline Epilogue biasResidual(Scalar t, Scalar r) {
  return {{EpilogueStage::AddBias, t}, {EpilogueStage::AddMatrix, r}};
}
inline Epilogue everything(Scalar t) {
  return {{EpilogueStage::AddBias, t},   {EpilogueStage::Silu}, {EpilogueStage::MulMatrix, t},
          {EpilogueStage::AddMatrix, t}, {EpilogueStage::Relu}, {EpilogueStage::Tanh}};
}

} // namespace gpt2c::kernels
