// One proof: a bound for each op between queries and scores.
#include "passes/proof/bounds/ScoreBound.h"

#include "ir/ops/Blas.h"
#include "ir/ops/Common.h"
#include "passes/fuse/MergedProduct.h"
#include "passes/proof/masks/AttentionProbe.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

static const Interval everything{-INFINITY, INFINITY};

double Interval::magnitude() const { return std::max(std::abs(low), std::abs(high)); }

static Interval around(double magnitude) { return {-magnitude, magnitude}; }
static Interval hull(Interval a, Interval b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}
static Interval times(Interval a, double factor) {
  Interval r{a.low * factor, a.high * factor};
  return factor < 0 ? Interval{r.high, r.low} : factor == 0 ? Interval{0, 0} : r;
}

//===-- rows of products --------------------------------------------------------------------===//

namespace {

/// Rows y = G u + c, with G [m, n] and |u| <= radius.
struct RowSet {
  std::vector<double> g, c;
  int64_t m = 0, n = 0;
  double radius = 0;
};

/// What a product reads: x = d u + b, element by element, with |u| <= radius.
struct Ellipsoid {
  std::vector<double> d, b;
  double radius = 0;
};

class Bounds {
public:
  Bounds(const Function &f, Obstacle &why) : f_(f), why_(why) {}

  Interval range(Value *v, unsigned depth = 0);

private:
  Interval unknown(const Value *v, llvm::StringRef reason = "has no bound") {
    if (why_.reason.empty()) {
      why_ = (v->def() ? v->def()->describe() : "argument " + v->name) + " " + reason.str();
      why_.op = v->def();
    }
    return everything;
  }

  std::optional<Tensor> constantValue(Value *v);
  std::optional<std::vector<double>> vectorOf(Value *v, int64_t size);
  std::optional<Ellipsoid> ellipsoid(Value *x, unsigned depth);
  std::optional<RowSet> rows(Value *v, int64_t begin, int64_t count, unsigned depth);
  std::optional<double> length(Value *v, int64_t begin, int64_t count, unsigned depth);
  std::vector<double> lengths(const HeadLayout &l, unsigned depth);
  Interval ofRows(Value *v, unsigned depth);
  Interval ofProduct(Op *matmul, unsigned depth);

  const Function &f_;
  Obstacle &why_;
};

} // namespace

/// The elements of a constant, also of one that is only dequantised.
std::optional<Tensor> Bounds::constantValue(Value *v) {
  if (Op *c = constantOp(v))
    return c->constant.valid() ? std::optional(c->constant) : std::nullopt;
  BackwardSlice slice = backwardSlice(v, [](Value *) { return false; });
  if (!slice.leaves.empty() || slice.ops.size() > 8)
    return std::nullopt;
  return probe(f_, v, Executor::Bindings(), {});
}

std::optional<std::vector<double>> Bounds::vectorOf(Value *v, int64_t size) {
  if (!v)
    return std::vector<double>(size, 0.0);
  auto t = constantValue(v);
  if (!t || t->count() != size)
    return std::nullopt;
  std::vector<double> out(size);
  t->load(0, out);
  return out;
}

/// Copies that keep rows along the last axis.
static Value *throughRows(Value *v) {
  while (v->def()) {
    const Op *op = v->def();
    bool keeps = op->is(OpCode::Cast)
                     ? isFloat(op->operand(0)->type.dtype) && isFloat(v->type.dtype)
                     : op->is(OpCode::Reshape) && v->type.rank() > 0 &&
                           op->operand(0)->type.rank() > 0 &&
                           v->type.shape.back() == op->operand(0)->type.shape.back();
    if (!keeps)
      break;
    v = op->operand(0);
  }
  return v;
}

