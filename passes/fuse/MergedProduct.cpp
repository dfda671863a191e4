#include "passes/fuse/MergedProduct.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace gpt2c {

Columns columnSlice(Value *v) {
  const int64_t last = int64_t(v->type.rank()) - 1;
  Columns all{v, 0, 1, last < 0 ? 0 : v->type.shape.back().constant().value_or(0)};
  Op *op = v->def();
  if (!op || !op->is(OpCode::Slice) || !op->hasAttr("starts") || !op->hasAttr("axes") ||
      op->operand(ops::Slice::Steps) || !all.count)
    return all;
  const Dims &axes = op->dimsAttr("axes"), &starts = op->dimsAttr("starts");
  const Dim step = op->hasAttr("steps") ? op->dimsAttr("steps")[0] : Dim(1);
  if (axes.size() != 1 || (axes[0] != Dim(last) && axes[0] != Dim(-1)) || !starts[0].isConstant() ||
      *starts[0].constant() < 0 || !step.isConstant() || *step.constant() < 1)
    return all;
  return {op->operand(ops::Slice::X), *starts[0].constant(), *step.constant(), all.count};
}

namespace {

/// A constant, and which of its rows (elements of a vector) are taken.
struct Rows {
  Value *constant;
  Columns which;
};

} // namespace

/// The rows one below the other, as a constant that has the first one's name; null when there are
/// none of one type.
static Value *stacked(llvm::ArrayRef<Rows> parts, Builder &b) {
  llvm::SmallVector<int64_t> shape;
  int64_t rows = 0;
  for (const auto &[v, which] : parts) {
    Op *c = constantOp(v);
    if (!c || !c->constant.valid() || v->type.dtype != parts[0].constant->type.dtype ||
        c->constant.shape().empty() ||
        (!shape.empty() &&
         llvm::ArrayRef(shape).drop_front() != c->constant.shape().drop_front()) ||
        which.first + (which.count - 1) * which.step >= c->constant.dim(0))
      return nullptr;
    shape.assign(c->constant.shape().begin(), c->constant.shape().end());
    rows += which.count;
  }
  shape[0] = rows;
  Tensor all(parts[0].constant->type.dtype, shape);
  char *to = static_cast<char *>(all.raw());
  for (const auto &[v, which] : parts) {
    const Tensor &t = constantOp(v)->constant;
    const int64_t bytes = t.bytes() / t.dim(0), count = which.step == 1 ? which.count : 1;
    const char *from = static_cast<const char *>(t.raw()) + which.first * bytes;
    for (int64_t i = 0; i < which.count;
         i += count, from += which.step * bytes, to += count * bytes)
      std::memcpy(to, from, count * bytes);
  }
  Value *c = b.constant(all);
  c->name = parts[0].constant->name;
  return c;
}

/// Zero points of each row; zeros for weights that have none.
static Value *zeroPoints(const Op &dequantize, Builder &b) {
  if (Value *zero = dequantize.operand(ops::Dequantize::Zero))
    return zero;
  const Op *scale = constantOp(dequantize.operand(ops::Dequantize::Scale));
  return scale ? b.constant(Tensor::zeros(DType::I8, scale->constant.shape())) : nullptr;
}

/// The same for weights, which may be dequantised with scales, and zero points, for each row.
static llvm::Expected<Value *> stackedWeights(llvm::ArrayRef<Rows> parts, Builder &b) {
  llvm::SmallVector<Rows> q, scales, zeros;
  const bool haveZeros = llvm::any_of(parts, [](const Rows &r) {
    const Op *def = r.constant->def();
    return def && def->is(OpCode::Dequantize) && def->operand(ops::Dequantize::Zero);
  });
  for (const auto &[v, which] : parts)
    if (Op *def = v->def(); def && def->is(OpCode::Dequantize)) {
      q.push_back({def->operand(ops::Dequantize::Q), which});
      scales.push_back({def->operand(ops::Dequantize::Scale), which});
      if (haveZeros)
        zeros.push_back({zeroPoints(*def, b), which});
    }
  if (q.size() != parts.size())
    return stacked(parts, b);
  Value *weights = stacked(q, b), *scale = stacked(scales, b),
        *zero = haveZeros ? stacked(zeros, b) : nullptr;
  if (!weights || !scale || (haveZeros && !zero))
    return nullptr;
  return b.value(OpCode::Dequantize, {weights, scale, zero},
                 parts[0].constant->def()->givenAttrs());
}

static bool isPlainProduct(const Op *op) {
  return op && op->is(OpCode::Linear) && !op->operand(ops::Linear::Residual) &&
         op->stringAttr("activation") == "none" && !op->hasAttr("dtype");
}

/// linear(x, [w1; w2; ..], [b1; b2; ..]) for columns of products that share x. Null where weights
/// are not constant.
static llvm::Expected<Value *> stackedProduct(llvm::ArrayRef<Columns> parts, Builder &b) {
  using enum ops::Linear::Operand;
  const Op *first = parts[0].source->def();
  llvm::SmallVector<Rows> weights, biases;
  for (const Columns &c : parts) {
    weights.push_back({c.source->def()->operand(W), c});
    if (first->operand(Bias))
      biases.push_back({c.source->def()->operand(Bias), c});
  }
  Value *bias = biases.empty() ? nullptr : stacked(biases, b);
  if (!biases.empty() && !bias)
    return nullptr;
  auto weight = stackedWeights(weights, b);
  if (!weight || !*weight)
    return weight;
  auto product = b.value(OpCode::Linear, {first->operand(X), *weight, bias});
  if (product)
    for (const Columns &c : parts)
      (*product)->def()->addLocations(c.source->def()->locations);
  return product;
}

/// Whether all are products of one input, or columns of such that nothing else reads.
static bool canMerge(llvm::ArrayRef<Columns> parts) {
  using enum ops::Linear::Operand;
  const Op *first = parts[0].source->def();
  return llvm::all_of(parts, [&](const Columns &c) {
    const Op *l = c.source->def();
    auto isPart = [&](const Use &u) {
      return u.op->numResults() == 1 && llvm::is_contained(parts, columnSlice(u.op->result())) &&
             columnSlice(u.op->result()).source == c.source;
    };
    const bool whole = c.source->type.shape.back() == Dim(c.count);
    return isPlainProduct(l) && l->operand(X) == first->operand(X) &&
           bool(l->operand(Bias)) == bool(first->operand(Bias)) &&
           (whole || llvm::all_of(c.source->uses(), isPart));
  });
}

llvm::Expected<Value *> productOfColumns(Value *product, llvm::ArrayRef<int64_t> columns,
                                         Builder &b) {
  if (!isPlainProduct(product->def()))
    return nullptr;
  llvm::SmallVector<Columns> runs;
  for (int64_t c : columns)
    if (!runs.empty() && c == runs.back().first + runs.back().count)
      ++runs.back().count;
    else
      runs.push_back({product, c, 1, 1});
  return stackedProduct(runs, b);
}

llvm::Expected<Value *> besideEachOther(llvm::ArrayRef<Value *> parts, Builder &b) {
  llvm::SmallVector<Columns> columns;
  for (Value *v : parts)
    columns.push_back(columnSlice(v));
  Value *source = columns[0].source;
  int64_t width = 0;
  bool packed = true;
  for (const Columns &c : columns) {
    packed &= c.source == source && c.first == width && c.step == 1;
    width += c.count;
  }
  if (packed && source->type.shape.back() == Dim(width))
    return source;
  return canMerge(columns) ? stackedProduct(columns, b) : nullptr;
}

} // namespace gpt2c
