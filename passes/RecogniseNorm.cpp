// recognise-norm: a chain over the last axis that computes
//   layer_norm(x) = (x - mean(x)) / sqrt(var(x) + epsilon) * scale + bias
// becomes layer_norm, whatever its spelling. The chain is run in double precision on chosen rows: a
// row of zeros gives the bias, a row of large spread gives the scale, a row of small variance gives
// epsilon; random rows then check it.
#include "passes/Probe.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

static bool isNormOp(const Op *op) {
  if (op->is(OpCode::Constant))
    return true;
  bool reducesLast = op->is(OpCode::ReduceMean) || op->is(OpCode::ReduceSum);
  return (op->info().has(Elementwise) || reducesLast) && op->numResults() == 1 &&
         isFloat(op->result()->type.dtype);
}

static bool isNormOf(Value *root, Value *x) {
  if (root != x && root->def() && !isNormOp(root->def()))
    return false;
  BackwardSlice s = backwardSlice(root, [&](Value *v) { return v == x || !isNormOp(v->def()); });
  return llvm::all_of(s.leaves, [&](Value *v) { return v == x; });
}

/// Values whose mean the chain may take: operands of reductions above the square root, nearest
/// first.
static llvm::SmallVector<Value *> normInputs(Op *squareRoot) {
  llvm::SmallVector<Value *> order{squareRoot->operand(0)}, inputs;
  for (size_t i = 0; i < order.size() && order.size() < 32; ++i) {
    Op *def = order[i]->def();
    if (!def || !isNormOp(def) || def->is(OpCode::Constant))
      continue;
    Value *x = def->operand(0);
    if (!def->info().has(Elementwise) && x->type.rank() >= 2 && isNormOf(squareRoot->result(), x))
      inputs.push_back(x);
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

struct RowStatistics {
  double mean = 0, variance = 0;
};

static RowStatistics statistics(const double *row, int64_t n) {
  RowStatistics s;
  for (int64_t i = 0; i < n; ++i)
    s.mean += row[i] / double(n);
  for (int64_t i = 0; i < n; ++i)
    s.variance += (row[i] - s.mean) * (row[i] - s.mean) / double(n);
  return s;
}

/// Parameters with which `root` is a layer norm of x; `why` says what differs otherwise.
static std::optional<NormParameters> normParameters(Function &f, Value *root, Value *x,
                                                    std::string &why) {
  auto width = x->type.shape.back().constant();
  if (!width || *width < 2) {
    why = "the last axis has no constant width of at least 2";
    return std::nullopt;
  }
  int64_t n = *width;
  constexpr int64_t rows = 6;
  llvm::SmallVector<int64_t> shape(x->type.rank(), 1);
  if (x->type.rank() >= 2)
    shape[x->type.rank() - 2] = rows;
  else {
    why = "the input has rank 1";
    return std::nullopt;
  }
  shape.back() = n;
  // Rows: zeros; spread 1e4; variance about 1e-5, then 1e-9, where an epsilon outside the root
  // tells; two random ones with a mean.
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
  auto out = probe(f, root, {{x, in}}, {}, &why);
  if (!out || out->count() != in.count() || out->dtype() != DType::F64) {
    if (why.empty())
      why = "its result has another shape than its input";
    return std::nullopt;
  }
  const double *y = out->data<double>();
  NormParameters result;
  for (int64_t i = 0; i < n; ++i)
    result.bias.push_back(y[i] + 0.0); // -0.0 becomes 0.0
  RowStatistics wide = statistics(p + n, n), narrow = statistics(p + 2 * n, n);
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
  if (!(result.epsilon > -1e-12 && result.epsilon < 1)) {
    why = "no epsilon explains its values";
    return std::nullopt;
  }
  // Parameters are stored in single precision: the nearest float is what the exporter wrote.
  result.epsilon = std::max(0.0, double(float(result.epsilon)));
  for (int64_t r = 2; r < rows; ++r) {
    RowStatistics s = statistics(p + r * n, n);
    for (int64_t i = 0; i < n; ++i) {
      double expected =
          (p[r * n + i] - s.mean) / std::sqrt(s.variance + result.epsilon) * result.scale[i] +
          result.bias[i];
      double error = std::abs(y[r * n + i] - expected);
      if (!(error <= 1e-6 * (1 + std::abs(expected)))) {
        why = "it differs from a layer norm with epsilon " + std::to_string(result.epsilon) +
              " by " + std::to_string(error);
        return std::nullopt;
      }
    }
  }
  return result;
}

static Tensor vectorOf(const std::vector<double> &values, DType dtype) {
  return Tensor::of<double>(values, {int64_t(values.size())}).cast(dtype);
}

/// Replaces `root`, which the parameters describe as a layer norm of x.
static llvm::Error replaceNorm(Function &f, Op *root, Value *x, const NormParameters &parameters) {
  Builder b(f, root);
  DType dtype = x->type.dtype;
  Value *scale = b.constant(vectorOf(parameters.scale, dtype)),
        *bias = b.constant(vectorOf(parameters.bias, dtype));
  auto norm = b.value(OpCode::LayerNorm, {x, scale, bias}, {{"epsilon", parameters.epsilon}});
  if (!norm)
    return norm.takeError();
  BackwardSlice s = backwardSlice(root->result(), [&](Value *v) { return v == x; });
  adoptLocations(b.created(), s.ops);
  root->result()->replaceAllUsesWith(*norm);
  return llvm::Error::success();
}

static llvm::Error recogniseAt(PassContext &ctx, Function &f, Op *squareRoot) {
  auto inputs = normInputs(squareRoot);
  std::string why = "no op after the square root has the input's type";
  for (Value *x : inputs) {
    auto roots = normRoots(squareRoot, x);
    for (Op *root : llvm::reverse(roots))
      if (auto parameters = normParameters(f, root->result(), x, why))
        return replaceNorm(f, root, x, *parameters);
  }
  if (!inputs.empty())
    ctx.missed("layer_norm: the chain around " + squareRoot->describe() +
                   " takes a mean and a square root, but " + why + "; kept as separate ops",
               squareRoot->locations);
  return llvm::Error::success();
}

llvm::Error recogniseNorm(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> anchors;
    for (auto &op : f->ops()) {
      bool root = op->is(OpCode::Sqrt);
      if (op->is(OpCode::Pow))
        if (auto e = scalarConstant(op->operand(1)))
          root = std::abs(*e) == 0.5;
      if (root && op->hasUses())
        anchors.push_back(op.get());
    }
    for (Op *anchor : anchors)
      if (anchor->hasUses())
        if (llvm::Error e = recogniseAt(ctx, *f, anchor))
          return e;
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
