// recognise-gelu: a chain of elementwise ops around a tanh, an erf, a sigmoid or an exp that maps
// one value x to
//   gelu_tanh(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   (Hendrycks and Gimpel 2016)
//   gelu_erf(x)  = x/2 (1 + erf(x / sqrt 2))
//   silu(x)      = x / (1 + exp(-x))
// becomes gelu or silu, whatever its spelling. The proof: the chain consists of sums, products,
// powers and these functions alone, and it is run on every value of f16 or bf16 (for f32 on both,
// which covers all its exponents) and compared with the formula, once in double precision and once
// with each op in its own type, where infinities and NaN count as well. Between two values of f32
// that were compared its slope is bounded (proof/ChainBound.h). One that computes something else
// stays, and a remark says how far it is from the nearer formula, which op is no part of it, or
// where it may change course.
#include "passes/proof/bounds/ChainBound.h"
#include "passes/proof/bounds/ChainForm.h"
#include "passes/proof/masks/Probe.h"
#include "passes/quantize/Precision.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace gpt2c {

static double geluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
static double geluErf(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }
static double silu(double x) { return x / (1 + std::exp(-x)); }

static double geluTanhSlope(double x) {
  const double c = std::sqrt(2 / std::numbers::pi), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}
static double geluErfSlope(double x) {
  return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) +
         x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}
static double siluSlope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x / (2 + std::exp(x) + std::exp(-x));
}

/// 1 + tanh(u) is also written 2 sigmoid(2u), or with exp.
static bool isAnchor(const Op &op) {
  return op.is(OpCode::Tanh) || op.is(OpCode::Erf) || op.is(OpCode::Sigmoid) || op.is(OpCode::Exp);
}

static bool isPointwise(const Op &op) {
  if (!op.info().has(Elementwise) || op.numResults() != 1)
    return false;
  DType dtype = op.result()->type.dtype;
  return isFloat(dtype) || dtype == DType::Bool;
}

static bool isChainOp(const Op *op) {
  return op->is(OpCode::Constant) ? op->constant.valid() && op->constant.count() == 1
                                  : isPointwise(*op);
}

/// True when `root` is computed pointwise from x and scalar constants alone.
static bool isFunctionOf(Value *root, Value *x) {
  if (root != x && root->def() && !isChainOp(root->def()))
    return false;
  BackwardSlice s = backwardSlice(root, [&](Value *v) { return v == x || !isChainOp(v->def()); });
  return llvm::all_of(s.leaves, [&](Value *v) { return v == x; });
}

/// Values of which the anchor is a pointwise function, nearest first.
static llvm::SmallVector<Value *> chainInputs(Op *anchor) {
  // All ancestors through pointwise ops, nearest first.
  llvm::SmallVector<Value *> order{anchor->operand(0)};
  for (size_t i = 0; i < order.size(); ++i) {
    Op *def = order[i]->def();
    if (!def || !isPointwise(*def) || order.size() > 64)
      continue;
    for (Value *o : def->operands())
      if (o && !scalarConstant(o) && !llvm::is_contained(order, o))
        order.push_back(o);
  }
  llvm::erase_if(order, [&](Value *v) {
    return v->type.dtype != anchor->result()->type.dtype || !isFunctionOf(anchor->result(), v);
  });
  return order;
}

/// Ops reached from the anchor forwards that still are functions of x alone, nearest first.
static llvm::SmallVector<Op *> chainRoots(Op *anchor, Value *x) {
  llvm::SmallVector<Op *> roots{anchor};
  for (size_t i = 0; i < roots.size() && roots.size() < 16; ++i)
    for (const Use &u : roots[i]->result()->uses()) {
      if (llvm::is_contained(roots, u.op) || u.op->numResults() != 1 || !isPointwise(*u.op))
        continue;
      if (isFunctionOf(u.op->result(), x))
        roots.push_back(u.op);
    }
  return roots;
}

/// From -8 to 8 in steps of 0.1: enough to tell that a chain is none of the formulas.
static Tensor samplePoints() {
  std::vector<double> points;
  for (int64_t i = 0; i <= 160; ++i)
    points.push_back(-8 + 0.1 * double(i));
  return Tensor::of<double>(points, {161});
}