/// Behind a norm |u|^2 = n variance / (variance + epsilon) < n; else a bound of the elements is one
/// of the rows.
std::optional<Ellipsoid> Bounds::ellipsoid(Value *x, unsigned depth) {
  x = throughRows(x);
  auto width = x->type.rank() ? x->type.shape.back().constant() : std::nullopt;
  if (!width)
    return unknown(x), std::nullopt;
  Op *op = x->def();
  bool norm =
      op && (op->is(OpCode::RmsNorm) ||
             (op->is(OpCode::LayerNorm) &&
              (op->intAttr("axis") == -1 ||
               op->intAttr("axis") == int64_t(op->operand(ops::LayerNorm::X)->type.rank()) - 1)));
  if (norm) {
    auto d = vectorOf(op->operand(ops::LayerNorm::Scale), *width);
    auto b =
        vectorOf(op->is(OpCode::LayerNorm) ? op->operand(ops::LayerNorm::Bias) : nullptr, *width);
    if (d && b)
      return Ellipsoid{std::move(*d), std::move(*b), std::sqrt(double(*width))};
    return unknown(x, "has a gain that is not constant"), std::nullopt;
  }
  // Of a few columns, as those between the two products of a low rank, the length itself.
  constexpr int64_t few = 256;
  if (op && op->is(OpCode::Linear) && *width <= few)
    if (auto radius = length(x, 0, *width, depth + 1))
      return Ellipsoid{std::vector<double>(*width, 1.0), std::vector<double>(*width, 0.0), *radius};
  double most = range(x, depth + 1).magnitude();
  if (!std::isfinite(most))
    return std::nullopt;
  return Ellipsoid{std::vector<double>(*width, 1.0), std::vector<double>(*width, 0.0),
                   most * std::sqrt(double(*width))};
}

/// Columns [begin, begin + count) of a linear.
std::optional<RowSet> Bounds::rows(Value *v, int64_t begin, int64_t count, unsigned depth) {
  v = throughRows(v);
  Op *op = v->def();
  if (!op || !op->is(OpCode::Linear) || op->operand(ops::Linear::Residual) ||
      op->stringAttr("activation") != "none")
    return unknown(v, "is no product with weights"), std::nullopt;
  auto x = ellipsoid(op->operand(ops::Linear::X), depth);
  auto w = x ? constantValue(op->operand(ops::Linear::W)) : std::nullopt;
  auto bias = w ? vectorOf(op->operand(ops::Linear::Bias), w->dim(0)) : std::nullopt;
  if (!bias || w->dim(1) != int64_t(x->d.size()) || begin + count > w->dim(0)) {
    if (x)
      unknown(v, "has weights that are not constant");
    return std::nullopt;
  }
  RowSet r{std::vector<double>(count * w->dim(1)), std::vector<double>(count), count, w->dim(1),
           x->radius};
  w->load(begin * r.n, r.g);
  for (int64_t i = 0; i < count; ++i) {
    double *row = r.g.data() + i * r.n, sum = (*bias)[begin + i];
    for (int64_t j = 0; j < r.n; ++j) {
      sum += row[j] * x->b[j];
      row[j] *= x->d[j];
    }
    r.c[i] = sum;
  }
  return r;
}

static double norm(llvm::ArrayRef<double> v) {
  double sum = 0;
  for (double x : v)
    sum += x * x;
  return std::sqrt(sum);
}

/// |G^T v|
static double normOfTransposed(const RowSet &r, llvm::ArrayRef<double> v) {
  std::vector<double> sum(r.n, 0.0);
  for (int64_t i = 0; i < r.m; ++i)
    for (int64_t j = 0; j < r.n; ++j)
      sum[j] += r.g[i * r.n + j] * v[i];
  return norm(sum);
}

double largestEigenvalue(llvm::ArrayRef<double> p, llvm::ArrayRef<double> q, int64_t n) {
  std::vector<double> m(n * n), next(n * n);
  matrixProduct<double>({p.data(), n}, {q.data(), n}, {m.data(), n}, n, n, n, false);
  // trace (P Q)^(2^k) >= largest^(2^k), scaled in every round.
  constexpr int rounds = 6;
  double logarithm = 0;
  for (int k = 0;; ++k) {
    double top = 0, trace = 0;
    for (double x : m)
      top = std::max(top, std::abs(x));
    if (!(top > 0) || !std::isfinite(top))
      return top == 0 ? 0 : INFINITY;
    logarithm += std::log(top) / std::exp2(k);
    for (double &x : m)
      x /= top;
    if (k == rounds) {
      for (int64_t i = 0; i < n; ++i)
        trace += m[i * n + i];
      // Rounding must not make the trace smaller than the sum it stands for.
      return std::exp(logarithm + std::log(std::max(trace, 0.0) + 1e-9 * n) / std::exp2(k));
    }
    matrixProduct<double>({m.data(), n}, {m.data(), n}, {next.data(), n}, n, n, n, false);
    std::swap(m, next);
  }
}

