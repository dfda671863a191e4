#include "templates/norm/Norm.h"

#include "codegen/KernelWriter.h"
#include "templates/OpKernels.h"
#include "templates/generic/GenericLowerings.h"
#include "templates/quantize/Quantize.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

KernelSource layerNorm(llvm::StringRef name, const LayerNormConfig &c) {
  KernelWriter w(name, "templates/norm/layer_norm.cuh", "tile::layerNorm");
  w.type("X", c.x);
  w.type("Y", c.y);
  w.type("P", c.p);
  w.constant("D", c.d);
  w.constant("Threads", c.threads);
  w.constant("Rows", c.rows);
  w.flag("Rms", c.rms);
  w.flag("Residual", c.residual);
  w.in("x", c.x);
  w.in("residual", c.x);
  w.in("gain", c.p);
  w.in("shift", c.p);
  w.out("y", c.y);
  w.out("yScale", Scalar::F32, isQuantised(c.y) && c.given == Given::None);
  w.out("sum", c.x);
  w.f32("epsilon");
  w.group([&] {
    w.i32("rows");
    w.pass("blockIdx.x");
  });
  w.pass(w.given(c.given));
  return w.finish(c.threads * c.rows);
}

Grid gridOf(const LayerNormConfig &c, const plan::ExprT &rows) {
  return blocks(ceilDivExpr(rows, c.rows));
}

/// How a norm shares its rows of that width: a warp for each, which has no barriers, as long as it
/// holds the row in registers.
static void shareRows(LayerNormConfig &c, int64_t width) {
  c.d = width;
  c.threads = width <= 2048 ? 32 : rowThreads(width);
  c.rows = width <= 2048 ? 4 : 1;
}

llvm::Error lowerNorm(StepBuilder &b, Op &op) {
  using enum ops::LayerNorm::Operand; // rms_norm has no Bias
  Value *x = op.operand(X);
  if (!isRowNorm(op))
    return lowerGenericNorm(b, op);
  LayerNormConfig c;
  c.x = scalarOf(x->type.dtype);
  c.y = scalarOf(op.result()->type.dtype);
  c.p = scalarOf(op.operand(Scale)->type.dtype);
  shareRows(c, lastDim(x));
  c.rms = op.is(OpCode::RmsNorm);
  auto args = ArgList(b)
                  .in("x", x)
                  .in("gain", op.operand(Scale))
                  .in("shift", op.operand(Bias))
                  .out("y", op.result())
                  .set("residual", StepBuilder::null())
                  .set("sum", StepBuilder::null())
                  .set("epsilon", StepBuilder::f32(op.floatAttr("epsilon")))
                  .i32("rows", leading(x))
                  .take();
  if (!args)
    return args.takeError();
  Dim rows = leading(x);
  llvm::StringRef what = op.info().mnemonic;
  return b.launch(op, what, layerNorm(b.pool().nextKernelName(what), c), *args,
                  gridOf(c, b.expr(rows)), bytesOf(x) + bytesOf(op.result()),
                  rows * Dim(8 * int64_t(c.d)));
}

llvm::Error lowerAddLayerNorm(StepBuilder &b, Op &op) {
  using enum ops::AddLayerNorm::Operand;
  using enum ops::AddLayerNorm::Result;
  Value *x = op.operand(X), *gain = op.operand(Scale), *shift = op.operand(Bias),
        *sum = op.result(Sum), *y = op.result(Y);
  const Dim &width = x->type.shape.back();
  if (!takes(OpKernel::Norm, op) || !width.isConstant() || gain->type.rank() != 1 ||
      gain->type.shape[0] != width || (shift && shift->type != gain->type))
    return noKernel(op,
                    "a sum and its norm are rows in f32, f16 or bf16 with one scale and bias for "
                    "each element");
  LayerNormConfig c;
  c.x = scalarOf(x->type.dtype);
  c.y = scalarOf(y->type.dtype);
  c.p = scalarOf(gain->type.dtype);
  shareRows(c, lastDim(x));
  c.residual = true;
  c.rms = op.boolAttr("rms");
  ArgList list(b);
  list.in("x", x).in("residual", op.operand(Residual)).in("gain", gain).in("shift", shift);
  list.out("y", y).set("epsilon", StepBuilder::f32(op.floatAttr("epsilon")));
  list.i32("rows", leading(x));
  if (!sum->uses().empty())
    list.out("sum", sum);
  else
    list.set("sum", StepBuilder::null());
  auto args = list.take();
  if (!args)
    return args.takeError();
  Dim rows = leading(x);
  const llvm::StringRef what = c.rms ? "add_rms_norm" : "add_layer_norm";
  return b.launch(op, what, layerNorm(b.pool().nextKernelName(what), c), *args,
                  gridOf(c, b.expr(rows)), bytesOf(x) * Dim(!sum->uses().empty() ? 4 : 3),
                  rows * Dim(9 * int64_t(c.d)));
}

llvm::Error lowerQuantizedLayerNorm(StepBuilder &b, Op &op) {
  using enum ops::QuantizedLayerNorm::Operand;
  Value *x = op.operand(X), *gain = op.operand(Scale), *shift = op.operand(Bias),
        *given = op.operand(YScale), *zero = op.operand(YZero);
  if (!takes(OpKernel::Norm, op) || !x->type.shape.back().isConstant() || gain->type.rank() != 1 ||
      gain->type.shape[0] != x->type.shape.back() || (shift && shift->type != gain->type))
    return noKernel(op, "a norm that quantises has one scale and bias for each element of a row");
  const int64_t k = lastDim(x), group = op.intAttr("group") == k ? 0 : op.intAttr("group");
  auto rows = quantisedResult(b, op, ops::QuantizedLayerNorm::Q, given, group, zero);
  if (!rows)
    return rows.takeError();
  LayerNormConfig c;
  c.x = scalarOf(x);
  c.p = scalarOf(gain);
  c.rms = op.boolAttr("rms");
  shareRows(c, k);
  c.given = rows->given.kind;
  const bool fused = rows->group == 0 || rows->given;
  c.y = fused ? rows->type : c.x;
  plan::ArgT y = fused ? rows->q : workspace(b, "norm", b.maximum(elements(x)), c.x);
  auto args = ArgList(b)
                  .in("x", x)
                  .in("gain", gain)
                  .in("shift", shift)
                  .set("y", y)
                  .set("yScale", rows->scale)
                  .set("residual", StepBuilder::null())
                  .set("sum", StepBuilder::null())
                  .set("epsilon", StepBuilder::f32(op.floatAttr("epsilon")))
                  .i32("rows", leading(x))
                  .take();
  if (!args)
    return args.takeError();
  rows->given.tell(*args);
  const Dim m = leading(x);
  const llvm::StringRef what = c.rms ? "rms_norm" : "layer_norm";
  b.launch(op.locations, (what + (fused ? "+quantize" : "")).str(),
           layerNorm(b.pool().nextKernelName(what), c), *args, gridOf(c, b.expr(m)),
           bytesOf(x) + m * Dim(k * scalarBytes(c.y)), m * Dim(10 * k));
  if (!fused)
    launchQuantize(b, op, std::move(y), c.x, m, k, *rows);
  return llvm::Error::success();
}

} // namespace gpt2c
