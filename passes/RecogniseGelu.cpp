// recognise-gelu: a chain of elementwise ops around a tanh, an erf, a sigmoid or an exp that maps
// one value x to
//   gelu_tanh(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   (Hendrycks and Gimpel 2016)
//   gelu_erf(x)  = x/2 (1 + erf(x / sqrt 2))
// becomes gelu, whatever its spelling: the chain is run on sample points and compared with both
// formulas. One that computes something else stays, and a remark says how far it is from the nearer
// formula.
#include "passes/Probe.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"

#include <cmath>
#include <numbers>

namespace gpt2c {

static double geluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
static double geluErf(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

/// 1 + tanh(u) is also written 2 sigmoid(2u), or with exp.
static bool isAnchor(const Op &op) {
  return op.is(OpCode::Tanh) || op.is(OpCode::Erf) || op.is(OpCode::Sigmoid) || op.is(OpCode::Exp);
}

static bool isPointwise(const Op &op) {
  return op.info().has(Elementwise) && op.numResults() == 1 && isFloat(op.result()->type.dtype);
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

static Tensor samplePoints(unsigned rank) {
  constexpr int64_t n = 161;
  llvm::SmallVector<int64_t> shape(rank, 1);
  if (rank)
    shape.back() = n;
  Tensor t(DType::F64, shape);
  for (int64_t i = 0; i < t.count(); ++i)
    t.data<double>()[i] = -8 + 0.1 * double(i);
  return t;
}

static double largestDifference(const Tensor &x, const Tensor &y, double (*f)(double)) {
  double worst = 0;
  for (int64_t i = 0; i < y.count(); ++i) {
    double d = std::abs(y.asDouble(i) - f(x.asDouble(i)));
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
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

static llvm::Error recogniseAt(PassContext &ctx, Function &f, Op *anchor) {
  double nearest = INFINITY;
  const char *nearestName = "";
  llvm::SmallVector<Op *> chain;
  for (Value *x : chainInputs(anchor)) {
    Tensor points = samplePoints(x->type.rank());
    auto roots = chainRoots(anchor, x);
    for (Op *root : llvm::reverse(roots)) {
      auto y = probe(f, root->result(), {{x, points}}, {});
      if (!y || y->count() != points.count())
        continue;
      double tanh = largestDifference(points, *y, geluTanh),
             erf = largestDifference(points, *y, geluErf);
      constexpr double tolerance =
          2e-6; // constants are often rounded to six digits or to f32; f16 ones are told below
      double allowed = x->type.dtype == DType::F16 ? 2e-3 : tolerance;
      bool isErf = anchor->is(OpCode::Erf) && erf <= allowed;
      bool isTanh = !isErf && tanh <= (anchor->is(OpCode::Erf) ? tolerance : allowed);
      if (!isTanh && !isErf) {
        if (std::min(tanh, erf) < nearest) {
          nearest = std::min(tanh, erf);
          nearestName = tanh < erf ? "gelu_tanh" : "gelu_erf";
          chain = backwardSlice(root->result(), [&](Value *v) { return v == x; }).ops;
        }
        continue;
      }
      BackwardSlice s = backwardSlice(root->result(), [&](Value *v) { return v == x; });
      Builder b(f, root);
      auto gelu =
          b.value(OpCode::Gelu, {x}, {{"approximate", std::string(isTanh ? "tanh" : "none")}});
      if (!gelu)
        return gelu.takeError();
      adoptLocations(b.created(), s.ops);
      root->result()->replaceAllUsesWith(*gelu);
      return llvm::Error::success();
    }
  }
  if (nearest < 0.1) {
    Obstacle why;
    blame(chain, why);
    ctx.missed("gelu: the chain around " + anchor->describe() +
                   " is a function of one value but differs from " + nearestName + " by up to " +
                   llvm::Twine(std::to_string(nearest)) + " on [-8, 8]; kept as separate ops",
               anchor->locations)
        .of("gelu")
        .after("a function of one value")
        .stoppedBy(why)
        .costing(chain);
  }
  return llvm::Error::success();
}

llvm::Error recogniseGelu(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> anchors;
    for (auto &op : f->ops())
      if (isAnchor(*op) && op->hasUses())
        anchors.push_back(op.get());
    for (Op *anchor : anchors)
      if (anchor->hasUses())
        if (llvm::Error e = recogniseAt(ctx, *f, anchor))
          return e;
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
