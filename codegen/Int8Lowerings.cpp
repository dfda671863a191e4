// How the int8 ops become launches. Producers that can quantise their result do so; every other
// form is the floating-point kernel with a quantize or dequantize beside it.
#include "codegen/FusedLowerings.h"
#include "codegen/Int8Tiles.h"

#include "ir/ops/QuantizedProduct.h"

namespace gpt2c {

namespace {

/// Rows in int8 and their scales.
struct QuantisedRows {
  plan::ArgT q, scale;
  int64_t group = 0;     ///< elements that share a scale; 0: a row, -1: all
  GivenScale given = {}; ///< of a result, group -1, when it is a constant
};

const Tensor *constantOf(const Value *v) {
  return v && v->def() && v->def()->is(OpCode::Constant) ? &v->def()->constant : nullptr;
}

GivenScale givenScale(const Value *scale, const Value *zero) {
  const Tensor *s = constantOf(scale), *z = constantOf(zero);
  if (!s || (zero && !z))
    return {};
  const float inverse = 1.0F / static_cast<float>(s->asDouble(0));
  return z ? GivenScale{Given::ScaleAndZero, inverse, static_cast<float>(z->asInt(0))}
           : GivenScale{Given::Scale, inverse};
}

/// Memory for one step to hand `count` elements to the next.
plan::ArgT workspace(StepBuilder &b, llvm::StringRef what, int64_t count, Scalar type) {
  plan::DType dtype = type == Scalar::I8    ? plan::DType::I8
                      : type == Scalar::F16 ? plan::DType::F16
                                            : plan::DType::F32;
  return b.temporary(what, dtype, count);
}

Dim elements(const Value *v) { return elementCount(v->type.shape); }
Scalar scalarOf(const Value *v) { return gpt2c::scalarOf(v->type.dtype); }

/// x[m,k] into rows.q and rows.scale, which is read when rows.group is -1.
void launchQuantize(StepBuilder &b, Op &op, plan::ArgT x, Scalar type, const Dim &m, int64_t k,
                    const QuantisedRows &rows) {
  QuantizeConfig c;
  c.x = type;
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

/// q[m,k] as elements of `type`.
void launchDequantize(StepBuilder &b, Op &op, const QuantisedRows &rows, plan::ArgT y, Scalar type,
                      const Dim &m, int64_t k) {
  DequantizeConfig c;
  c.y = type;
  c.d = rows.group > 0 ? rows.group : k;
  c.one = rows.group < 0;
  Dim count = m * Dim(k);
  StepBuilder::Args args;
  args["q"] = rows.q;
  args["scale"] = rows.scale;
  args["y"] = std::move(y);
  args["count"] = b.i32(count);
  b.launch(op.locations, "dequantize", dequantize(b.pool().nextKernelName("dequantize"), c), args,
           {ceilDivExpr(b, count, int64_t(c.threads) * dequantizedElements(c)), one(), one()},
           count * Dim(1 + scalarBytes(type)), count);
}

/// The places of a quantised result (q, s), with s the scale `given`, if any, and its zero point.
llvm::Expected<QuantisedRows> quantisedResult(StepBuilder &b, Op &op, unsigned first, Value *given,
                                              int64_t group, Value *zero = nullptr) {
  QuantisedRows rows;
  rows.group = given ? -1 : group;
  rows.given = givenScale(given, zero);
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

/// Elements of a row of k that share a scale of `scales`, 0 when all do.
int64_t groupOf(const Value *scales, int64_t k) {
  int64_t groups = lastDim(scales);
  return groups == 1 ? 0 : k / groups;
}

/// The rows of a product in int8: as they come, or quantised here.
llvm::Expected<QuantisedRows> productRows(StepBuilder &b, Op &op, const LinearShape &s) {
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

/// The largest tile that still gives every multiprocessor about one; K is never split, since few
/// tiles end sooner than their parts are added. With groups of x three blocks share a
/// multiprocessor: sums of one are scaled while another multiplies.
LinearInt8Config int8Config(const LinearShape &s, int64_t xGroup, int64_t yGroup) {
  auto tiles = [&](int64_t bm, int64_t bn) {
    return divideCeilSigned(s.rows, bm) * divideCeilSigned(s.n, bn);
  };
  LinearInt8Config c{.y = s.y, .xGroup = int(xGroup), .yGroup = int(yGroup)};
  if (xGroup > 0 && yGroup == 0) {
    c.bm = 64;
    c.bn = tiles(64, 128) < processors ? 64 : 128;
    c.stages = 3;
  } else if (xGroup > 0 || tiles(128, 128) < processors) {
    c.bm = 64;
    c.stages = xGroup > 0 ? 3 : 4;
    if (xGroup == 0 && yGroup == 0 && tiles(64, 128) < processors) {
      c.bn = 64;
      c.stages = 6;
    }
  }
  return c;
}

/// Whether linear_int8 and linear_int8_tma have these groups.
bool hasTiles(const LinearShape &s, int64_t xGroup) {
  return s.k % 16 == 0 && (xGroup <= 0 || xGroup == 64 || xGroup == 128);
}

/// The product of int8 rows as tuning files call it.
std::string int8Key(const LinearCall &call, const Op &op, const QuantisedRows &rows,
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

/// Whether a half has all of its bits for v.
bool isNormalHalf(float v) { return v >= 0x1p-14F && v <= 65504; }

llvm::Error launchInt8Tma(StepBuilder &b, Op &op, LinearCall call, const QuantisedRows &rows,
                          int64_t yGroup) {
  const LinearShape &s = call.shape;
  const EpilogueStage &last = call.epilogue.back(); // scales of columns are there at least
  const bool residual =
      last.kind == EpilogueStage::AddMatrix && last.operand == Scalar::F16 && s.y == Scalar::F16;
  // Behind a norm or attention blocks find some multiprocessors taken, and where two had room on
  // one, others would have none. Products without groups that follow products begin on each
  // other's.
  const Op *before = op.operand(X)->def();
  const bool alone = rows.group >= 0 || !before || !before->is(OpCode::RequantizedLinear);
  LinearInt8TmaConfig c = bestInt8TmaConfig(s.rows, s.n, s.k, std::max<int64_t>(rows.group, 0),
                                            yGroup, residual, alone);
  c.y = s.y;
  c.rowScale = rows.group == 0;
  c = b.choose(int8Key(call, op, rows, yGroup), candidates(c, s.rows, s.n, s.k, residual));
  // Maps count in halves.
  call.args["xMap"] = b.tensorMap(rows.q, call.m, s.k / 2, c.bm);
  call.args["wMap"] = b.tensorMap(call.args["w"], s.n, s.k / 2, c.bn);
  if (rows.group >= 0)
    call.args["xScale"] = rows.scale;
  if (c.residual) {
    call.epilogue.pop_back();
    const auto operands = llvm::count_if(call.epilogue, hasOperand);
    call.args["rMap"] = b.tensorMap(call.args["e" + std::to_string(operands)], call.m, s.n, c.bm);
  }
  std::array<plan::ExprT, 3> grid = tileGrid(b, call, c, false);
  if (c.stationary)
    grid[1] = rt::constantExpr(c.parts);
  // The kernel computes gelu and what follows in fp16, as a plan in fp16 would.
  const Given given = givenOf(call.epilogue);
  const bool quantises = given == Given::None ? yGroup > 0
                                              : c.splitK == 1 && s.n % 8 == 0 &&
                                                    isNormalHalf(call.args["yInverse"].f32);
  c.gelu = quantises && rows.group <= 0 && op.operand(Bias) &&
           scalarOf(op.operand(Bias)) == Scalar::F16 &&
           call.epilogue.end()[given == Given::None ? -1 : -2].kind == EpilogueStage::GeluTanhHalf;
  if (c.gelu) {
    c.given = given;
    call.epilogue.resize(call.epilogue.size() - (given == Given::None ? 1 : 2));
  }
  return b.launch(op, call.what,
                  linearInt8Tma(b.pool().nextKernelName(c.stationary ? "linear_int8_stationary"
                                                                     : "linear_int8_tma"),
                                c, call.epilogue),
                  call.args, grid, call.bytes, call.flops);
}

/// Whether the kernels for int8 rows have these groups.
bool hasInt8Kernel(const LinearShape &s, int64_t xGroup) {
  return s.wGroup == 0 && s.k < maxIntegerTerms && (xGroup <= 0 || xGroup % 32 == 0);
}

/// A product of int8 rows; `call.epilogue` and its operands have all scales but those of groups,
/// and on Hopper of rows.
llvm::Error launchInt8(StepBuilder &b, Op &op, LinearCall call, const QuantisedRows &rows,
                       int64_t yGroup) {
  const LinearShape &s = call.shape;
  if (b.pool().hopper && hasTiles(s, rows.group) &&
      !int8TmaConfigs(s.rows, s.n, s.k, std::max<int64_t>(rows.group, 0), yGroup).empty())
    return launchInt8Tma(b, op, std::move(call), rows, yGroup);
  call.args["x"] = rows.q;
  if (rows.group > 0)
    call.args["xScale"] = rows.scale;
  if (hasTiles(s, rows.group))
    return launchTiles(
        b, op, call,
        b.choose(int8Key(call, op, rows, yGroup),
                 candidates(int8Config(s, std::max<int64_t>(rows.group, 0), yGroup))),
        linearInt8, "linear_int8");
  LinearMmaConfig c = {s.y, 64, 64, 64, 2, 2, 4, 1, Scalar::I8};
  c.xGroup = std::max<int64_t>(rows.group, 0);
  if (c.xGroup % c.bk != 0)
    c.bk = 32;
  return launchTiles(b, op, call, c, linearMma, "linear_mma");
}

} // namespace

llvm::Error lowerQuantize(StepBuilder &b, Op &op) {
  Value *x = op.operand(0);
  if (!hasKernelTypes(op) || !x->type.shape.back().isConstant())
    return noKernel(op, "rows that are quantised are in f32 or f16 and of constant length");
  auto rows = quantisedResult(b, op, 0, op.operand(1), op.intAttr("group"));
  auto from = b.read(x);
  if (!rows || !from)
    return llvm::joinErrors(rows.takeError(), from.takeError());
  launchQuantize(b, op, std::move(*from), scalarOf(x), leading(x), lastDim(x), *rows);
  return llvm::Error::success();
}

llvm::Error lowerDequantize(StepBuilder &b, Op &op) {
  Value *q = op.operand(0), *scale = op.operand(1);
  if (!hasKernelTypes(op) || !q->type.shape.back().isConstant())
    return noKernel(op, "rows become f32 or f16 and have a constant length");
  auto from = b.read(q), scales = b.read(scale), to = b.write(op.result());
  if (!from || !scales || !to)
    return llvm::joinErrors(from.takeError(), llvm::joinErrors(scales.takeError(), to.takeError()));
  QuantisedRows rows{std::move(*from), std::move(*scales),
                     scale->type.rank() == 0 ? -1 : groupOf(scale, lastDim(q))};
  launchDequantize(b, op, rows, std::move(*to), scalarOf(op.result()), leading(q), lastDim(q));
  return llvm::Error::success();
}

llvm::Error lowerQuantizedLayerNorm(StepBuilder &b, Op &op) {
  Value *x = op.operand(0), *gain = op.operand(1), *shift = op.operand(2), *given = op.operand(3),
        *zero = op.operand(4);
  if (!hasKernelTypes(op) || !x->type.shape.back().isConstant() || gain->type.rank() != 1 ||
      gain->type.shape[0] != x->type.shape.back() || (shift && shift->type != gain->type))
    return noKernel(op, "a norm that quantises has one scale and bias for each element of a row");
  const int64_t k = lastDim(x), group = op.intAttr("group") == k ? 0 : op.intAttr("group");
  auto rows = quantisedResult(b, op, 0, given, group, zero);
  if (!rows)
    return rows.takeError();
  LayerNormConfig c;
  c.x = scalarOf(x);
  c.p = scalarOf(gain);
  shareRows(c, k);
  c.given = rows->given.kind;
  const bool fused = rows->group == 0 || rows->given;
  c.y = fused ? Scalar::I8 : c.x;
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
  b.launch(op.locations, fused ? "layer_norm+quantize" : "layer_norm",
           layerNorm(b.pool().nextKernelName("layer_norm"), c), *args,
           {ceilDivExpr(b, m, c.rows), one(), one()}, bytesOf(x) + m * Dim(k * scalarBytes(c.y)),
           m * Dim(10 * k));
  if (!fused)
    launchQuantize(b, op, std::move(y), c.x, m, k, *rows);
  return llvm::Error::success();
}

llvm::Error lowerQuantizedLinear(StepBuilder &b, Op &op) {
  const bool requantised = op.is(OpCode::RequantizedLinear);
  Value *x = op.operand(X), *wScale = op.operand(WScale), *bias = op.operand(Bias);
  Value *residual = requantised ? nullptr : op.operand(Residual),
        *offset = op.operand(requantised ? unsigned(RequantizedSumOffset) : unsigned(SumOffset)),
        *yScale = requantised ? op.operand(YScale) : nullptr,
        *yZero = requantised ? op.operand(YZero) : nullptr;
  if (!hasKernelTypes(op))
    return noKernel(op, "products with weights are in f32, f16 or i8");
  if (!op.operand(W)->type.isStatic())
    return noKernel(op, "the size of its weights is not constant");
  LinearShape s = linearShape(b, op);
  // Floating-point rows that a kernel reads as they are; for x_group >= 0 it quantises them.
  const bool floatRows = x->type.dtype != DType::I8 && !op.operand(XScale) &&
                         (op.intAttr("x_group") < 0 || hasWeightsKernel(s));

  // A quantised result: by the kernel of int8 rows when its scale is given or its scales are of 64
  // or 128 columns, else in a step of its own.
  QuantisedRows result;
  bool inEpilogue = false;
  if (requantised) {
    int64_t group = op.intAttr("y_group") == s.n ? 0 : op.intAttr("y_group");
    auto rows = quantisedResult(b, op, 0, yScale, group, yZero);
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
  const bool integers = !floatRows && hasInt8Kernel(s, rows.group);
  if (inEpilogue && (!integers || !(result.given || hasTiles(s, rows.group)))) {
    inEpilogue = false;
    s.y = bias ? scalarOf(bias) : Scalar::F32;
  }

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
    else if (rows.group == 0 && !(b.pool().hopper && hasTiles(s, 0)))
      scaleBy(EpilogueStage::ScaleRow, rows.scale);
    scaleBy(EpilogueStage::ScaleColumn, *weightScales);
  } else if (floatRows && hasWeightsKernel(s)) {
    if (s.wGroup > 0)
      args.set("wScale", *weightScales);
    else
      scaleBy(EpilogueStage::ScaleColumn, *weightScales);
  }
  Op *norm = floatRows ? fusedNorm(b, op) : nullptr;
  auto call =
      linearCall(b, op, args, norm ? norm->operand(0) : x, bias, residual, std::move(scales));
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
      for (EpilogueStage &stage : call->epilogue)
        if (stage.kind == EpilogueStage::GeluTanh)
          stage.kind = EpilogueStage::GeluTanhHalf;
    }
    if (llvm::Error e = launchInt8(b, op, std::move(*call), rows,
                                   inEpilogue && !result.given ? result.group : 0))
      return e;
  } else {
    // No kernel multiplies these as they are: what is int8 becomes the type that the product is in.
    if (!floatRows || !hasWeightsKernel(s)) {
      const Scalar type = floatRows ? s.x : Scalar::F32;
      if (!floatRows) {
        call->args["x"] = workspace(b, "wide-rows", s.rows * s.k, type);
        launchDequantize(b, op, rows, call->args["x"], type, call->m, s.k);
      }
      call->args["w"] = workspace(b, "wide-weights", s.n * s.k, type);
      launchDequantize(b, op, {*weights, *weightScales, s.wGroup}, call->args["w"], type, Dim(s.n),
                       s.k);
      call->shape.x = call->shape.w = type;
      call->shape.wGroup = 0;
    }
    if (llvm::Error e = launchLinear(b, op, std::move(*call), norm))
      return e;
  }
  if (requantised && !inEpilogue)
    launchQuantize(b, op, std::move(stored), s.y, leading(x), s.n, result);
  return llvm::Error::success();
}

llvm::Error lowerQuantizedAppendAttention(StepBuilder &b, Op &op) {
  Value *out = op.result(1), *qkv = op.operand(1);
  if (!hasKernelTypes(op) || !out->type.shape.back().isConstant())
    return noKernel(op, "attention over the KV state is in f32 or f16");
  const int64_t k = lastDim(out), group = op.intAttr("group") == k ? 0 : op.intAttr("group");
  auto rows = quantisedResult(b, op, 1, op.operand(4), group, op.operand(5));
  if (!rows)
    return rows.takeError();
  if (rows->given)
    return launchAttention(b, op, {rows->q, {}, rows->given});
  if (rows->group == k / op.intAttr("num_heads") && attentionQuantises(b, op))
    return launchAttention(b, op, {rows->q, rows->scale, {}});
  plan::ArgT y = workspace(b, "attention", b.maximum(elements(out)), scalarOf(qkv));
  if (llvm::Error e = launchAttention(b, op, {y, {}, {}}))
    return e;
  launchQuantize(b, op, std::move(y), scalarOf(qkv), leading(out), k, *rows);
  return llvm::Error::success();
}

} // namespace gpt2c
