#include "templates/quantize/Quantize.h"

#include "codegen/KernelWriter.h"
#include "templates/OpKernels.h"
#include "templates/generic/GenericLowerings.h"

namespace gpt2c {

KernelSource quantize(llvm::StringRef name, const QuantizeConfig &c) {
  KernelWriter w(name, "templates/quantize/quantize.cuh", "tile::quantize");
  w.type("X", c.x);
  w.type("Q", c.q);
  w.constant("D", c.d);
  w.constant("Warps", c.warps);
  w.flag("Static", c.given);
  w.in("x", c.x);
  w.out("q", c.q);
  w.out("scale", Scalar::F32);
  w.i32("groups");
  w.pass("blockIdx.x");
  return w.finish(32 * c.warps);
}

KernelSource dequantize(llvm::StringRef name, const DequantizeConfig &c) {
  KernelWriter w(name, "templates/quantize/quantize.cuh", "tile::dequantize");
  w.type("Q", c.q);
  w.type("Y", c.y);
  w.constant("D", c.d);
  w.constant("Threads", c.threads);
  w.flag("One", c.one);
  w.flag("Zeros", c.zeros);
  w.in("q", c.q);
  w.in("scale", Scalar::F32);
  w.in("zero", Scalar::I8, c.zeros);
  w.out("y", c.y);
  w.i32("count");
  w.pass("blockIdx.x");
  w.check("vectorWidth(" + llvm::Twine(c.d) + ", 16) == " + llvm::Twine(dequantizedElements(c)));
  return w.finish(c.threads);
}

static GivenScale givenScale(const Value *scale, const Value *zero, Scalar to) {
  const Tensor *s = constantOf(scale), *z = constantOf(zero);
  if (!s || (zero && !z))
    return {};
  const float inverse = 1.0F / static_cast<float>(s->asDouble(0));
  return z ? GivenScale{Given::ScaleAndZero, inverse, static_cast<float>(z->asInt(0))}
           : GivenScale{to == Scalar::F8E4M3 ? Given::Fp8Scale : Given::Scale, inverse};
}

plan::ArgT workspace(StepBuilder &b, llvm::StringRef what, int64_t count, Scalar type) {
  plan::DType dtype = type == Scalar::I8       ? plan::DType::I8
                      : type == Scalar::F8E4M3 ? plan::DType::F8E4M3
                      : type == Scalar::F16    ? plan::DType::F16
                      : type == Scalar::BF16   ? plan::DType::BF16
                                               : plan::DType::F32;
  return b.temporary(what, dtype, count);
}

void launchQuantize(StepBuilder &b, Op &op, plan::ArgT x, Scalar type, const Dim &m, int64_t k,
                    const QuantisedRows &rows) {
  QuantizeConfig c;
  c.x = type;
  c.q = rows.type;
  c.d = rows.group > 0 ? rows.group : k;
  c.given = rows.group < 0;
  Dim groups = m * Dim(k / c.d);
  StepBuilder::Args args;
  args["x"] = std::move(x);
  args["q"] = rows.q;
  args["scale"] = rows.scale;
  args["groups"] = b.i32(groups);
  b.launch(op.locations, "quantize", quantize(b.pool().nextKernelName("quantize"), c), args,
           {ceilDivExpr(b, groups, c.warps), one(), one()},
           m * Dim(k * (scalarBytes(type) + 1)) + groups * Dim(4), m * Dim(3 * k));
}

void launchDequantize(StepBuilder &b, Op &op, const QuantisedRows &rows, plan::ArgT y, Scalar type,
                      const Dim &m, int64_t k) {
  DequantizeConfig c;
  c.y = type;
  c.d = rows.group > 0 ? rows.group : k;
  c.one = rows.group < 0;
  c.q = rows.type;
  Dim count = m * Dim(k);
  StepBuilder::Args args;
  args["q"] = rows.q;
  args["scale"] = rows.scale;
  if ((c.zeros = rows.zero.has_value()))
    args["zero"] = *rows.zero;
  args["y"] = std::move(y);
  args["count"] = b.i32(count);
  b.launch(op.locations, "dequantize", dequantize(b.pool().nextKernelName("dequantize"), c), args,
           {ceilDivExpr(b, count, int64_t(c.threads) * dequantizedElements(c)), one(), one()},
           m * Dim(storedBytes(rows.type, k) + k * scalarBytes(type)), count);
}

llvm::Expected<QuantisedRows> quantisedResult(StepBuilder &b, Op &op, unsigned first, Value *given,
                                              int64_t group, Value *zero) {
  QuantisedRows rows;
  rows.group = given ? -1 : group;
  rows.type = scalarOf(op.result(first));
  rows.given = givenScale(given, zero, rows.type);
  if (zero && !rows.given)
    return noKernel(op, "zero points are constants");
  auto q = b.write(op.result(first));
  if (!q)
    return q.takeError();
  rows.q = std::move(*q);
  if (given)
    b.alias(op.result(first + 1), given);
  auto scale = given ? b.read(given) : b.write(op.result(first + 1));
  if (!scale)
    return scale.takeError();
  rows.scale = std::move(*scale);
  return rows;
}

llvm::Error lowerQuantize(StepBuilder &b, Op &op) {
  Value *x = op.operand(ops::Quantize::X);
  if (!takes(OpKernel::Quantise, op) || !x->type.shape.back().isConstant())
    return noKernel(op, "rows that are quantised are in f32, f16 or bf16 and of constant length");
  auto rows = quantisedResult(b, op, ops::Quantize::Q, op.operand(ops::Quantize::Scale),
                              op.intAttr("group"));
  auto from = b.read(x);
  if (!rows || !from)
    return llvm::joinErrors(rows.takeError(), from.takeError());
  launchQuantize(b, op, std::move(*from), scalarOf(x), leading(x), lastDim(x), *rows);
  return llvm::Error::success();
}

llvm::Error lowerDequantize(StepBuilder &b, Op &op) {
  Value *q = op.operand(ops::Dequantize::Q), *scale = op.operand(ops::Dequantize::Scale),
        *zero = op.operand(ops::Dequantize::Zero);
  if (!takes(OpKernel::Dequantise, op) || !q->type.shape.back().isConstant())
    return noKernel(op, "rows become f32, f16 or bf16 and have a constant length");
  auto from = b.read(q), scales = b.read(scale), to = b.write(op.result());
  if (!from || !scales || !to)
    return llvm::joinErrors(from.takeError(), llvm::joinErrors(scales.takeError(), to.takeError()));
  QuantisedRows rows{std::move(*from), std::move(*scales),
                     scale->type.rank() == 0 ? -1 : groupOf(scale, lastDim(q)), scalarOf(q)};
  if (zero) {
    auto zeros = b.read(zero);
    if (!zeros)
      return zeros.takeError();
    rows.zero = std::move(*zeros);
  }
  launchDequantize(b, op, rows, std::move(*to), scalarOf(op.result()), leading(q), lastDim(q));
  return llvm::Error::success();
}

} // namespace gpt2c
