// Lowerings of gathers and scatters: copies whose positions are read from memory.
#include "templates/generic/GenericLowerings.h"

#include "runtime/plan/Expr.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// y = x at `base` plus the sum of index * stride over the indexed axes. `loop` walks y, x with the
/// indexed axes left out, and the first index of each tuple.
static llvm::Error gather(StepBuilder &b, Op &op, Loop loop, llvm::ArrayRef<Dim> sizes,
                          llvm::ArrayRef<Dim> strides) {
  llvm::StringRef word = cudaWord(op.result()->type.dtype);
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", op.result(), word);
  call.in("x", op.operand(ops::Gather::X), word);
  call.in("indices", op.operand(ops::Gather::Indices));
  std::string body = "        i64 from = at.offset[1];\n";
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::string n = std::to_string(i);
    call.integer("size" + n, sizes[i]);
    call.integer("stride" + n, strides[i]);
    body += ("        from += elementwise::wrapIndex((i64)load(indices + at.offset[2] + " +
             llvm::Twine(n) + "), size" + n + ") * stride" + n + ";\n")
                .str();
  }
  return launchMap(call, b, op, std::move(loop), body + "        y[at.offset[0]] = x[from];\n");
}

llvm::Error lowerGather(StepBuilder &b, Op &op) {
  using enum ops::Gather::Operand;
  llvm::ArrayRef<Dim> x = op.operand(X)->type.shape, indices = op.operand(Indices)->type.shape;
  unsigned axis = axisOf(op.intAttr("axis"), x.size());
  Dim inner = elementCount(x.drop_front(axis + 1));
  Shape sizes{elementCount(x.take_front(axis)), elementCount(indices), inner};
  return gather(
      b, op,
      {sizes, {denseStrides(sizes), {x[axis] * inner, Dim(0), Dim(1)}, {Dim(0), Dim(1), Dim(0)}}},
      x[axis], inner);
}

llvm::Error lowerGatherElements(StepBuilder &b, Op &op) {
  llvm::ArrayRef<Dim> x = op.operand(ops::GatherElements::X)->type.shape,
                      y = op.result()->type.shape;
  unsigned axis = axisOf(op.intAttr("axis"), x.size());
  Shape strides = denseStrides(x);
  Dim along = strides[axis];
  strides[axis] = 0;
  return gather(b, op, {Shape(y), {denseStrides(y), strides, denseStrides(y)}}, x[axis], along);
}

llvm::Error lowerGatherND(StepBuilder &b, Op &op) {
  using enum ops::GatherND::Operand;
  llvm::ArrayRef<Dim> x = op.operand(X)->type.shape, indices = op.operand(Indices)->type.shape;
  int64_t batch = op.intAttr("batch_dims"), depth = *indices.back().constant();
  llvm::ArrayRef<Dim> indexed = x.slice(batch, depth);
  Dim rest = elementCount(x.drop_front(batch + depth)),
      tuples = elementCount(indices.drop_front(batch).drop_back());
  Shape sizes{elementCount(indices.take_front(batch)), tuples, rest},
      strides = denseStrides(indexed);
  for (Dim &s : strides)
    s = s * rest;
  return gather(b, op,
                {sizes,
                 {denseStrides(sizes),
                  {elementCount(indexed) * rest, Dim(0), Dim(1)},
                  {tuples * Dim(depth), Dim(depth), Dim(0)}}},
                indexed, strides);
}

