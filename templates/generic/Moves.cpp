// Lowerings of shapes and data movement: strided copies and fills.
#include "templates/generic/GenericLowerings.h"

#include "ir/ops/Common.h"
#include "ir/ops/Slice.h"
#include "runtime/plan/Expr.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

llvm::Error lowerView(StepBuilder &b, Op &op) {
  b.alias(op.result(), op.operand(0));
  return llvm::Error::success();
}

/// A copy of all of operand 0 into all of the result.
static llvm::Error copy(StepBuilder &b, Op &op, Loop loop, plan::ExprT from = rt::constantExpr(0)) {
  return launchCopy(b, op.info().mnemonic, op.locations, op.result()->type.dtype, std::move(loop),
                    b.write(op.result()), b.read(op.operand(0)), rt::constantExpr(0),
                    std::move(from));
}

llvm::Error lowerTranspose(StepBuilder &b, Op &op) {
  Shape from = denseStrides(op.operand(ops::Transpose::X)->type.shape), moved;
  for (int64_t p : op.intsAttr("perm"))
    moved.push_back(from[p]);
  const Shape &shape = op.result()->type.shape;
  return copy(b, op, {shape, {denseStrides(shape), moved}});
}

llvm::Error lowerExpand(StepBuilder &b, Op &op) {
  return copy(b, op, broadcastLoop(op.result(), op.operand(ops::Expand::X)));
}

llvm::Error lowerTile(StepBuilder &b, Op &op) {
  auto repeats = knownList(op, "repeats", ops::Tile::Repeats);
  if (!repeats)
    return noKernel(op, "its repeats depend on data");
  // Each axis becomes (repeat, size), with stride 0 for the repeat.
  Shape shape = op.operand(ops::Tile::X)->type.shape, from = denseStrides(shape);
  Loop loop{{}, {{}, {}}};
  for (auto [size, stride, repeat] : llvm::zip(shape, from, *repeats)) {
    loop.sizes.append({repeat, size});
    loop.strides[1].append({Dim(0), stride});
  }
  loop.strides[0] = denseStrides(loop.sizes);
  return copy(b, op, std::move(loop));
}

llvm::Error lowerConcat(StepBuilder &b, Op &op) {
  Value *y = op.result();
  unsigned axis = axisOf(op.intAttr("axis"), y->type.rank());
  Shape strides = denseStrides(y->type.shape);
  Dim at = 0;
  for (Value *x : op.operands()) {
    Shape shape = y->type.shape;
    shape[axis] = x->type.shape[axis];
    if (llvm::Error e = launchCopy(b, "concat", op.locations, y->type.dtype,
                                   {shape, {strides, denseStrides(shape)}}, b.write(y), b.read(x),
                                   b.expr(at * strides[axis]), rt::constantExpr(0)))
      return e;
    at = at + shape[axis];
  }
  return llvm::Error::success();
}

llvm::Error lowerSlice(StepBuilder &b, Op &op) {
  using enum ops::Slice::Operand;
  auto starts = knownList(op, "starts", Starts), ends = knownList(op, "ends", Ends),
       axes = knownList(op, "axes", Axes), steps = knownList(op, "steps", Steps);
  if (!starts || !ends || !axes || !steps)
    return noKernel(op, "its bounds depend on data");
  const DimBounds bounds = op.function()->bounds();
  const Shape &in = op.operand(X)->type.shape, &out = op.result()->type.shape;
  Shape dense = denseStrides(in), strides = dense;
  plan::ExprT from = rt::constantExpr(0);
  for (size_t i = 0; i < starts->size(); ++i) {
    unsigned axis = axes->empty() ? i : axisOf(*(*axes)[i].constant(), in.size());
    Dim step = steps->empty() ? Dim(1) : (*steps)[i];
    auto part = slicedPart((*starts)[i], (*ends)[i], step, in[axis], bounds);
    if (!part)
      return noKernel(op, "the step " + step.str() + " is not a constant");
    from = sumExpr(from, productExpr(b.expr(part->first), b.expr(dense[axis])));
    strides[axis] = dense[axis] * step;
  }
  return copy(b, op, {out, {denseStrides(out), strides}}, std::move(from));
}

//===-- fills -------------------------------------------------------------------------------===//

/// A result whose elements inference knows as expressions of the symbols.
llvm::Error lowerContent(StepBuilder &b, Op &op) {
  Value *y = op.result();
  if (!y->content)
    return noKernel(op, "more values than a kernel takes");
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y);
  std::string body;
  for (auto [i, d] : llvm::enumerate(*y->content)) {
    std::string n = std::to_string(i);
    call.integer("v" + n, d);
    body.append("        y[").append(n).append("] = v").append(n).append(";\n");
  }
  return launchMap(call, b, op, {{Dim(y->content->empty() ? 0 : 1)}, {{Dim(0)}}}, body);
}

