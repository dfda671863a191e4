// Lowerings of reductions, scans, norms and matrix products.
#include "templates/generic/GenericLowerings.h"

#include "runtime/plan/Expr.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Threads for a fold of up to `count` elements.
static int foldThreads(int64_t count) { return count <= 64 ? 32 : count <= 1024 ? 128 : 256; }

static llvm::Error reduce(StepBuilder &b, Op &op, llvm::ArrayRef<bool> reduced,
                          const llvm::Twine &fold) {
  Value *x = op.operand(0), *y = op.result();
  const Shape &shape = x->type.shape;
  Shape dense = denseStrides(shape);
  Loop kept{{}, {{}}}, inner{{}, {{}}};
  for (size_t i = 0; i < shape.size(); ++i) {
    Loop &loop = reduced[i] ? inner : kept;
    loop.sizes.push_back(shape[i]);
    loop.strides[0].push_back(dense[i]);
  }
  Dim rows = elementCount(kept.sizes), count = elementCount(inner.sizes);
  kept.simplify();
  inner.simplify();
  int threads = foldThreads(b.maximum(count));
  KernelCall call(b, op, "templates/generic/reduce.cuh");
  call.type("X", cudaType(x->type.dtype));
  call.type("Y", cudaType(y->type.dtype));
  call.type("Fold", fold);
  call.constant("Threads", threads);
  call.in("x", x);
  call.out("y", y);
  call.integer("rows", rows);
  call.integer("count", count);
  std::string keptAxes = call.axes("kept", kept), innerAxes = call.axes("inner", inner);
  return call.launch(op, threads, b.expr(rows),
                     "  tile::reduce<" + call.config() + ">(x, y, rows, count, " + keptAxes +
                         ",\n    " + innerAxes + ", blockIdx.x, gridDim.x);\n");
}

static std::string computeType(DType t) { return "Compute<" + cudaType(t).str() + ">"; }

llvm::Error lowerReduction(StepBuilder &b, Op &op) {
  const char *fold = op.is(OpCode::ReduceSum)    ? "SumFold"
                     : op.is(OpCode::ReduceMean) ? "MeanFold"
                     : op.is(OpCode::ReduceMax)  ? "MaxFold"
                     : op.is(OpCode::ReduceMin)  ? "MinFold"
                                                 : "ProductFold";
  const Type &x = op.operand(0)->type;
  std::vector<int64_t> axes = op.intsAttr("axes");
  llvm::SmallVector<bool, 6> reduced(x.rank(), axes.empty());
  for (int64_t a : axes)
    reduced[axisOf(a, x.rank())] = true;
  return reduce(b, op, reduced, llvm::Twine(fold) + "<" + computeType(x.dtype) + ">");
}

llvm::Error lowerGenericArgMax(StepBuilder &b, Op &op) {
  const Type &x = op.operand(ops::ArgMax::X)->type;
  llvm::SmallVector<bool, 6> reduced(x.rank(), false);
  reduced[axisOf(op.intAttr("axis"), x.rank())] = true;
  return reduce(b, op, reduced,
                "ArgMaxFold<" + computeType(x.dtype) + ", " + cudaType(op.result()->type.dtype) +
                    ", " + (op.boolAttr("select_last_index") ? "true" : "false") + ">");
}

/// The lines of a tensor along one axis (templates/generic/lines.cuh).
struct Lines {
  Dim count, size, inner;
  Lines(llvm::ArrayRef<Dim> shape, unsigned axis)
      : size(shape[axis]), inner(elementCount(shape.drop_front(axis + 1))) {
    count = elementCount(shape.take_front(axis)) * inner;
  }
};

llvm::Error lowerSoftmax(StepBuilder &b, Op &op) {
  Value *x = op.operand(ops::Softmax::X);
  unsigned axis = axisOf(op.intAttr("axis"), x->type.rank());
  if (axis + 1 == x->type.rank())
    return lowerRowSoftmax(b, op, {x, nullptr, nullptr, 1, false, true});
  Lines lines(x->type.shape, axis);
  int threads = foldThreads(b.maximum(lines.size));
  KernelCall call(b, op, "templates/generic/lines.cuh");
  call.type("X", cudaType(x->type.dtype));
  call.constant("Threads", threads);
  call.in("x", x);
  call.out("y", op.result());
  call.integer("lines", lines.count);
  call.integer("size", lines.size);
  call.integer("inner", lines.inner);
  return call.launch(op, threads, b.expr(lines.count),
                     "  tile::softmax<" + call.config() +
                         ">(x, y, lines, size, inner, blockIdx.x, gridDim.x);\n");
}