static std::vector<double> gram(const RowSet &r) {
  std::vector<double> out(r.m * r.m);
  matrixProduct<double>({r.g.data(), r.n}, {r.g.data(), r.n, true}, {out.data(), r.m}, r.m, r.m,
                        r.n, false);
  return out;
}

/// The most that a rotation stretches a pair: the largest radius in its tables.
static std::optional<double> stretchOf(const std::optional<Tensor> &cos,
                                       const std::optional<Tensor> &sin) {
  if (!cos || !sin || cos->count() != sin->count())
    return std::nullopt;
  double most = 0;
  for (int64_t i = 0; i < cos->count(); ++i)
    most = std::max(most, std::hypot(cos->asDouble(i), sin->asDouble(i)));
  return most;
}

/// The largest norm of elements [begin, begin + count) of a row, which are one head.
std::optional<double> Bounds::length(Value *v, int64_t begin, int64_t count, unsigned depth) {
  v = throughRows(v);
  Op *op = v->def();
  if (!op || depth > 16)
    return unknown(v, "is no product with weights"), std::nullopt;
  switch (op->code()) {
  case OpCode::Rope: {
    auto stretch = stretchOf(constantValue(op->operand(ops::Rope::Cos)),
                             constantValue(op->operand(ops::Rope::Sin)));
    if (!stretch || op->operand(ops::Rope::Scale) || op->intAttr("head_dim") != count ||
        begin % count != 0)
      return unknown(v), std::nullopt;
    auto before = length(op->operand(ops::Rope::X), begin, count, depth + 1);
    return before ? std::optional(*before * std::max(*stretch, 1.0)) : std::nullopt; // some stay
  }
  case OpCode::Slice: {
    Columns c = columnSlice(v);
    if (c.source == v || c.step != 1)
      return unknown(v), std::nullopt;
    return length(c.source, c.first + begin, count, depth + 1);
  }
  case OpCode::Reshape: { // [.., heads, head_dim] to [.., heads * head_dim]
    const Shape &heads = op->operand(0)->type.shape;
    if (heads.empty() || heads.back() != Dim(count) || begin % count != 0)
      return unknown(v), std::nullopt;
    return length(op->operand(0), 0, count, depth + 1);
  }
  case OpCode::Transpose: // of heads and tokens
    if (v->type.shape.back() != Dim(count) || begin != 0 ||
        op->dimsAttr("perm").back() != Dim(int64_t(v->type.rank()) - 1))
      return unknown(v), std::nullopt;
    return length(op->operand(0), 0, count, depth + 1);
  case OpCode::Add: { // |a + b| <= |a| + |b|, a vector of constants one of them
    double sum = 0;
    for (Value *part : op->operands()) {
      const auto width = v->type.shape.back().constant();
      if (!width || begin + count > *width)
        return unknown(v), std::nullopt;
      if (auto vector = vectorOf(part, *width)) {
        sum += norm(llvm::ArrayRef(*vector).slice(begin, count));
        continue;
      }
      auto own =
          part->type.shape == v->type.shape ? length(part, begin, count, depth + 1) : std::nullopt;
      if (!own)
        return unknown(v, "is no sum of products with weights"), std::nullopt;
      sum += *own;
    }
    return sum;
  }
  case OpCode::Mul: { // by a number
    for (unsigned i : {0, 1}) {
      auto factor = constantValue(op->operand(i));
      if (!factor || factor->count() != 1 || op->operand(1 - i)->type.shape != v->type.shape)
        continue;
      auto before = length(op->operand(1 - i), begin, count, depth + 1);
      return before ? std::optional(*before * std::abs(factor->asDouble(0))) : std::nullopt;
    }
    return unknown(v, "is no product with weights"), std::nullopt;
  }
  case OpCode::LayerNorm:
  case OpCode::RmsNorm: {
    auto x = ellipsoid(v, depth);
    const int64_t size = x ? int64_t(x->d.size()) : 0, at = size ? begin % size : 0;
    if (!x || at + count > size)
      return unknown(v), std::nullopt;
    double gain = 0;
    for (double d : llvm::ArrayRef(x->d).slice(at, count))
      gain = std::max(gain, std::abs(d));
    return x->radius * gain + norm(llvm::ArrayRef(x->b).slice(at, count));
  }
  default: {
    auto r = rows(v, begin, count, depth);
    if (!r)
      return std::nullopt;
    std::vector<double> identity(count * count, 0.0);
    for (int64_t i = 0; i < count; ++i)
      identity[i * (count + 1)] = 1;
    return r->radius * std::sqrt(largestEigenvalue(gram(*r), identity, count)) + norm(r->c);
  }
  }
}