/// The word that stores `value`, as CUDA text.
static std::string wordOf(double value, DType type) {
  Tensor t = Tensor::scalar(value).cast(type);
  std::string text;
  withWord(byteSize(type), [&](auto tag) {
    text = "0x" + llvm::utohexstr(uint64_t(*t.data<decltype(tag)>())) + "ull";
  });
  return text;
}

llvm::Error lowerConstantOfShape(StepBuilder &b, Op &op) {
  Value *y = op.result();
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y, cudaWord(y->type.dtype));
  return launchMap(call, b, op, broadcastLoop(y, {}),
                   "        y[at.offset[0]] = (" + cudaWord(y->type.dtype) + ")" +
                       wordOf(op.floatAttr("value"), y->type.dtype) + ";\n");
}

llvm::Error lowerRange(StepBuilder &b, Op &op) {
  Value *y = op.result();
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y);
  // Given as numbers of the graph's symbols or as tensors with one element.
  auto number = [&](llvm::StringRef name, unsigned operand) -> std::string {
    if (Value *v = op.operand(operand); v && !op.hasAttr(name)) {
      call.in(name, v);
      return ("load(" + name + ")").str();
    }
    call.integer(name, op.dimsAttr(name).front());
    return name.str();
  };
  std::string type = "Compute<" + cudaType(y->type.dtype).str() + ">";
  std::string start = number("start", ops::Range::Start),
              delta = number("delta", ops::Range::Delta);
  return launchMap(call, b, op, broadcastLoop(y, {}),
                   "        using T = " + type +
                       ";\n        store(y + at.offset[0], elementwise::add((T)" + start +
                       ", elementwise::mul((T)at.offset[0], (T)" + delta + ")));\n");
}

llvm::Error lowerTrilu(StepBuilder &b, Op &op) {
  using enum ops::Trilu::Operand;
  Value *y = op.result(), *k = op.operand(K);
  llvm::ArrayRef<Dim> shape = y->type.shape;
  llvm::StringRef word = cudaWord(y->type.dtype);
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y, word);
  call.in("x", op.operand(X), word);
  if (k)
    call.in("k", k);
  Shape sizes{elementCount(shape.drop_back(2)), shape[shape.size() - 2], shape.back()};
  return launchMap(
      call, b, op, {sizes, {denseStrides(sizes)}},
      llvm::Twine("        const i64 diagonal = at.coordinate[1] + ") + (k ? "(i64)load(k)" : "0") +
          ";\n        const bool kept = at.coordinate[2] " + (op.boolAttr("upper") ? ">=" : "<=") +
          " diagonal;\n        y[at.offset[0]] = kept ? x[at.offset[0]] : (" + word + ")0;\n",
      true);
}

llvm::Error lowerOneHot(StepBuilder &b, Op &op) {
  using enum ops::OneHot::Operand;
  Value *y = op.result(), *indices = op.operand(Indices);
  unsigned axis = axisOf(op.intAttr("axis"), y->type.rank());
  llvm::ArrayRef<Dim> shape = y->type.shape;
  llvm::StringRef word = cudaWord(y->type.dtype);
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y, word);
  call.in("indices", indices);
  call.in("values", op.operand(Values), word);
  call.integer("depth", shape[axis]);
  Dim inner = elementCount(shape.drop_front(axis + 1));
  Shape sizes{elementCount(shape.take_front(axis)), shape[axis], inner};
  return launchMap(call, b, op, {sizes, {denseStrides(sizes), {inner, Dim(0), Dim(1)}}},
                   "        i64 index = convert<i64>(load(indices + at.offset[1]));\n"
                   "        index = index < 0 ? index + depth : index;\n"
                   "        y[at.offset[0]] = values[index == at.coordinate[1] ? 1 : 0];\n",
                   true);
}

llvm::Error lowerPositions(StepBuilder &b, Op &op) {
  Value *y = op.result();
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y);
  call.in("past", op.operand(ops::Positions::Past));
  return launchMap(call, b, op, {y->type.shape, {denseStrides(y->type.shape), {Dim(1), Dim(0)}}},
                   "        y[at.offset[0]] = (i64)load(past + at.offset[1]) + at.coordinate[1];\n",
                   true);
}

} // namespace gpt2c