/// Every finite value of f16 or bf16, ascending; zero once.
static std::vector<double> finiteValues(DType dtype) {
  constexpr unsigned sign = 0x8000;
  std::vector<double> values;
  values.reserve(2 * sign);
  auto add = [&](unsigned bits) {
    const double v = dtype == DType::F16 ? halfToFloat(bits) : bfloatToFloat(bits);
    if (std::isfinite(v))
      values.push_back(v);
  };
  for (unsigned magnitude = sign - 1; magnitude > 0; --magnitude)
    add(sign | magnitude);
  for (unsigned magnitude = 0; magnitude < sign; ++magnitude)
    add(magnitude);
  return values;
}

/// Every finite value of the types, ascending: of bf16, they are 128 for each exponent of f32.
static Tensor everyValue(llvm::ArrayRef<DType> dtypes) {
  std::vector<double> points;
  for (DType dtype : dtypes) {
    const auto before = int64_t(points.size());
    llvm::append_range(points, finiteValues(dtype));
    std::inplace_merge(points.begin(), points.begin() + before, points.end());
  }
  points.erase(llvm::unique(points), points.end());
  if (dtypes.size() > 1) {
    points.insert(points.begin(), std::numeric_limits<float>::lowest());
    points.push_back(std::numeric_limits<float>::max());
  }
  return Tensor::of<double>(points, {int64_t(points.size())});
}

/// Where a chain on values of `dtype` is compared with the formulas.
static const Tensor &provingPoints(DType dtype) {
  if (dtype == DType::F16) {
    static const Tensor half = everyValue({DType::F16});
    return half;
  }
  if (dtype == DType::BF16) {
    static const Tensor bfloat = everyValue({DType::BF16});
    return bfloat;
  }
  static const Tensor single = everyValue({DType::F16, DType::BF16});
  return single;
}

/// The largest |chain(x) - gelu(x)| / |x| that rounded constants explain: those of f32 are often
/// written with six digits, those of half precision are off by up to unitRoundoff. Their
/// derivatives are below 0.35 |x| for each relative change.
static double toleranceOf(DType dtype) { return std::max(2e-6, unitRoundoff(dtype) / 2); }

