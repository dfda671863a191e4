#include "codegen/KernelCall.h"

#include "ir/Error.h"
#include "ir/ops/Common.h"
#include "runtime/plan/Expr.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

llvm::StringRef cudaWord(DType t) {
  switch (byteSize(t)) {
  case 1:
    return "unsigned char";
  case 2:
    return "unsigned short";
  case 4:
    return "unsigned";
  default:
    return "u64";
  }
}

//===-- loops --------------------------------------------------------------------------------===//

Shape denseStrides(llvm::ArrayRef<Dim> shape) {
  Shape strides(shape.size(), Dim(1));
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Shape broadcastStrides(llvm::ArrayRef<Dim> in, llvm::ArrayRef<Dim> out) {
  Shape seen;
  for (size_t i = 0; i < in.size(); ++i)
    seen.push_back(in[i] == Dim(1) ? in[i] : out[out.size() - in.size() + i]);
  Shape dense = denseStrides(seen), strides(out.size(), Dim(0));
  for (size_t i = 0; i < in.size(); ++i)
    if (!(seen[i] == Dim(1)))
      strides[out.size() - in.size() + i] = dense[i];
  return strides;
}

Loop broadcastLoop(const Value *y, llvm::ArrayRef<Value *> operands) {
  Loop loop{y->type.shape, {denseStrides(y->type.shape)}};
  for (const Value *v : operands)
    loop.strides.push_back(broadcastStrides(v->type.shape, y->type.shape));
  return loop;
}

void Loop::simplify() {
  auto erase = [&](size_t axis) {
    sizes.erase(sizes.begin() + axis);
    for (Shape &s : strides)
      s.erase(s.begin() + axis);
  };
  for (size_t i = sizes.size(); i-- > 0;)
    if (sizes[i] == Dim(1))
      erase(i);
  for (size_t i = sizes.size(); i-- > 1;)
    if (llvm::all_of(strides, [&](const Shape &s) { return s[i - 1] == s[i] * sizes[i]; })) {
      sizes[i - 1] = sizes[i - 1] * sizes[i];
      for (Shape &s : strides)
        s[i - 1] = s[i];
      erase(i);
    }
}

//===-- KernelCall ---------------------------------------------------------------------------===//

KernelCall::KernelCall(StepBuilder &b, llvm::StringRef what, llvm::ArrayRef<llvm::StringRef> nodes,
                       llvm::StringRef header)
    : b_(b), what_(what), nodes_(nodes), writer_(b.pool().nextKernelName(what), header) {}

void KernelCall::pointer(llvm::StringRef name, llvm::StringRef cuda,
                         llvm::Expected<plan::ArgT> argument, bool written) {
  writer_.declare((written ? "" : "const ") + cuda.str() + " *", name);
  if (argument)
    args_[name] = std::move(*argument);
  else if (error_)
    error_ = llvm::joinErrors(std::move(*error_), argument.takeError());
  else
    error_ = argument.takeError();
}

void KernelCall::in(llvm::StringRef name, Value *v, llvm::StringRef cuda) {
  pointer(name, cuda.empty() ? cudaType(v->type.dtype) : cuda, b_.read(v));
}
void KernelCall::out(llvm::StringRef name, Value *v, llvm::StringRef cuda) {
  pointer(name, cuda.empty() ? cudaType(v->type.dtype) : cuda, b_.write(v), true);
}

void KernelCall::integer(llvm::StringRef name, plan::ExprT value) {
  writer_.declare("i64", name);
  plan::ArgT &a = args_[name];
  a.kind = plan::ArgKind::I64;
  a.expr = std::make_unique<plan::ExprT>(std::move(value));
}

void KernelCall::real(llvm::StringRef name, double value) {
  writer_.declare("float", name);
  args_[name] = StepBuilder::f32(static_cast<float>(value));
}

std::string KernelCall::axes(llvm::StringRef name, const Loop &loop) {
  size_t rank = loop.sizes.size();
  auto list = [&](const llvm::Twine &prefix, llvm::ArrayRef<Dim> values) {
    std::string text;
    for (size_t i = 0; i < rank; ++i) {
      std::string parameter = (prefix + llvm::Twine(i)).str();
      integer(parameter, values[i]);
      text += (i ? ", " : "") + parameter;
    }
    return "{" + (rank ? text : "0") + "}";
  };
  int64_t positions = b_.maximum(elementCount(loop.sizes));
  std::string type = "Axes<" + std::to_string(rank) + ", " + std::to_string(loop.strides.size()) +
                     ", " + (positions <= UINT32_MAX ? "unsigned" : "u64") + ">";
  std::string text = list(name + "Size", loop.sizes) + ", {";
  for (auto [t, strides] : llvm::enumerate(loop.strides))
    text += (t ? ", " : "") + list(name + llvm::Twine(t) + "Stride", strides);
  return type + "{" + text + "}}";
}

llvm::Error KernelCall::launch(unsigned threads, plan::ExprT rounds, const llvm::Twine &body,
                               const Dim &bytes, const Dim &flops) {
  if (error_)
    return std::move(*error_);
  constexpr int64_t most = 1 << 20; // the kernels loop
  plan::ExprT one = rt::constantExpr(1);
  rounds = minExpr(maxExpr(rounds, rt::constantExpr(0)), rt::constantExpr(most));
  b_.launch(nodes_, what_, writer_.finishWith(body, threads), args_, {std::move(rounds), one, one},
            bytes, flops);
  return llvm::Error::success();
}

llvm::Error KernelCall::launch(Op &op, unsigned threads, plan::ExprT rounds,
                               const llvm::Twine &body) {
  Cost cost = op.info().cost ? op.info().cost(op) : Cost{0, ioBytes(op)};
  return launch(threads, std::move(rounds), body, cost.bytes, cost.flops);
}

//===-- maps ---------------------------------------------------------------------------------===//

llvm::Error launchMap(KernelCall &call, StepBuilder &b, Loop loop, const llvm::Twine &body,
                      const Dim &bytes, const Dim &flops, bool needsCoordinates) {
  constexpr int threads = 256, items = 4;
  Dim count = elementCount(loop.sizes);
  if (!needsCoordinates)
    loop.simplify();
  call.constant("Items", items);
  call.integer("count", count);
  std::string axes = call.axes("n", loop);
  return call.launch(threads, ceilDivExpr(b.expr(count), threads * items),
                     "  const auto axes = " + axes + ";\n  tile::map<" + call.config() +
                         ">(\n      [&](const auto &at) {\n" + body +
                         "      },\n      axes, count, blockIdx.x, gridDim.x);\n",
                     bytes, flops);
}

llvm::Error launchMap(KernelCall &call, StepBuilder &b, Op &op, Loop loop, const llvm::Twine &body,
                      bool needsCoordinates) {
  Cost cost = op.info().cost ? op.info().cost(op) : Cost{0, ioBytes(op)};
  return launchMap(call, b, std::move(loop), body, cost.bytes, cost.flops, needsCoordinates);
}

llvm::Error launchCopy(StepBuilder &b, llvm::StringRef what, llvm::ArrayRef<llvm::StringRef> nodes,
                       DType dtype, Loop loop, llvm::Expected<plan::ArgT> to,
                       llvm::Expected<plan::ArgT> from, plan::ExprT toOffset,
                       plan::ExprT fromOffset) {
  KernelCall call(b, what, nodes, "templates/generic/map.cuh");
  call.pointer("y", cudaWord(dtype), std::move(to), true);
  call.pointer("x", cudaWord(dtype), std::move(from));
  call.integer("first", std::move(toOffset));
  call.integer("from", std::move(fromOffset));
  Dim bytes = elementCount(loop.sizes) * Dim(2 * byteSize(dtype));
  return launchMap(call, b, std::move(loop),
                   "        y[first + at.offset[0]] = x[from + at.offset[1]];\n", bytes, 0);
}

} // namespace gpt2c
