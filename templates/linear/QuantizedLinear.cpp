// Products with int8 weights: of int8 rows where a kernel multiplies them, else of floating-point
// rows, with a quantize or dequantize beside what no kernel does itself.
#include "templates/linear/Linear.h"

#include "templates/generic/GenericLowerings.h"
#include "templates/quantize/Quantize.h"

namespace gpt2c {

// Operands of both ops; those of one alone have its name before them.
using ops::QuantizedLinear::X, ops::QuantizedLinear::W, ops::QuantizedLinear::WScale,
    ops::QuantizedLinear::XScale, ops::QuantizedLinear::Bias;

/// The rows of a product in int8: as they come, or quantised here.
static llvm::Expected<QuantisedRows> productRows(StepBuilder &b, Op &op, const LinearShape &s) {
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
  if (x->type.dtype == DType::I8) {
    rows.q = std::move(*from);
    rows.scale = std::move(given);
    rows.group = scale->type.rank() == 0 ? -1 : groupOf(scale, s.k);
    return rows;
  }
  rows.group = scale ? -1 : op.intAttr("x_group");
  if (rows.group == s.k)
    rows.group = 0;
  rows.q = workspace(b, "rows", s.rows * s.k, Scalar::I8);
  rows.scale =
      scale ? std::move(given)
            : workspace(b, "scales", s.rows * (rows.group ? s.k / rows.group : 1), Scalar::F32);
  launchQuantize(b, op, std::move(*from), s.x, leading(x), s.k, rows);
  return rows;
}

/// The product of int8 rows as tuning files call it.
static std::string int8Key(const LinearCall &call, const Op &op, const QuantisedRows &rows,
                           int64_t yGroup) {
  std::string key = choiceKey(call, op) + " in i8";
  if (rows.group > 0)
    key += " groups=" + std::to_string(rows.group);
  if (yGroup > 0)
    key += " y_group=" + std::to_string(yGroup);
  if (givenOf(call.epilogue) != Given::None)
    key += " y quantised by a given scale";
  return key;
}

/// A product of int8 rows; `call.epilogue` and its operands have all scales but those of groups,
/// and of rows where the kernel applies them.
static llvm::Error launchInt8(StepBuilder &b, Op &op, LinearCall call, const QuantisedRows &rows,
                              LinearProblem p) {
  const EpilogueStage &last = call.epilogue.back(); // scales of columns are there at least
  p.int8.residual =
      last.kind == EpilogueStage::AddMatrix && last.operand == Scalar::F16 && p.y == Scalar::F16;
  // After a norm or attention some SMs are still busy. If two blocks fit on one they may pile up
  // there; so ask for more than half of its shared memory. Products without groups that follow
  // products begin on each other's SMs.
  const Op *before = op.operand(X)->def();
  p.int8.oneCtaPerSm = rows.group >= 0 || !before || !before->is(OpCode::RequantizedLinear);
  p.int8.halfBias = op.operand(Bias) && scalarOf(op.operand(Bias)) == Scalar::F16;
  call.args["x"] = rows.q;
  if (rows.group >= 0)
    call.args["xScale"] = rows.scale;
  std::string key = int8Key(call, op, rows, p.int8.yGroup);
  return chooseAndLaunch(b, op, call, p, std::move(key));
}

/// No kernel multiplies these as they are: what is int8 becomes the type that the product is in.
/// `rows` is null where they are floats.
static void widen(StepBuilder &b, Op &op, LinearCall &call, const LinearProblem &s,
                  const QuantisedRows *rows, const QuantisedRows &weights) {
  const Scalar type = rows ? Scalar::F32 : s.x;
  if (rows) {
    call.args["x"] = workspace(b, "wide-rows", s.rows * s.k, type);
    launchDequantize(b, op, *rows, call.args["x"], type, call.m, s.k);
  }
  call.args["w"] = workspace(b, "wide-weights", s.n * s.k, type);
  launchDequantize(b, op, weights, call.args["w"], type, Dim(s.n), s.k);
  call.shape.x = type;
  call.shape = call.shape.widened();
}

llvm::Error lowerQuantizedLinear(StepBuilder &b, Op &op) {
  if (op.is(OpCode::QuantizedLinear) && fusedGate(b, op)) // launched with the gate
    return llvm::Error::success();
  return lowerInt8Product(b, op, nullptr);
}

llvm::Error lowerInt8Product(StepBuilder &b, Op &op, Op *gate) {
  using Requantized = ops::RequantizedLinear;
  const bool requantised = op.is(OpCode::RequantizedLinear);
  Value *x = op.operand(X), *wScale = op.operand(WScale), *bias = op.operand(Bias);
  Value *residual = requantised ? nullptr : op.operand(ops::QuantizedLinear::Residual),
        *offset = requantised ? op.operand(Requantized::SumOffset)
                              : op.operand(ops::QuantizedLinear::SumOffset),
        *yScale = requantised ? op.operand(Requantized::YScale) : nullptr,
        *yZero = requantised ? op.operand(Requantized::YZero) : nullptr;
  if (!hasKernelTypes(op))
    return noKernel(op, "products with weights are in f32, f16, bf16 or i8");
  if (!op.operand(W)->type.isStatic())
    return noKernel(op, "the size of its weights is not constant");
  LinearProblem s = linearProblem(b, op);
  s.fused.gate = gate != nullptr;
  // Floating-point rows that a kernel reads as they are; for x_group >= 0 it quantises them.
  const bool floatRows = x->type.dtype != DType::I8 && !op.operand(XScale) &&
                         (op.intAttr("x_group") < 0 || computes(s));

  // A quantised result: by the kernel of int8 rows when its scale is given or its scales are of 64
  // or 128 columns, else in a step of its own.
  QuantisedRows result;
  bool inEpilogue = false;
  if (requantised) {
    int64_t group = op.intAttr("y_group") == s.n ? 0 : op.intAttr("y_group");
    auto rows = quantisedResult(b, op, Requantized::Q, yScale, group, yZero);
    if (!rows)
      return rows.takeError();
    result = std::move(*rows);
    inEpilogue =
        !floatRows && (result.given || (s.k % 16 == 0 && !yScale && (group == 64 || group == 128)));
    // What is stored in between has the type of the plan.
    if (!inEpilogue)
      s.y = bias ? scalarOf(bias) : s.x == Scalar::I8 ? Scalar::F32 : s.x;
  }

  QuantisedRows rows;
  if (!floatRows) {
    auto quantised = productRows(b, op, s);
    if (!quantised)
      return quantised.takeError();
    rows = std::move(*quantised);
    s.x = Scalar::I8;
  }
  s.int8.group = rows.group;
  const bool integers = !floatRows && computes(s);
  if (inEpilogue && (!integers || !(result.given || linearInt8Kernel().refusal(s).empty()))) {
    inEpilogue = false;
    s.y = bias ? scalarOf(bias) : Scalar::F32;
  }

  s.int8.yGroup = inEpilogue && !result.given ? result.group : 0;

  if (offset && !integers)
    return noKernel(op, "sums of 2^17 and more products have no offset");

  ArgList args(b);
  Epilogue scales;
  auto weights = b.read(op.operand(W)), weightScales = b.read(wScale);
  if (!weights || !weightScales)
    return llvm::joinErrors(weights.takeError(), weightScales.takeError());
  auto scaleBy = [&](EpilogueStage::Kind kind, const plan::ArgT &arg) {
    args.set("e" + std::to_string(scales.size()), arg);
    scales.push_back({kind});
  };
  if (offset) {
    args.in("e0", offset);
    scales.push_back({EpilogueStage::AddBias, Scalar::I32});
  }
  if (integers) {
    if (const Tensor *one = rows.group == -1 ? constantOf(op.operand(XScale)) : nullptr)
      scaleBy(EpilogueStage::ScaleByValue, StepBuilder::f32(static_cast<float>(one->asDouble(0))));
    else if (rows.group == -1)
      scaleBy(EpilogueStage::ScaleAll, rows.scale);
    else if (rows.group == 0 && !leaderComputes(s.with({.rowScales = true})))
      scaleBy(EpilogueStage::ScaleRow, rows.scale);
    scaleBy(EpilogueStage::ScaleColumn, *weightScales);
  } else if (floatRows && computes(s)) {
    if (s.wGroup > 0)
      args.set("wScale", *weightScales);
    else
      scaleBy(EpilogueStage::ScaleColumn, *weightScales);
  }
  Op *norm = floatRows ? fusedNorm(b, op) : nullptr;
  auto call = linearCall(b, op, args, norm ? norm->operand(ops::LayerNorm::X) : x, bias, residual,
                         std::move(scales), gate);
  if (!call)
    return call.takeError();
  call->shape = s;
  const int64_t most = s.rows * s.n;
  plan::ArgT stored = call->args["y"];
  if (requantised && !inEpilogue)
    stored = call->args["y"] = workspace(b, "product", most, s.y);

  if (integers) {
    if (inEpilogue) {
      if (result.given) {
        result.given.tell(call->args);
        call->epilogue.push_back(
            {yZero ? EpilogueStage::QuantiseByScaleAndZero : EpilogueStage::QuantiseByScale});
      } else {
        call->args["yScale"] = result.scale;
      }
      halveActivations(call->epilogue);
    }
    if (llvm::Error e = launchInt8(b, op, std::move(*call), rows, s))
      return e;
  } else {
    if (!floatRows || !computes(s))
      widen(b, op, *call, s, floatRows ? nullptr : &rows, {*weights, *weightScales, s.wGroup});
    if (llvm::Error e = launchLinear(b, op, std::move(*call), norm, gate))
      return e;
  }
  if (requantised && !inEpilogue)
    launchQuantize(b, op, std::move(stored), s.y, leading(x), s.n, result);
  return llvm::Error::success();
}

} // namespace gpt2c
