// recognise-norm: a chain over the last axis that computes
//   layer_norm(x) = (x - mean(x)) / sqrt(var(x) + epsilon) * scale + bias
//   rms_norm(x)   = x / sqrt(mean(x^2) + epsilon) * scale             (Zhang and Sennrich 2019)
// becomes layer_norm or rms_norm, whatever its spelling. The chain consists of sums, products,
// powers and means over the last axis alone, two of them for a layer norm and one for an RMS norm.
// It is run in double precision on chosen rows: a row of
// zeros gives the bias, a row of large spread gives the scale, a row of small variance gives
// epsilon. Random rows then check it, rows with one element far from all others, where the
// deviation is the largest that a row of that width can have, at sizes from 2^-100 to 2^100, and
// rows whose mean is up to 2^18 times as large as their deviation, or as many times smaller.
// A chain in half precision may overflow where the op, which computes in f32, does not.
#include "ir/Decimal.h"
#include "ir/Norms.h"
#include "passes/proof/bounds/ChainForm.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

/// What a near match may consist of as well: a remark then names what is no part of a norm.
static bool isNormOp(const Op *op) {
  if (op->is(OpCode::Constant))
    return true;
  DType dtype = op->numResults() == 1 ? op->result()->type.dtype : DType::I32;
  bool reduces = op->is(OpCode::ReduceMean) || op->is(OpCode::ReduceSum);
  return (op->info().has(Elementwise) || reduces) && (isFloat(dtype) || dtype == DType::Bool);
}

static bool isNormOf(Value *root, Value *x) {
  if (root != x && root->def() && !isNormOp(root->def()))
    return false;
  BackwardSlice s = backwardSlice(root, [&](Value *v) { return v == x || !isNormOp(v->def()); });
  return llvm::all_of(s.leaves, [&](Value *v) { return v == x; });
}

/// Values of which the chain may be a norm, nearest first: what is reduced above the square root
/// and, for an RMS norm, what the square is made of. Where one is a cast, what was cast comes
/// first.
static llvm::SmallVector<Value *> normInputs(Op *squareRoot, NormKind kind) {
  llvm::SmallVector<Value *> order{squareRoot->operand(0)}, inputs;
  auto add = [&](Value *x) {
    if (!x || x->type.rank() < 2 || llvm::is_contained(inputs, x) ||
        !isNormOf(squareRoot->result(), x))
      return;
    Op *def = x->def();
    if (def && def->is(OpCode::Cast) && isFloat(def->operand(0)->type.dtype))
      inputs.push_back(def->operand(0));
    inputs.push_back(x);
  };
  for (size_t i = 0; i < order.size() && order.size() < 32; ++i) {
    Op *def = order[i]->def();
    if (!def || !isNormOp(def) || def->is(OpCode::Constant))
      continue;
    Value *x = def->operand(0);
    if (!def->info().has(Elementwise)) {
      add(x);
      if (kind == NormKind::Rms && x->def() && x->def()->info().has(Elementwise))
        for (Value *factor : x->def()->operands())
          add(factor);
    }
    for (Value *o : def->operands())
      if (o && !constantOp(o) && !llvm::is_contained(order, o))
        order.push_back(o);
  }
  return inputs;
}

/// Ops after the square root that are still functions of x, nearest first.
static llvm::SmallVector<Op *> normRoots(Op *squareRoot, Value *x) {
  llvm::SmallVector<Op *> roots{squareRoot};
  for (size_t i = 0; i < roots.size() && roots.size() < 12; ++i)
    for (const Use &u : roots[i]->result()->uses())
      if (!llvm::is_contained(roots, u.op) && u.op->numResults() == 1 && isNormOp(u.op) &&
          isNormOf(u.op->result(), x))
        roots.push_back(u.op);
  llvm::erase_if(roots, [&](Op *op) { return op->result()->type != x->type; });
  return roots;
}

struct NormParameters {
  std::vector<double> scale, bias;
  double epsilon = 0;
};

static bool isZero(const std::vector<double> &values) {
  return llvm::all_of(values, [](double v) { return v == 0; });
}

/// Why a chain is no norm: of several attempts, the one that came nearest.
struct NormMiss {
  double error = INFINITY;
  std::string why = "no op after the square root has the input's type";
  const Op *foreign = nullptr; ///< an op that is no part of a norm