llvm::Error lowerScatterND(StepBuilder &b, Op &op) {
  using enum ops::ScatterND::Operand;
  Value *x = op.operand(X), *indices = op.operand(Indices), *y = op.result();
  int64_t depth = *indices->type.shape.back().constant();
  llvm::ArrayRef<Dim> shape = x->type.shape;
  Dim count = elementCount(shape), width = elementCount(shape.drop_front(depth)),
      tuples = elementCount(llvm::ArrayRef(indices->type.shape).drop_back());
  plan::ExprT zero = rt::constantExpr(0);
  if (llvm::Error e =
          launchCopy(b, "scatter_nd", op.locations, y->type.dtype, {{count}, {{Dim(1)}, {Dim(1)}}},
                     b.write(y), b.read(x), zero, zero))
    return e;
  llvm::StringRef word = cudaWord(y->type.dtype);
  KernelCall call(b, op, "templates/generic/scatter.cuh");
  call.type("W", word);
  call.type("I", cudaType(indices->type.dtype));
  call.constant("Depth", depth);
  call.out("y", y, word);
  call.in("indices", indices);
  call.in("updates", op.operand(Updates), word);
  call.integer("tuples", tuples);
  call.integer("width", width);
  Shape strides = denseStrides(shape.take_front(depth));
  std::string sizeList, strideList;
  for (int64_t i = 0; i < depth; ++i) {
    std::string n = std::to_string(i);
    call.integer("size" + n, shape[i]);
    call.integer("stride" + n, strides[i] * width);
    sizeList += (i ? ", size" : "size") + n;
    strideList += (i ? ", stride" : "stride") + n;
  }
  constexpr int threads = 128;
  Dim bytes = tuples * (Dim(depth * byteSize(indices->type.dtype)) +
                        width * Dim(2 * byteSize(y->type.dtype)));
  return call.launch(threads, ceilDivExpr(b.expr(width), threads),
                     "  const i64 size[] = {" + sizeList + "}, stride[] = {" + strideList +
                         "};\n  tile::scatter<" + call.config() +
                         ">(y, indices, updates, tuples, width, size, stride, blockIdx.x, "
                         "gridDim.x);\n",
                     bytes, 0);
}

llvm::Error lowerGenericGatherLast(StepBuilder &b, Op &op) {
  using enum ops::GatherLast::Operand;
  Value *x = op.operand(X), *y = op.result();
  const Dim &seq = x->type.shape[1], &width = x->type.shape[2];
  llvm::StringRef word = cudaWord(y->type.dtype);
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y, word);
  call.in("x", x, word);
  call.in("length", op.operand(Length));
  call.integer("seq", seq);
  call.integer("width", width);
  return launchMap(
      call, b, op,
      {y->type.shape, {denseStrides(y->type.shape), {seq * width, Dim(1)}, {Dim(1), Dim(0)}}},
      "        i64 last = (i64)load(length + at.offset[2]) - 1;\n"
      "        last = last < 0 ? 0 : last < seq ? last : seq - 1;\n"
      "        y[at.offset[0]] = x[at.offset[1] + last * width];\n");
}

llvm::Error lowerGenericEmbed(StepBuilder &b, Op &op) {
  using enum ops::Embed::Operand;
  Value *ids = op.operand(Ids), *tokens = op.operand(Tokens), *positions = op.operand(Positions),
        *past = op.operand(Past), *given = op.operand(PositionIds), *scale = op.operand(TokenScale),
        *y = op.result();
  const Shape &shape = y->type.shape;
  KernelCall call(b, op, "templates/generic/map.cuh");
  call.out("y", y);
  call.in("ids", ids);
  call.in("tokens", tokens);
  call.integer("vocab", tokens->type.shape[0]);
  call.integer("width", shape[2]);
  Shape perToken{shape[1], Dim(1), Dim(0)}, perSequence{Dim(1), Dim(0), Dim(0)};
  std::string token = "load(tokens + id * width + at.coordinate[2])";
  if (scale) {
    call.in("scale", scale);
    call.integer("groups", scale->type.shape[1]);
    token += " * load(scale + id * groups + at.coordinate[2] / (width / groups))";
  }
  std::string body = "        i64 id = (i64)load(ids + at.offset[1]);\n"
                     "        id = id < 0 ? 0 : id < vocab ? id : vocab - 1;\n"
                     "        auto v = " +
                     token + ";\n";
  if (positions) {
    call.in("places", positions);
    call.in("given", given ? given : past);
    call.integer("placeCount", positions->type.shape[0]);
    body += "        i64 place = (i64)load(given + at.offset[2])";
    body += given ? ";\n" : " + at.coordinate[1];\n";
    body += "        place = place < 0 ? 0 : place < placeCount ? place : placeCount - 1;\n"
            "        v += load(places + place * width + at.coordinate[2]);\n";
  }
  return launchMap(call, b, op,
                   {shape, {denseStrides(shape), perToken, given ? perToken : perSequence}},
                   body + "        store(y + at.offset[0], v);\n", true);
}

} // namespace gpt2c