/// The largest norms of all heads of a source; none where one has no bound.
std::vector<double> Bounds::lengths(const HeadLayout &l, unsigned depth) {
  std::vector<double> out;
  for (int64_t h = 0; h < l.sourceHeads(); ++h) {
    auto most = length(l.source, l.offset + h * l.headDim, l.headDim, depth);
    if (!most)
      return {};
    out.push_back(*most);
  }
  return out;
}

/// The largest |q k| of a head whose queries and keys are rows of products.
static double boundOfRows(const RowSet &q, const RowSet &k) {
  double between = 0;
  for (int64_t i = 0; i < q.m; ++i)
    between += q.c[i] * k.c[i];
  double spectral = std::sqrt(largestEigenvalue(gram(q), gram(k), q.m));
  return q.radius * k.radius * spectral + q.radius * normOfTransposed(q, k.c) +
         k.radius * normOfTransposed(k, q.c) + std::abs(between);
}

/// Scores of heads, from where queries and keys are copied.
Interval Bounds::ofProduct(Op *matmul, unsigned depth) {
  Obstacle reason;
  auto q = probeHeads(f_, matmul->operand(ops::MatMul::A), false, reason);
  auto k = q ? probeHeads(f_, matmul->operand(ops::MatMul::B), true, reason) : std::nullopt;
  if (!k)
    return unknown(matmul->result(), "is no product of heads: " + reason.reason);
  k->broadcastTo(*q);
  if (q->heads != k->heads || q->headDim != k->headDim)
    return unknown(matmul->result(), "multiplies heads of different number or size");
  auto isProduct = [](const HeadLayout &l) {
    const Op *op = throughRows(l.source)->def();
    return op && op->is(OpCode::Linear);
  };
  bool products = isProduct(*q) && isProduct(*k);
  std::vector<double> ofQ, ofK;
  if (!products) {
    ofQ = lengths(*q, depth);
    ofK = ofQ.empty() ? ofQ : lengths(*k, depth);
    if (ofK.empty())
      return everything;
  }
  double most = 0;
  for (int64_t h = 0; h < q->heads; ++h) {
    int64_t hq = h / q->group, hk = h / k->group;
    double bound = 0;
    if (products) {
      auto a = rows(q->source, q->offset + hq * q->headDim, q->headDim, depth);
      auto b = a ? rows(k->source, k->offset + hk * k->headDim, k->headDim, depth) : std::nullopt;
      if (!b)
        return everything;
      bound = boundOfRows(*a, *b);
    } else {
      bound = ofQ[hq] * ofK[hk];
    }
    if (!(bound <= most)) // NaN counts as no bound
      most = std::isnan(bound) ? INFINITY : bound;
  }
  return around(most * std::abs(q->factor * k->factor) * 1.02);
}

/// Elements of products with weights, and of norms.
Interval Bounds::ofRows(Value *v, unsigned depth) {
  Interval all{INFINITY, -INFINITY};
  if (v->def()->is(OpCode::Linear)) {
    auto width = v->type.shape.back().constant();
    auto r = width ? rows(v, 0, *width, depth) : std::nullopt;
    if (!r)
      return unknown(v);
    for (int64_t i = 0; i < r->m; ++i) {
      double reach = r->radius * norm({r->g.data() + i * r->n, size_t(r->n)}) * 1.02;
      all = hull(all, {r->c[i] - reach, r->c[i] + reach});
    }
  } else {
    auto x = ellipsoid(v, depth);
    if (!x)
      return unknown(v);
    for (auto [d, b] : llvm::zip(x->d, x->b)) {
      double reach = x->radius * std::abs(d) * 1.02;
      all = hull(all, {b - reach, b + reach});
    }
  }
  return std::isnan(all.low) || std::isnan(all.high) ? everything : all;
}