  std::nullopt_t add(const std::string &reason, double by = INFINITY) {
    if (by < error || std::isinf(error)) {
      error = by;
      why = reason;
    }
    return std::nullopt;
  }
};

struct RowStatistics {
  double mean = 0, variance = 0;
};

/// What is subtracted from a row, and the mean square of the rest.
static RowStatistics statistics(const double *row, int64_t n, NormKind kind) {
  RowStatistics s;
  for (int64_t i = 0; i < n && kind == NormKind::Layer; ++i)
    s.mean += row[i] / double(n);
  for (int64_t i = 0; i < n; ++i)
    s.variance += (row[i] - s.mean) * (row[i] - s.mean) / double(n);
  return s;
}

constexpr int64_t probedRows = 6;

/// Rows of all sizes and both signs: one element at `far` from the others, and random ones; then
/// random ones whose mean is 2 to 2^18 times as large as their deviation, and as many times
/// smaller.
static Tensor provingRows(unsigned rank, int64_t n) {
  constexpr int sizes[] = {-100, -40, -24, -16, -12, -8, -6, -4, -2, 0, 2, 4, 8, 14, 24, 60, 100};
  constexpr int means[] = {1, 3, 5, 7, 9, 12, 15, 18}, scales[] = {-12, 0, 12};
  constexpr int64_t kinds = 3, alike = int64_t(std::size(sizes)) * kinds,
                    rows = alike + int64_t(std::size(means)) * int64_t(std::size(scales)) * 2;
  llvm::SmallVector<int64_t> shape(rank, 1);
  shape[rank - 2] = rows;
  shape.back() = n;
  Tensor in = randomTensor(shape, 23);
  double *p = in.data<double>();
  for (int64_t r = 0; r < alike; ++r) {
    double size = std::ldexp(1.0, sizes[r / kinds]);
    int64_t far = r * 7919 % n;
    for (int64_t i = 0; i < n; ++i) {
      double &x = p[r * n + i];
      double alone = r % kinds == 0 ? i == far : -double(i == far);
      x = (r % kinds == 2 ? x : alone) * size;
    }
  }
  double *row = p + alike * n;
  for (int scale : scales)
    for (int ratio : means)
      for (int sign : {1, -1}) { // a large mean, then a small one
        double mean = 0;
        for (int64_t i = 0; i < n; ++i)
          mean += row[i] / double(n);
        const double size = std::ldexp(1.0, scale),
                     to = std::ldexp(ratio % 4 < 2 ? -1.0 : 1.0, sign * ratio);
        for (int64_t i = 0; i < n; ++i)
          row[i] = (row[i] - mean + to) * size;
        row += n;
      }
  return in;
}

/// Rows: zeros; spread 1e4; variance about 1e-5, then 1e-9, where an epsilon outside the root
/// tells; two random ones with a mean.
static Tensor probeRows(unsigned rank, int64_t n) {
  llvm::SmallVector<int64_t> shape(rank, 1);
  shape[rank - 2] = probedRows;
  shape.back() = n;
  Tensor in = randomTensor(shape, 11);
  double *p = in.data<double>();
  for (int64_t i = 0; i < n; ++i) {
    // Alternating signs keep every normalised element away from zero.
    double sign = i % 2 ? -1 : 1, size = 0.75 + 0.25 * p[n + i];
    p[i] = 0;
    p[n + i] = sign * size * 1e4;
    p[2 * n + i] = sign * size * 5e-3;
    p[3 * n + i] = sign * size * 5e-5;
    p[4 * n + i] = 0.5 + p[4 * n + i];
    p[5 * n + i] = -3 + 2 * p[5 * n + i];
  }
  return in;
}

