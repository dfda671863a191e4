// raise-precision and lower-precision: every floating-point constant, argument and result takes the
// element type asked for (f32 also raises an export in f16 or bf16). Sums, softmax and norms stay
// in single precision inside the ops, and so do they where the graph writes them out; logits leave
// as f32, and so stay the scales of int8 values.
#include "passes/Numbers.h"
#include "passes/Rewrite.h"
#include "passes/proof/Angles.h"
#include "passes/quantize/Precision.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace gpt2c {

using P = Pattern;

static std::vector<Rule> castRules() {
  std::vector<Rule> rules;
  auto linear = [](std::vector<Pattern> operands) {
    return P::op(OpCode::Linear, std::move(operands), "l");
  };
  rules.push_back(
      {"cast-of-linear", "cast(linear(x), t) = linear(x){dtype = t}",
       P::op(OpCode::Cast, {P::oneOf({linear({P::any("x"), P::any("w")}),
                                      linear({P::any("x"), P::any("w"), P::any("b")})})}),
       [](const Match &m) {
         return m.value("l")->hasOneUse() && m.root()->dtypeAttr("to") == DType::F32;
       },
       [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
         auto y = b.value(OpCode::Linear, m.op("l")->operands(), m.op("l")->givenAttrs());
         if (!y)
           return y.takeError();
         (*y)->def()->setAttr("dtype", DType::F32);
         if (llvm::Error e = inferOp(*(*y)->def()))
           return e;
         return *y;
       }});
  rules.push_back({"cast-of-quantized-linear",
                   "cast(quantized_linear(x), t) = quantized_linear(x){dtype = t}",
                   P::op(OpCode::Cast, {P::any("y")}),
                   [](const Match &m) {
                     const Op *l = m.value("y")->def();
                     return l && l->is(OpCode::QuantizedLinear) && m.value("y")->hasOneUse() &&
                            m.root()->dtypeAttr("to") == DType::F32;
                   },
                   [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                     const Op *l = m.value("y")->def();
                     auto y = b.value(OpCode::QuantizedLinear, l->operands(), l->givenAttrs());
                     if (!y)
                       return y.takeError();
                     (*y)->def()->setAttr("dtype", DType::F32);
                     if (llvm::Error e = inferOp(*(*y)->def()))
                       return e;
                     return *y;
                   }});
  rules.push_back({"cast-above-reshape", "cast(reshape(x), t) = reshape(cast(x, t))",
                   P::op(OpCode::Cast, {P::op(OpCode::Reshape, {P::any("x")}, "r")}),
                   [](const Match &m) { return m.value("r")->hasOneUse(); },
                   [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                     auto y = b.value(OpCode::Cast, {m.value("x")}, m.root()->givenAttrs());
                     if (!y)
                       return y.takeError();
                     return b.value(OpCode::Reshape, {*y}, m.op("r")->givenAttrs());
                   }});
  rules.push_back(
      {"cast-to-same", "cast(x, dtype(x)) = x", P::op(OpCode::Cast, {P::any("x")}),
       [](const Match &m) { return m.value("x")->type == m.root()->result()->type; },
       [](const Match &m, Builder &) -> llvm::Expected<Value *> { return m.value("x"); }});
  return rules;
}

/// Whether an op takes this operand in single precision only.
static bool isSingleOperand(const Op &op, unsigned operand) {
  llvm::ArrayRef<OperandSpec> specs = op.info().operands;
  return operand < specs.size() && specs[operand].single;
}
static bool staysSingle(const Value &v) {
  return llvm::any_of(v.uses(), [](const Use &u) { return isSingleOperand(*u.op, u.operand); });
}

/// Functions whose values span more than fp16 holds, or that cancel: where a graph writes out a
/// norm, GELU or attention, these keep single precision, as inside the ops that would stand for
/// them.
static bool needsSingle(const Op &op) {
  switch (op.code()) {
  case OpCode::Mul: // a square
    return op.operand(0) == op.operand(1);
  case OpCode::MatMul: // scores, and what they weigh
    return !constantOp(op.operand(ops::MatMul::A)) && !constantOp(op.operand(ops::MatMul::B));
  case OpCode::Pow:
  case OpCode::Sqrt:
  case OpCode::Reciprocal:
  case OpCode::Exp:
  case OpCode::Log:
  case OpCode::Tanh:
  case OpCode::Erf:
  case OpCode::Sigmoid:
  case OpCode::Softmax:
  case OpCode::CumSum:
    return true;
  default:
    return op.info().has(Reduction);
  }
}

/// Whether a finite element becomes an infinite one in a narrow type; the largest of f32 does in
/// bf16, too. Masks are written with such numbers, and their product with 0 is none.
static bool overflows(const Tensor &single, const Tensor &narrow) {
  for (int64_t i = 0; i < narrow.count(); ++i)
    if (std::isinf(narrow.asDouble(i)) && !std::isinf(single.asDouble(i)))
      return true;
  return false;
}