static double largestDifference(const Tensor &x, const Tensor &y, double (*f)(double)) {
  double worst = 0;
  for (int64_t i = 0; i < y.count(); ++i) {
    double d = std::abs(y.asDouble(i) - f(x.asDouble(i)));
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

/// `root` for the given x, in one dimension whatever the rank of x; in double precision, or each op
/// in its own type. None when it cannot be run.
static std::optional<Tensor> valuesOf(const Function &f, Value *root, Value *x,
                                      const Tensor &points, bool inDouble) {
  llvm::SmallVector<int64_t> shape(std::max(1u, x->type.rank()), 1);
  shape.back() = points.count();
  Tensor in = points.reshaped(shape);
  Executor executor(f, {.float64 = inDouble});
  auto out = executor.evaluate({root}, {{x, inDouble ? in : in.cast(x->type.dtype)}}, {});
  if (!out) {
    llvm::consumeError(out.takeError());
    return std::nullopt;
  }
  if ((*out)[0].count() != points.count())
    return std::nullopt;
  return (*out)[0];
}

static std::vector<double> distancesOf(const Tensor &x, const Tensor &y, double (*f)(double)) {
  std::vector<double> out;
  out.reserve(size_t(x.count()));
  for (int64_t i = 0; i < x.count(); ++i)
    out.push_back(std::abs(y.asDouble(i) - f(x.asDouble(i))));
  return out;
}

/// An x at which the chain is not the formula in double precision; none when there is no such.
static std::optional<double> counterExample(const Tensor &x, llvm::ArrayRef<double> distances,
                                            double tolerance) {
  for (auto [i, distance] : llvm::enumerate(distances))
    if (const double at = x.asDouble(int64_t(i)); !(distance <= tolerance * std::abs(at)))
      return at;
  return std::nullopt;
}

/// The same for a chain whose every op rounds to its type, at infinities and NaN as well. A chain
/// may overflow in between where |x| is above a quarter of the largest number (x (1 + erf) / 2),
/// and may lose an infinity to a NaN (x - x (1 - erf) / 2); the op does neither.
static std::optional<double> counterExampleInType(const Function &f, Value *root, Value *x,
                                                  double (*formula)(double), double tolerance) {
  DType dtype = x->type.dtype;
  Tensor points = provingPoints(dtype);
  std::vector<double> at{NAN, INFINITY, -INFINITY};
  at.insert(at.end(), points.data<double>(), points.data<double>() + points.count());
  auto y = valuesOf(f, root, x, Tensor::of<double>(at, {int64_t(at.size())}), false);
  if (!y)
    return NAN;
  double largest = dtype == DType::F16 ? 65504 : std::numeric_limits<float>::max();
  double least = dtype == DType::F16 ? 0x1p-22 : 0x1p-124;
  double rounding = tolerance + 32 * unitRoundoff(dtype);
  for (auto [i, v] : llvm::enumerate(at)) {
    double got = y->asDouble(i), expected = formula(v);
    bool same = got == expected || (std::isnan(got) && std::isnan(expected)) ||
                std::abs(got - expected) <= rounding * std::abs(v) + least;
    bool overflows = std::isfinite(v) && std::abs(v) > largest / 4 && !std::isfinite(got);
    if (!same && !overflows && !(std::isinf(v) && std::isnan(got)))
      return v;
  }
  return std::nullopt;
}

/// The op whose constant is farthest from those the formulas are written with.
static void blame(llvm::ArrayRef<Op *> chain, Obstacle &why) {
  const double half = std::sqrt(2 / std::numbers::pi);
  const double known[] = {0.5,
                          1,
                          2,
                          3,
                          0.044715,
                          half,
                          2 * half,
                          0.044715 * half,
                          std::numbers::sqrt2,
                          1 / std::numbers::sqrt2};
  double farthest = 1e-4;
  for (const Op *op : chain)
    for (const Value *v : op->operands())
      if (auto c = v ? scalarConstant(v) : std::nullopt) {
        double distance = INFINITY;
        for (double k : known)
          distance = std::min(distance, std::abs(std::abs(*c) - k) / k);
        if (distance > farthest) {
          farthest = distance;
          why.op = op;
          why.attribute.clear();
          llvm::raw_string_ostream(why.attribute) << "constant " << llvm::format("%g", *c);
        }
      }
}

namespace {

/// The formula that a chain computes on the sample points.
struct Formula {
  const char *name;
  double (*function)(double);
  double (*slope)(double);
};

/// A chain that is no gelu, as far as it got.
struct NearMiss {
  double error = INFINITY; ///< 0: only the proof failed
  std::string why;
  Obstacle obstacle;
  llvm::SmallVector<Op *> chain;
};

/// Recognises the chains of one function; equal chains are proven once.
class Recogniser {
public:
  Recogniser(PassContext &ctx, Function &f) : ctx_(ctx), f_(f), samples_(samplePoints()) {}
  llvm::Error recogniseAt(Op *anchor);

private:
  std::optional<Formula> sampled(Op *anchor, Op *root, Value *x, NearMiss &miss) const;
  bool proven(Op *root, Value *x, const Formula &formula, NearMiss &miss);
  llvm::Error replace(Op *root, Value *x, const Formula &formula);

  PassContext &ctx_;
  Function &f_;
  Tensor samples_;
  llvm::SmallVector<std::pair<Value *, Value *>> proven_; // roots and their x
};

} // namespace

static llvm::SmallVector<Op *> chainOf(Op *root, Value *x) {
  return backwardSlice(root->result(), [&](Value *v) { return v == x; }).ops;
}

std::optional<Formula> Recogniser::sampled(Op *anchor, Op *root, Value *x, NearMiss &miss) const {
  auto y = valuesOf(f_, root->result(), x, samples_, true);
  if (!y || !isFloat(root->result()->type.dtype))
    return std::nullopt;
  double tanh = largestDifference(samples_, *y, geluTanh),
         erf = largestDifference(samples_, *y, geluErf);
  constexpr Formula formulas[] = {{"gelu_erf", geluErf, geluErfSlope},
                                  {"gelu_tanh", geluTanh, geluTanhSlope},
                                  {"silu", silu, siluSlope}};
  for (const Formula &formula : formulas)
    if (anchor->is(OpCode::Erf) == (formula.function == geluErf) &&
        !counterExample(samples_, distancesOf(samples_, *y, formula.function),
                        toleranceOf(x->type.dtype)))
      return formula;
  if (std::min(tanh, erf) < miss.error) {
    miss = {std::min(tanh, erf), {}, {}, chainOf(root, x)};
    miss.why = std::string("is a function of one value but differs from ") +
               (tanh < erf ? "gelu_tanh" : "gelu_erf") + " by up to " + std::to_string(miss.error) +
               " on [-8, 8]";
    blame(miss.chain, miss.obstacle);
  }
  return std::nullopt;
}

/// Where a chain in single precision may be no such formula between two points; none where it
/// nowhere is. In half precision the points are all that there are.
static std::optional<double> changesBetween(Value *root, Value *x, const Formula &formula,
                                            const Tensor &points,
                                            llvm::ArrayRef<double> distances) {
  if (isNarrow(x->type.dtype))
    return std::nullopt;
  const double *at = points.data<double>();
  return unboundedBetween(root, x, {formula.function, formula.slope},
                          llvm::ArrayRef(at, size_t(points.count())), distances,
                          16 * toleranceOf(x->type.dtype));
}

bool Recogniser::proven(Op *root, Value *x, const Formula &formula, NearMiss &miss) {
  constexpr OpCode functions[] = {OpCode::Tanh, OpCode::Erf, OpCode::Sigmoid, OpCode::Exp};
  DType dtype = x->type.dtype;
  llvm::SmallVector<Op *> chain = chainOf(root, x);
  auto refuse = [&](const std::string &why, const Op *op) {
    miss = {0, std::string("is ") + formula.name + " on [-8, 8], but " + why, {}, chain};
    miss.obstacle.op = op;
    return false;
  };
  if (const Op *foreign = foreignOp(chain, dtype, functions))
    return refuse(foreign->describe() + " is no part of the formula", foreign);
  for (auto [known, of] : proven_)
    if (computedAlike(root->result(), x, known, of))
      return true;
  const Tensor &points = provingPoints(dtype);
  double tolerance = toleranceOf(dtype);
  auto y = valuesOf(f_, root->result(), x, points, true);
  const std::vector<double> distances =
      y ? distancesOf(points, *y, formula.function) : std::vector<double>();
  std::optional<double> at =
      y ? counterExample(points, distances, tolerance) : std::optional<double>(NAN);
  if (!at)
    at = counterExampleInType(f_, root->result(), x, formula.function, tolerance);
  bool between = false;
  if (!at && (at = changesBetween(root->result(), x, formula, points, distances)))
    between = true;
  if (at) {
    std::string why;
    llvm::raw_string_ostream(why) << (between ? "it may change course near x = " : "not for x = ")
                                  << llvm::format("%.8g", *at);
    refuse(why, nullptr);
    blame(chain, miss.obstacle);
    return false;
  }
  proven_.push_back({root->result(), x});
  return true;
}

llvm::Error Recogniser::replace(Op *root, Value *x, const Formula &formula) {
  Builder b(f_, root);
  auto gelu =
      formula.function == silu
          ? b.value(OpCode::Silu, {x})
          : b.value(OpCode::Gelu, {x},
                    {{"approximate", std::string(formula.function == geluTanh ? "tanh" : "none")}});
  if (!gelu)
    return gelu.takeError();
  adoptLocations(b.created(), chainOf(root, x));
  root->result()->replaceAllUsesWith(*gelu);
  return llvm::Error::success();
}

llvm::Error Recogniser::recogniseAt(Op *anchor) {
  NearMiss miss;
  for (Value *x : chainInputs(anchor)) {
    auto roots = chainRoots(anchor, x);
    for (Op *root : llvm::reverse(roots))
      if (auto formula = sampled(anchor, root, x, miss))
        if (root->result()->type == x->type && proven(root, x, *formula, miss))
          return replace(root, x, *formula);
  }
  if (miss.error < 0.1)
    ctx_.missed("gelu: the chain around " + anchor->describe() + " " + miss.why +
                    "; kept as separate ops",
                anchor->locations)
        .of("gelu")
        .after("a function of one value")
        .stoppedBy(miss.obstacle)
        .costing(miss.chain);
  return llvm::Error::success();
}

llvm::Error recogniseGelu(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> anchors;
    for (auto &op : f->ops())
      if (isAnchor(*op) && op->hasUses())
        anchors.push_back(op.get());
    Recogniser recogniser(ctx, *f);
    for (Op *anchor : anchors)
      if (anchor->hasUses())
        if (llvm::Error e = recogniser.recogniseAt(anchor))
          return e;
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
