// What the cases of linear share: a product with an epilogue, its operands, and its reference in
// float64 with the error that a correct kernel may make.
#pragma once

#include "Suite.h"

#include "codegen/Grid.h"
#include "schedule/products/LinearProblem.h"
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

/// The case of a kernel with that shape.
inline CaseName caseOf(const std::string &group, const std::string &label, Shape s) {
  return {group + "/" + label + "/" + text(s), work(s)};
}

/// Random elements: integers of the whole range for int8.
Tensor randomInput(Run &run, size_t count, Scalar type, double deviation = 1);
/// Random scales around 1 / 73, which give integers of the whole range the deviation 1.
Tensor randomScales(Run &run, size_t count);

/// Operands of an epilogue, and the reference with the error a correct kernel may make.
struct Problem {
  Shape shape;
  Tensor x, w, y;
  std::vector<Tensor> operands;
  std::optional<size_t> gathered; ///< the operand of AddLastRows, of sequences of `seq` rows
  std::vector<int> lengths;
  Tensor lengthsInput;
  static constexpr int seq = 3;
  std::optional<EpilogueRotation> rotation; ///< that the epilogue ends with
  static constexpr int places = 19;         ///< of its tables
  Tensor cosines, sines, positionsInput;
  std::vector<int> positions;
  std::vector<double> want, bound;
  std::vector<double> extra; ///< of each sum, added to its bound; empty: nothing
  /// Of a sum, as a part of its terms' magnitudes: of fp32, or of fp8, whose terms lose bits as
  /// often up as down (templates/device/wgmma.cuh).
  double sumError = 2e-6;

  Problem(Run &run, Shape s, Scalar xt, Scalar wt, Scalar yt, const Epilogue &epilogue);

  void compute(const std::vector<double> &rows, const std::vector<double> &weights,
               const Epilogue &epilogue, Scalar yt);
  /// `rows` are normalised and rounded to `xt`. One that lies on the edge between two values may
  /// round either way; weights of deviation 1 / sqrt(k) make that small.
  void computeNormalised(const std::vector<double> &rows, const Epilogue &epilogue, Scalar xt,
                         Scalar yt);

  /// x, w, y, m, n and k, where the kernel's template does not know them, and the operands of the
  /// epilogue.
  Arguments arguments() const;
  /// The same with tensor maps for x and w, in boxes of bm and bn rows; they count in halves: those
  /// of a row.
  Arguments mapped(int bm, int bn, int ofX, int ofW) const;
  /// Has the kernel read the last operand of the epilogue, a matrix, by the tensor map `name`.
  void mapLast(Arguments &list, const std::string &name, int bm) const;

private:
  /// The results of pairs of columns, a gate and what it gates.
  void gatePairs(EpilogueStage activation);
  /// Pairs of columns turned by the positions of their rows, which are rounded before.
  void turnPairs();
  int positionOf(int row) const;
  bool dry_;
};

inline double relative(Scalar y) { return roundingOf(y, 3e-6); }

/// The grid of a kernel on that many multiprocessors.
template <typename Config> Grid gridFor(const Config &c, Shape s, int64_t processors = 1) {
  return gridOf(c, rt::constantExpr(s.m), s.n, processors);
}
/// The same on so few that blocks which take tile after tile go round.
template <typename Config> Grid gridOfRounds(const Config &c, Shape s) {
  const unsigned tiles = blocksOf(gridFor(c, s, INT32_MAX))[0];
  return gridFor(c, s, std::max(1u, tiles / 3));
}

/// Workspace of kernels whose parts of K meet in memory.
struct SplitK {
  Tensor partial, counters;

  template <typename Config>
  SplitK(Run &run, Shape s, const Config &c)
      : partial(run.output((size_t)c.splitK * s.m * s.n, Scalar::F32)),
        counters(run.zeroed(size_t(4) * divideCeilSigned(s.m, c.bm) * divideCeilSigned(s.n, c.bn))),
        present_(c.splitK > 1) {}
  void addTo(Arguments &list) const {
    if (present_)
      list.set("partial", &partial).set("counters", &counters);
  }

private:
  bool present_;
};

/// Runs twice over the same workspace: counters must be zero again, and results the same bits.
void check(Run &run, int kernel, Problem &p, const Grid &grid, const Arguments &arguments, Scalar y,
           std::optional<double> share = {});

/// Mean and sum of squared deviations of parts of `width` columns, [parts, rows, 2].
std::vector<double> statisticsOf(const std::vector<double> &rows, int m, int n, int width);
/// The rows a fused norm hands to the product, as the kernel rounds them.
std::vector<double> normalised(const Tensor &x, const std::vector<double> &gain,
                               const std::vector<double> &shift, int m, int k, NormKind norm,
                               double epsilon);

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
/// What ends a product with int8 weights of one scale a column.
inline Epilogue scaledBias(Scalar t) {
  return {{EpilogueStage::ScaleColumn}, {EpilogueStage::AddBias, t}};
}
inline Epilogue scaledBias(Scalar t, EpilogueStage::Kind activation) {
  return {{EpilogueStage::ScaleColumn}, {EpilogueStage::AddBias, t}, {activation}};
}
inline Epilogue gate(EpilogueStage::Kind activation) {
  return {{EpilogueStage::Gate, Scalar::F32, activation}};
}
inline Epilogue biasGate(Scalar t, EpilogueStage::Kind activation) {
  return {{EpilogueStage::AddBias, t}, {EpilogueStage::Gate, Scalar::F32, activation}};
}
inline Epilogue scaledGate(EpilogueStage::Kind activation) {
  return {{EpilogueStage::ScaleColumn}, {EpilogueStage::Gate, Scalar::F32, activation}};
}
/// Of `n` columns the first `turned` heads, of `pairs` pairs each; results are stored as `stored`.
inline Epilogue rotate(Scalar stored, int headDim, int pairs, int turned,
                       EpilogueRotation::Positions of = EpilogueRotation::OfRows,
                       Scalar table = Scalar::F32) {
  EpilogueRotation r{.stored = stored,
                     .table = table,
                     .headDim = headDim,
                     .pairs = pairs,
                     .columns = turned * headDim,
                     .of = of};
  return {{.kind = EpilogueStage::Rotation, .rotation = r}};
}
inline Epilogue biasRotate(Scalar t, Epilogue rotate) {
  rotate.insert(rotate.begin(), {EpilogueStage::AddBias, t});
  return rotate;
}
inline Epilogue everything(Scalar t) {
  return {{EpilogueStage::AddBias, t},   {EpilogueStage::Silu}, {EpilogueStage::MulMatrix, t},
          {EpilogueStage::AddMatrix, t}, {EpilogueStage::Relu}, {EpilogueStage::Tanh}};
}

} // namespace gpt2c::kernels