/// Gives those functions, elementwise ops with a constant that `precision` does not hold, and
/// elementwise ops on their results f32 operands; other ops get back what they had. `singles` are
/// the constants before they were narrowed; ops in `kept` were not.
static llvm::Error keepSingle(Function &f, DType precision,
                              const llvm::DenseMap<const Op *, Tensor> &singles,
                              const OpSet &kept) {
  llvm::DenseMap<Value *, Value *> wide, narrow;
  auto isSingle = [](const Value *v) { return v && v->type.dtype == DType::F32; };
  auto isOutOfRange = [&](const Value *v) {
    auto original = v ? singles.find(v->def()) : singles.end();
    return original != singles.end() && v->type.dtype == precision &&
           overflows(original->second, v->def()->constant);
  };
  for (auto &op : f.ops()) {
    if (op->is(OpCode::Constant) || op->is(OpCode::Cast) || op->is(OpCode::Return) ||
        kept.contains(op.get()) || decidesBy(*op, kept))
      continue;
    bool follows = op->info().has(Elementwise) || op->info().has(DataMovement) ||
                   op->is(OpCode::MaskedSoftmax); // of scores in single precision
    bool readsSingle = false;
    for (unsigned i = 0; i < op->numOperands(); ++i)
      readsSingle |= isSingle(op->operand(i)) && !isSingleOperand(*op, i);
    bool single = needsSingle(*op) || (follows && readsSingle) ||
                  (op->info().has(Elementwise) && llvm::any_of(op->operands(), isOutOfRange));
    DType to = single ? DType::F32 : precision;
    llvm::DenseMap<Value *, Value *> &casts = single ? wide : narrow;
    for (unsigned i = 0; i < op->numOperands(); ++i) {
      Value *v = op->operand(i);
      if (!v || !isFloat(v->type.dtype) || v->type.dtype == to || isSingleOperand(*op, i))
        continue;
      Value *&cast = casts[v];
      if (!cast) {
        Builder b(f, v->def() ? f.next(v->def()) : f.ops().front().get());
        b.setLocations(op->locations);
        auto original = singles.find(v->def());
        if (original != singles.end()) {
          cast = b.constant(original->second.cast(DType::F32));
          cast->name = v->name;
        } else {
          auto made = b.value(OpCode::Cast, {v}, {{"to", to}});
          if (!made)
            return made.takeError();
          cast = *made;
        }
      }
      op->setOperand(i, cast);
    }
    if (llvm::Error e = inferOp(*op))
      return e;
  }
  return llvm::Error::success();
}

/// Casts to f32 what the graph computes for operands that are in single precision only.
static llvm::Error castSingles(Function &f) {
  llvm::DenseMap<Value *, Value *> casts;
  for (auto &op : f.ops())
    for (unsigned i = 0; i < op->numOperands(); ++i) {
      Value *v = op->operand(i);
      if (!v || !isSingleOperand(*op, i) || !v->def() || !v->def()->info().has(Elementwise))
        continue;
      Value *&cast = casts[v];
      if (!cast) {
        Builder b(f, f.next(v->def()));
        b.setLocations(v->def()->locations);
        auto made = b.value(OpCode::Cast, {v}, {{"to", DType::F32}});
        if (!made)
          return made.takeError();
        cast = *made;
      }
      op->setOperand(i, cast);
    }
  return llvm::Error::success();
}

/// What narrowing did to one constant, where that is more than rounding; empty where it is not.
static std::string narrowingLoss(const Op &op, const Tensor &wide, DType precision) {
  if (hasInfinity(op.constant))
    if (const int64_t above = countOverflows(wide, op.constant))
      return llvm::formatv("{0} has {1} of {2} elements above {3}, the largest of {4} (up to "
                           "{5}): they become infinite; compile with --precision={6}",
                           constantName(op), above, wide.count(),
                           precision == DType::F16 ? "65504" : "3.39e+38", precisionName(precision),
                           llvm::format("%.3g", countNumbers(wide).largest),
                           precision == DType::F16 ? "bf16 or fp32" : "fp32")
          .str();
  // Of normal numbers no norm is off by more.
  const Underflow loss = underflowOf(wide, op.constant);
  if (loss.relative <= unitRoundoff(precision))
    return "";
  return llvm::formatv("{0} has {1} of {2} elements below 6.1e-05, where fp16 has fewer digits: "
                       "the weight is off by {3} of its norm, {4} times what rounding elsewhere "
                       "can make; compile with --precision=bf16 or fp32",
                       constantName(op), loss.below, wide.count(),
                       llvm::format("%.2g", loss.relative),
                       llvm::format("%.0f", loss.relative / unitRoundoff(precision)))
      .str();
}