llvm::Error lowerCumSum(StepBuilder &b, Op &op) {
  Value *x = op.operand(ops::CumSum::X), *axis = op.operand(ops::CumSum::Axis);
  auto along = axis->content && axis->content->size() == 1 ? axis->content->front().constant()
                                                           : std::nullopt;
  if (!along)
    return noKernel(op, "its axis depends on data");
  Lines lines(x->type.shape, axisOf(*along, x->type.rank()));
  constexpr int threads = 128;
  KernelCall call(b, op, "templates/generic/lines.cuh");
  call.type("X", cudaType(x->type.dtype));
  call.constant("Threads", threads);
  call.flag("Exclusive", op.boolAttr("exclusive"));
  call.flag("Reverse", op.boolAttr("reverse"));
  call.in("x", x);
  call.out("y", op.result());
  call.integer("lines", lines.count);
  call.integer("size", lines.size);
  call.integer("inner", lines.inner);
  return call.launch(op, threads, ceilDivExpr(b.expr(lines.count), threads / 32),
                     "  tile::cumsum<" + call.config() +
                         ">(x, y, lines, size, inner, blockIdx.x, gridDim.x);\n");
}

llvm::Error lowerGenericNorm(StepBuilder &b, Op &op) {
  using enum ops::LayerNorm::Operand; // rms_norm has no Bias
  Value *x = op.operand(X), *scale = op.operand(Scale), *bias = op.operand(Bias);
  bool rms = op.is(OpCode::RmsNorm);
  llvm::ArrayRef<Dim> shape = x->type.shape;
  unsigned axis = rms ? shape.size() - 1 : axisOf(op.intAttr("axis"), shape.size());
  llvm::ArrayRef<Dim> normalised = shape.drop_front(axis);
  Dim rows = elementCount(shape.take_front(axis)), size = elementCount(normalised);
  Loop loop{Shape(normalised), {broadcastStrides(scale->type.shape, normalised)}};
  if (bias)
    loop.strides.push_back(broadcastStrides(bias->type.shape, normalised));
  loop.simplify();
  int threads = foldThreads(b.maximum(size));
  KernelCall call(b, op, "templates/generic/lines.cuh");
  call.type("X", cudaType(x->type.dtype));
  call.type("Y", cudaType(op.result()->type.dtype));
  call.type("Scale", cudaType(scale->type.dtype));
  call.type("Bias", cudaType((bias ? bias : scale)->type.dtype));
  call.constant("Threads", threads);
  call.flag("Rms", rms);
  call.flag("HasBias", bias != nullptr);
  call.in("x", x);
  call.in("scale", scale);
  if (bias)
    call.in("bias", bias);
  call.out("y", op.result());
  call.integer("rows", rows);
  call.integer("size", size);
  call.real("epsilon", op.floatAttr("epsilon"));
  std::string axes = call.axes("n", loop);
  return call.launch(op, threads, b.expr(rows),
                     "  tile::norm<" + call.config() + ">(x, scale, " +
                         (bias ? "bias" : "nullptr") + ", y, rows, size, epsilon, " + axes +
                         ",\n    blockIdx.x, gridDim.x);\n");
}

llvm::Error lowerMatMul(StepBuilder &b, Op &op) {
  Value *left = op.operand(ops::MatMul::A), *right = op.operand(ops::MatMul::B), *y = op.result();
  Shape a = left->type.shape, c = right->type.shape;
  if (a.size() == 1)
    a.insert(a.begin(), Dim(1));
  if (c.size() == 1)
    c.push_back(Dim(1));
  Dim m = a[a.size() - 2], k = a.back(), n = c.back();
  // The batch axes of y are its own, without rows and columns.
  size_t matrixAxes = (left->type.rank() > 1) + (right->type.rank() > 1);
  llvm::ArrayRef<Dim> batch = llvm::ArrayRef(y->type.shape).drop_back(matrixAxes);
  auto batchStrides = [&](llvm::ArrayRef<Dim> shape, const Dim &matrix) {
    Shape strides = broadcastStrides(shape.drop_back(2), batch);
    for (Dim &s : strides)
      s = s * matrix;
    return strides;
  };
  Shape ofY = denseStrides(batch);
  for (Dim &s : ofY)
    s = s * m * n;
  Loop loop{Shape(batch), {ofY, batchStrides(a, m * k), batchStrides(c, k * n)}};
  Dim batches = elementCount(batch);
  loop.simplify();

  bool few = b.maximum(m) <= 16;
  int bm = few ? 16 : 64, bn = 64, tm = few ? 1 : 4, tn = 4, threads = bm / tm * (bn / tn);
  KernelCall call(b, op, "templates/generic/matmul.cuh");
  call.type("T", cudaType(y->type.dtype));
  for (auto [name, value] : {std::pair("BM", bm), {"BN", bn}, {"BK", 16}, {"TM", tm}, {"TN", tn}})
    call.constant(name, value);
  call.out("y", y);
  call.in("a", left);
  call.in("b", right);
  call.integer("m", m);
  call.integer("n", n);
  call.integer("k", k);
  call.integer("batches", batches);
  call.integer("aRow", k);
  call.integer("aCol", Dim(1));
  call.integer("bRow", n);
  call.integer("bCol", Dim(1));
  std::string axes = call.axes("batch", loop);
  plan::ExprT tiles = productExpr(ceilDivExpr(b.expr(m), bm), ceilDivExpr(b.expr(n), bn));
  return call.launch(op, threads, productExpr(tiles, b.expr(batches)),
                     "  tile::matmul<" + call.config() +
                         ">(y, a, b, m, n, k, batches, aRow, aCol, bRow, bCol, " + axes +
                         ",\n    blockIdx.x, gridDim.x);\n");
}

} // namespace gpt2c