/// How far `y` is from the norm of the rows of x, from row `first` on; 0: within rounding.
static double largestError(const Tensor &x, const Tensor &y, int64_t first, NormKind kind,
                           const NormParameters &norm) {
  int64_t n = x.dim(-1);
  double worst = 0;
  bool agrees = true;
  for (int64_t r = first; r < x.dim(-2); ++r) {
    const double *from = x.data<double>() + r * n, *to = y.data<double>() + r * n;
    RowStatistics s = statistics(from, n, kind);
    for (int64_t i = 0; i < n; ++i) {
      double expected =
          (from[i] - s.mean) / std::sqrt(s.variance + norm.epsilon) * norm.scale[i] + norm.bias[i];
      double error = std::abs(to[i] - expected);
      // mean(x^2) - mean(x)^2 loses as many digits as the mean is larger than the deviation.
      double lost = kind == NormKind::Layer ? s.mean * s.mean / std::max(s.variance, 1e-300) : 0;
      agrees &= error <= (1e-6 + std::min(lost * 0x1p-48, 0.01)) * (1 + std::abs(expected));
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  }
  return agrees ? 0 : worst;
}

/// Parameters with which `root` is a norm of x; `miss` says what differs otherwise.
static std::optional<NormParameters> normParameters(Function &f, Value *root, Value *x,
                                                    NormKind kind, NormMiss &miss) {
  auto width = x->type.shape.back().constant();
  if (!width || *width < 2)
    return miss.add("the last axis has no constant width of at least 2");
  int64_t n = *width;
  Tensor in = probeRows(x->type.rank(), n);
  std::string why;
  auto out = probe(f, root, {{x, in}}, {}, &why);
  if (!out)
    return miss.add(why);
  if (out->count() != in.count() || out->dtype() != DType::F64)
    return miss.add("its result has another shape than its input");
  const double *p = in.data<double>(), *y = out->data<double>();
  NormParameters result;
  for (int64_t i = 0; i < n; ++i)
    result.bias.push_back(y[i] + 0.0); // -0.0 becomes 0.0
  RowStatistics wide = statistics(p + n, n, kind), narrow = statistics(p + 2 * n, n, kind);
  double widest = 0, ratio = 0;
  for (int64_t i = 0; i < n; ++i) {
    double normalised = (p[n + i] - wide.mean) / std::sqrt(wide.variance);
    result.scale.push_back((y[n + i] - y[i]) / normalised);
    double small = (p[2 * n + i] - narrow.mean) / std::sqrt(narrow.variance) * result.scale[i];
    if (std::abs(small) > widest) {
      widest = std::abs(small);
      ratio = (y[2 * n + i] - y[i]) / small;
    }
  }
  result.epsilon = ratio > 0 ? narrow.variance * (1 / (ratio * ratio) - 1) : -1;
  if (!(result.epsilon > -1e-12 && result.epsilon < 1))
    return miss.add("no epsilon explains its values");
  // Parameters are stored in single precision: the nearest float is what the exporter wrote.
  result.epsilon = std::max(0.0, decimalOf(float(result.epsilon)));
  const char *formula = kind == NormKind::Layer ? "a layer norm" : "an RMS norm";
  auto differs = [&](double by) {
    return miss.add(std::string("it differs from ") + formula + " with epsilon " +
                        std::to_string(result.epsilon) + " by up to " + std::to_string(by),
                    by);
  };
  if (double by = largestError(in, *out, 2, kind, result))
    return differs(by);
  Tensor rows = provingRows(x->type.rank(), n);
  auto proof = probe(f, root, {{x, rows}}, {}, &why);
  if (!proof)
    return miss.add(why);
  if (double by = largestError(rows, *proof, 0, kind, result))
    return differs(by);
  if (kind == NormKind::Rms && !isZero(result.bias))
    return miss.add("an RMS norm has no bias", 0);
  return result;
}

static Tensor vectorOf(const std::vector<double> &values, DType dtype) {
  return Tensor::of<double>(values, {int64_t(values.size())}).cast(dtype);
}

/// Replaces `root`, which the parameters describe as a norm of x.
static llvm::Error replaceNorm(Function &f, Op *root, Value *x, NormKind kind,
                               const NormParameters &parameters) {
  Builder b(f, root);
  DType dtype = x->type.dtype;
  llvm::SmallVector<Value *, 3> operands{x, b.constant(vectorOf(parameters.scale, dtype))};
  if (kind == NormKind::Layer)
    operands.push_back(b.constant(vectorOf(parameters.bias, dtype)));
  auto norm = b.value(kind == NormKind::Layer ? OpCode::LayerNorm : OpCode::RmsNorm, operands,
                      {{"epsilon", parameters.epsilon}});
  if (!norm)
    return norm.takeError();
  BackwardSlice s = backwardSlice(root->result(), [&](Value *v) { return v == x; });
  adoptLocations(b.created(), s.ops);
  root->result()->replaceAllUsesWith(*norm);
  return llvm::Error::success();
}

/// True for a reduction over other axes than the last.
static bool reducesOthers(const Op &op) {
  if (!op.is(OpCode::ReduceMean) && !op.is(OpCode::ReduceSum))
    return false;
  std::vector<int64_t> axes = op.hasAttr("axes") ? op.intsAttr("axes") : std::vector<int64_t>();
  return axes.size() != 1 || (axes[0] != -1 && axes[0] != int64_t(op.operand(0)->type.rank()) - 1);
}

/// An op of the chain between x and `root` that no norm has, one mean too many among them; null
/// when there is none.
static const Op *foreignNormOp(Op *root, Value *x, NormKind kind) {
  constexpr OpCode means[] = {OpCode::ReduceMean, OpCode::ReduceSum};
  BackwardSlice s = backwardSlice(root->result(), [&](Value *v) { return v == x; });
  int64_t left = kind == NormKind::Layer ? 2 : 1;
  for (const Op *op : s.ops)
    if (reducesOthers(*op) || (llvm::is_contained(means, op->code()) && --left < 0))
      return op;
  return foreignOp(s.ops, x->type.dtype, means);
}

/// The op to which it is due that a chain with a square root is no norm: a reduction over other
/// axes, an epsilon outside the root.
static Obstacle blame(Op *squareRoot, llvm::ArrayRef<Op *> chain) {
  for (Op *op : chain)
    if (reducesOthers(*op))
      return {"", op, "axes"};
  for (const Use &u : squareRoot->result()->uses())
    if (u.op->is(OpCode::Add) && constantOp(u.op->operand(1 - u.operand)))
      return {"", u.op, "epsilon"};
  return {};
}

static llvm::Error recogniseNorm(PassContext &ctx, Function &f, Op *squareRoot) {
  NormMiss misses[2];
  bool candidate = false;
  llvm::SmallVector<Op *> chain;
  for (NormKind kind : {NormKind::Layer, NormKind::Rms}) {
    NormMiss &miss = misses[kind == NormKind::Rms];
    for (Value *x : normInputs(squareRoot, kind)) {
      candidate = true;
      auto roots = normRoots(squareRoot, x);
      if (chain.empty() && !roots.empty())
        chain = backwardSlice(roots.back()->result(), [&](Value *v) { return v == x; }).ops;
      for (Op *root : llvm::reverse(roots))
        if (const Op *foreign = foreignNormOp(root, x, kind)) {
          // A layer norm has more means than an RMS norm: that is no reason why it is none.
          if (kind == NormKind::Layer || reducesOthers(*foreign) || !foreign->info().has(Reduction))
            miss.foreign = foreign;
        } else if (auto parameters = normParameters(f, root->result(), x, kind, miss))
          return replaceNorm(f, root, x, kind, *parameters);
    }
  }
  NormMiss &miss = std::isfinite(misses[0].error) ? misses[0] : misses[1];
  Obstacle why = blame(squareRoot, chain);
  for (const NormMiss &m : misses)
    if (m.foreign && std::isinf(miss.error)) {
      miss.why = m.foreign->describe() + " is no part of a norm";
      if (!reducesOthers(*m.foreign))
        why = Obstacle{"", m.foreign, ""};
    }
  if (candidate)
    ctx.missed("layer_norm: the chain around " + squareRoot->describe() +
                   " takes a mean and a square root, but " + miss.why + "; kept as separate ops",
               squareRoot->locations)
        .of("layer_norm")
        .after("mean and square root")
        .stoppedBy(why)
        .costing(chain);
  return llvm::Error::success();
}

llvm::Error recogniseNorm(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> anchors;
    for (auto &op : f->ops()) {
      bool root = op->is(OpCode::Sqrt);
      if (op->is(OpCode::Pow))
        if (auto e = scalarConstant(op->operand(ops::Pow::B)))
          root = std::abs(*e) == 0.5;
      if (root && op->hasUses())
        anchors.push_back(op.get());
    }
    for (Op *anchor : anchors)
      if (anchor->hasUses())
        if (llvm::Error e = recogniseNorm(ctx, *f, anchor))
          return e;
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