/// Weights that became infinite, or lost their digits, once each: `counted` has the bytes of those
/// that were looked at.
static void reportNarrowing(PassContext &ctx, const Function &f, DType precision,
                            const llvm::DenseMap<const Op *, Tensor> &singles,
                            llvm::DenseSet<const void *> &counted) {
  for (const auto &op : f.ops()) {
    auto original = singles.find(op.get());
    if (original == singles.end() || !op->hasUses() || op->constant.dtype() != precision ||
        !counted.insert(original->second.raw()).second)
      continue;
    const std::string loss = narrowingLoss(*op, original->second, precision);
    if (loss.empty())
      continue;
    llvm::SmallVector<llvm::StringRef> nodes;
    for (const Use &u : op->result()->uses())
      nodes.append(u.op->locations.begin(), u.op->locations.end());
    ctx.missed(loss, nodes).of("half precision");
  }
}

static llvm::Error lower(PassContext &ctx, Function &f,
                         llvm::DenseMap<const void *, Tensor> &converted,
                         llvm::DenseSet<const void *> &counted) {
  const DType to = ctx.options().precision;
  llvm::DenseMap<const Op *, Tensor> singles;
  if (llvm::Error e = castSingles(f))
    return e;
  // A position of some thousands times a frequency needs more digits than half precision has, and
  // what decides by lengths and positions is what the graph's types make of it.
  OpSet own = angleOps(f);
  const OpSet deciding = decidingOps(f);
  own.insert(deciding.begin(), deciding.end());
  auto kept = separate(f, std::move(own));
  if (!kept)
    return kept.takeError();
  for (unsigned i = 0; i < f.numArguments(); ++i)
    if (isFloat(f.argument(i)->type.dtype) && !staysSingle(*f.argument(i)))
      f.argument(i)->type.dtype = to;
  for (auto &op : f.ops()) {
    if (kept->contains(op.get()))
      continue;
    if (op->is(OpCode::Constant) && isFloat(op->constant.dtype()) && op->constant.valid() &&
        op->constant.dtype() != to && !staysSingle(*op->result())) {
      Tensor &t = converted[op->constant.raw()];
      if (!t.valid() || t.shape() != op->constant.shape())
        t = op->constant.cast(to);
      if (op->constant.dtype() == DType::F32 || isNarrow(op->constant.dtype()))
        singles[op.get()] = op->constant;
      op->constant = t;
    }
    for (const AttrSpec &spec : op->info().attrs)
      if (spec.kind == AttrKind::DType && !(op->is(OpCode::Cast) && staysSingle(*op->result())))
        if (const Attr *a = op->attr(spec.name); a && isFloat(std::get<DType>(*a)))
          op->setAttr(spec.name, to);
  }
  if (llvm::Error e = f.inferTypes())
    return e;
  if (isNarrow(to)) {
    if (llvm::Error e = keepSingle(f, to, singles, *kept))
      return e;
    reportNarrowing(ctx, f, to, singles, counted);
  }
  for (auto [i, name] : llvm::enumerate(f.resultNames)) {
    Value *v = f.terminator()->operand(i);
    if (name != "logits" || v->type.dtype == DType::F32)
      continue;
    Value *source = v;
    while (source->def() && source->def()->is(OpCode::Reshape) && source->hasOneUse())
      source = source->def()->operand(0);
    if (source->def() && source->def()->is(OpCode::QuantizedLinear)) {
      source->def()->setAttr("dtype", DType::F32);
      for (const Use &u : llvm::SmallVector<Use>(source->uses()))
        if (u.op->is(OpCode::Cast) && u.op->dtypeAttr("to") == DType::F32)
          u.op->result()->replaceAllUsesWith(source);
      continue;
    }
    // Every use of the logits sees them in f32, the greedy choice too.
    llvm::SmallVector<Use> uses(v->uses());
    Builder b(f, f.next(v->def()));
    b.setLocations(v->def()->locations);
    auto wide = b.value(OpCode::Cast, {v}, {{"to", DType::F32}});
    if (!wide)
      return wide.takeError();
    for (const Use &u : uses)
      u.op->setOperand(u.operand, *wide);
  }
  auto n = applyRules(f, castRules());
  if (!n)
    return n.takeError();
  return f.inferTypes();
}

llvm::Error lowerPrecision(PassContext &ctx) {
  llvm::DenseMap<const void *, Tensor> converted; // functions share constants, before and after
  llvm::DenseSet<const void *> counted;
  for (auto &f : ctx.module().functions)
    if (llvm::Error e = lower(ctx, *f, converted, counted))
      return e;
  return llvm::Error::success();
}

/// In front of the passes that compute new weights, which half precision would round twice.
llvm::Error raisePrecision(PassContext &ctx) {
  return ctx.options().precision == DType::F32 ? lowerPrecision(ctx) : llvm::Error::success();
}

} // namespace gpt2c