/// The value behind an addend that is not negative, or `v`.
static Value *withoutAddend(Value *v) {
  if (!v->def() || !v->def()->is(OpCode::Add))
    return v;
  for (unsigned i : {0u, 1u})
    if (auto c = scalarConstant(v->def()->operand(i)); c && *c >= 0)
      return v->def()->operand(1 - i);
  return v;
}

/// x / d with d at least sqrt(mean of x^2) along the last axis: what is left of a norm in parts.
/// Its rows of n elements have squares that sum to n at most.
static bool dividesByDeviation(const Op &op) {
  Value *x = op.operand(ops::Div::A), *root = withoutAddend(op.operand(ops::Div::B));
  if (!x->type.rank() || !x->type.shape.back().isConstant() || !root->def() ||
      !root->def()->is(OpCode::Sqrt))
    return false;
  Op *mean = withoutAddend(root->def()->operand(0))->def();
  if (!mean || !mean->is(OpCode::ReduceMean) || mean->numOperands() != 1)
    return false;
  const Dims *axes = std::get_if<Dims>(mean->attr("axes"));
  if (!axes || axes->size() != 1 ||
      ((*axes)[0] != Dim(-1) && (*axes)[0] != Dim(int64_t(x->type.rank()) - 1)))
    return false;
  const Op *square = mean->operand(0)->def();
  return square && square->operand(0) == x &&
         ((square->is(OpCode::Mul) && square->operand(1) == x) ||
          (square->is(OpCode::Pow) && scalarConstant(square->operand(ops::Pow::B)) == 2.0));
}

//===-- ranges ------------------------------------------------------------------------------===//

Interval Bounds::range(Value *v, unsigned depth) {
  Op *op = v->def();
  if (!op || depth > 16)
    return unknown(v);
  auto of = [&](unsigned i) { return range(op->operand(i), depth + 1); };
  auto scalar = [&](unsigned i) { return scalarConstant(op->operand(i)); };
  switch (op->code()) {
  case OpCode::Constant: {
    if (!op->constant.valid())
      return unknown(v);
    Interval all{INFINITY, -INFINITY};
    for (int64_t i = 0; i < op->constant.count(); ++i)
      all = hull(all, {op->constant.asDouble(i), op->constant.asDouble(i)});
    return all;
  }
  case OpCode::Cast:
    return isFloat(v->type.dtype) ? of(0) : unknown(v);
  case OpCode::Reshape:
  case OpCode::Transpose:
  case OpCode::Expand:
  case OpCode::Slice:
  case OpCode::Gather:
    return of(0);
  case OpCode::Neg:
    return times(of(0), -1);
  case OpCode::Mul: {
    if (auto c = scalar(1))
      return times(of(0), *c);
    Interval a = of(0), b = of(1);
    if (!std::isfinite(a.magnitude()) || !std::isfinite(b.magnitude()))
      return unknown(v);
    return hull(hull(times(a, b.low), times(a, b.high)), hull(times(b, a.low), times(b, a.high)));
  }
  case OpCode::Div:
    if (dividesByDeviation(*op))
      return around(std::sqrt(double(*v->type.shape.back().constant())) * 1.02);
    return scalar(ops::Div::B) ? times(of(ops::Div::A), 1 / *scalar(ops::Div::B)) : unknown(v);
  case OpCode::Add: {
    Interval a = of(0), b = of(1);
    return {a.low + b.low, a.high + b.high};
  }
  case OpCode::Max: {
    Interval a = of(0), b = of(1);
    return {std::max(a.low, b.low), std::max(a.high, b.high)};
  }
  case OpCode::Min: {
    Interval a = of(0), b = of(1);
    return {std::min(a.low, b.low), std::min(a.high, b.high)};
  }
  case OpCode::Where:
    return hull(of(ops::Where::A), of(ops::Where::B));
  case OpCode::Tanh:
  case OpCode::Erf:
    return around(1);
  case OpCode::Sigmoid:
  case OpCode::Softmax:
    return {0, 1};
  case OpCode::LayerNorm:
  case OpCode::RmsNorm:
  case OpCode::Linear:
    return ofRows(v, depth);
  case OpCode::MatMul:
    return ofProduct(op, depth);
  default:
    return unknown(v);
  }
}

Interval rangeOf(const Function &f, Value *v, Obstacle &why) { return Bounds(f, why).range(v); }

} // namespace gpt2c
