// Products with quantised weights: the launches in front of them and behind, and their scales.
#include "templates/linear/Linear.h"

#include "templates/generic/GenericLowerings.h"
#include "templates/quantize/Quantize.h"

namespace gpt2c {

// Operands of both ops; those of one alone have its name before them.
using ops::QuantizedLinear::X, ops::QuantizedLinear::W, ops::QuantizedLinear::WScale,
    ops::QuantizedLinear::XScale;
using Requantized = ops::RequantizedLinear;

/// The rows of a product, quantised: as they come, or quantised here.
static llvm::Expected<QuantisedRows> productRows(StepBuilder &b, const LinearGroup &g) {
  Op &op = *g.product;
  Value *x = op.operand(X), *scale = op.operand(XScale);
  auto from = b.read(x);
  if (!from)
    return from.takeError();
  plan::ArgT given;
  if (scale) {
    auto read = b.read(scale);
    if (!read)
      return read.takeError();
    given = std::move(*read);
  }
  QuantisedRows rows;
  rows.group = g.int8->rowGroup;
  rows.type = scalarOf(op.operand(W));
  if (g.int8->rows == Int8Product::Given) {
    rows.q = std::move(*from);
    rows.scale = std::move(given);
    return rows;
  }
  const LinearShape &s = g.problem;
  rows.q = workspace(b, "rows", s.rows * s.k, rows.type);
  rows.scale =
      scale ? std::move(given)
            : workspace(b, "scales", s.rows * (rows.group ? s.k / rows.group : 1), Scalar::F32);
  launchQuantize(b, op, std::move(*from), scalarOf(x), leading(x), s.k, rows);
  return rows;
}

/// No kernel multiplies these as they are: what is quantised becomes the type that the product is
/// in. `rows` is null where they are floats.
static void widen(StepBuilder &b, const LinearGroup &g, LinearCall &call, const QuantisedRows *rows,
                  const QuantisedRows &weights) {
  Op &op = *g.product;
  const LinearShape &s = g.problem;
  if (rows) {
    call.args["x"] = workspace(b, "wide-rows", s.rows * s.k, s.x);
    launchDequantize(b, op, *rows, call.args["x"], s.x, call.m, s.k);
  }
  call.args["w"] = workspace(b, "wide-weights", s.n * s.k, s.x);
  launchDequantize(b, op, weights, call.args["w"], s.x, Dim(s.n), s.k);
}

/// Scales and offsets in front of the epilogue: of rows, unless the kernel applies them, and of
/// columns, unless the kernel has them for groups of weights.
static Epilogue scaleStages(const LinearGroup &g, ArgList &args, const QuantisedRows &rows,
                            const plan::ArgT &weightScales) {
  Op &op = *g.product;
  Epilogue stages;
  auto scaleBy = [&](EpilogueStage::Kind kind, const plan::ArgT &arg) {
    args.set("e" + std::to_string(stages.size()), arg);
    stages.push_back({kind});
  };
  const unsigned sumOffset = op.is(OpCode::RequantizedLinear)
                                 ? unsigned(Requantized::SumOffset)
                                 : unsigned(ops::QuantizedLinear::SumOffset);
  if (Value *offset = op.operand(sumOffset)) {
    args.in("e0", offset);
    stages.push_back({EpilogueStage::AddBias, Scalar::I32});
  }
  if (!g.int8->integers) {
    if (g.int8->widened)
      return stages;
    if (g.problem.wZeros)
      args.in("wZero", op.operand(ops::QuantizedLinear::WZero));
    if (g.problem.wGroup > 0)
      args.set("wScale", weightScales);
    else
      scaleBy(EpilogueStage::ScaleColumn, weightScales);
    return stages;
  }
  if (const Tensor *one = rows.group == -1 ? constantOf(op.operand(XScale)) : nullptr)
    scaleBy(EpilogueStage::ScaleByValue, StepBuilder::f32(static_cast<float>(one->asDouble(0))));
  else if (rows.group == -1)
    scaleBy(EpilogueStage::ScaleAll, rows.scale);
  else if (g.int8->rowScales)
    scaleBy(EpilogueStage::ScaleRow, rows.scale);
  scaleBy(EpilogueStage::ScaleColumn, weightScales);
  return stages;
}

/// What the kernel of a product of integers is told of its rows' scales, and of the result's where
/// it quantises that.
static void addScales(const LinearGroup &g, LinearCall &call, const QuantisedRows &rows,
                      const QuantisedRows &result) {
  if (rows.group >= 0)
    call.args["xScale"] = rows.scale;
  call.args["x"] = rows.q;
  if (g.int8->result != Int8Product::InEpilogue)
    return;
  if (result.given) {
    result.given.tell(call.args);
    call.epilogue.push_back({stageOf(result.given.kind)});
  } else {
    call.args["yScale"] = result.scale;
  }
  halveActivations(call.epilogue);
}

llvm::Error emitInt8(StepBuilder &b, const LinearGroup &g) {
  Op &op = *g.product;
  const LinearShape &s = g.problem;
  const Int8Product &form = *g.int8;
  QuantisedRows result, rows;
  if (form.result != Int8Product::Floating) {
    auto made = quantisedResult(b, op, Requantized::Q, op.operand(Requantized::YScale),
                                form.resultGroup, op.operand(Requantized::YZero));
    if (!made)
      return made.takeError();
    result = std::move(*made);
  }
  if (form.rows != Int8Product::Floats) {
    auto quantised = productRows(b, g);
    if (!quantised)
      return quantised.takeError();
    rows = std::move(*quantised);
  }
  auto weights = b.read(op.operand(W)), weightScales = b.read(op.operand(WScale));
  if (!weights || !weightScales)
    return llvm::joinErrors(weights.takeError(), weightScales.takeError());
  ArgList args(b);
  auto call = linearCall(g, args, scaleStages(g, args, rows, *weightScales));
  if (!call)
    return call.takeError();
  plan::ArgT stored = call->args["y"];
  if (form.result == Int8Product::Behind)
    stored = call->args["y"] = workspace(b, "product", s.rows * s.n, s.y);
  if (form.integers)
    addScales(g, *call, rows, result);
  if (form.widened) {
    const int64_t k = s.k, scales = lastDim(op.operand(WScale));
    QuantisedRows stored{*weights, *weightScales, scales > 1 ? k / scales : 0,
                         scalarOf(op.operand(W))};
    if (Value *zero =
            op.is(OpCode::QuantizedLinear) ? op.operand(ops::QuantizedLinear::WZero) : nullptr) {
      auto zeros = b.read(zero);
      if (!zeros)
        return zeros.takeError();
      stored.zero = std::move(*zeros);
    }
    widen(b, g, *call, form.rows == Int8Product::Floats ? nullptr : &rows, stored);
  }
  if (llvm::Error e = launch(b, g, *call))
    return e;
  if (form.result == Int8Product::Behind)
    launchQuantize(b, op, std::move(stored), s.y, leading(op.operand(X)), s.n, result);
  return llvm::Error::success();
}

} // namespace gpt2c
