// Linears as stages of a persistent kernel, and what of their norms becomes constants.
#include "ir/ops/QuantizedProduct.h"
#include "templates/persistent/PersistentBuilder.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

static int64_t lastDim(const Value *v) { return v->type.shape.back().constant().value_or(0); }
static bool isNorm(const Op *op) {
  return op && (op->is(OpCode::LayerNorm) || op->is(OpCode::RmsNorm));
}
static const Tensor *constant(const Value *v) {
  return v && v->def() && v->def()->is(OpCode::Constant) && v->type.isStatic() ? &v->def()->constant
                                                                               : nullptr;
}

/// Norms are computed by the linears that use them.
llvm::Error PersistentBuilder::checkNorm(Op &op) {
  Value *x = op.operand(0), *shift = op.is(OpCode::LayerNorm) ? op.operand(2) : nullptr;
  bool row = op.is(OpCode::RmsNorm) || op.intAttr("axis") == -1 ||
             op.intAttr("axis") == int64_t(x->type.rank()) - 1;
  auto isVector = [&](const Value *v) {
    return constant(v) && v->type.rank() == 1 && lastDim(v) == lastDim(x);
  };
  if (!row || x->type.dtype != type_ || op.result()->type.dtype != type_ ||
      !isVector(op.operand(1)) || (shift && !isVector(shift)))
    return unsupported(op, "only norms of a row with constant gains and shifts have a stage");
  if (!llvm::all_of(op.result()->uses(), [](const Use &u) {
        return (u.op->is(OpCode::Linear) || u.op->is(OpCode::QuantizedLinear)) && u.operand == 0;
      }))
    return unsupported(op, "only a norm that linears use is part of a stage");
  return llvm::Error::success();
}

plan::ArgT PersistentBuilder::weight(const Tensor &t) {
  plan::ArgT a;
  a.kind = plan::ArgKind::Weight;
  a.index = b_.pool().weight(t);
  return a;
}

/// The gain as the kernel multiplies by it: in fp16 by a power of two no larger than 1, for the
/// products with x to stay in range. `stored` is what the plan holds, which sums must be made with.
plan::ArgT PersistentBuilder::scaledGain(const Tensor &gain, float &scale, const Tensor *&stored) {
  std::vector<float> values(gain.count());
  float largest = 0;
  for (int64_t i = 0; i < gain.count(); ++i)
    largest = std::max(largest, std::fabs(values[i] = float(gain.asDouble(i))));
  int exponent = 0;
  if (type_ == DType::F16 && std::isfinite(largest) && largest > 0)
    std::frexp(largest, &exponent);
  scale = std::ldexp(1.0f, exponent);
  for (float &v : values)
    v = std::ldexp(v, -exponent);
  plan::ArgT a = weight(Tensor::of<float>(values, {gain.count()}).cast(type_));
  stored = &b_.pool().weights()[a.index];
  return a;
}

llvm::Error PersistentBuilder::lowerLinear(Op &op) {
  const bool quantised = op.is(OpCode::QuantizedLinear);
  Value *w = op.operand(1), *y = op.result();
  Value *bias = op.operand(quantised ? unsigned(Bias) : 2),
        *residual = op.operand(quantised ? unsigned(Bias) + 1 : 3);
  const Tensor *scales = quantised ? constant(op.operand(WScale)) : nullptr;
  Value *x = source(op.operand(0));
  Op *norm = isNorm(x->def()) ? x->def() : nullptr;
  if (norm)
    x = source(norm->operand(0));
  auto from = channels_.find(x);
  const int logits = outputOf(y, "logits");
  if (from == channels_.end() || !constant(w) || (bias && !constant(bias)) ||
      w->type.dtype != (quantised ? DType::I8 : type_) ||
      (y->type.dtype != type_ && (logits < 0 || y->type.dtype != DType::F32)))
    return unsupported(op, "its operands are no constant weights and values of stages in one "
                           "element type");
  if (quantised && (!scales || scales->count() != lastDim(y) || op.operand(XScale) ||
                    op.intAttr("x_group") != -1))
    return unsupported(op, "of int8 only weights with a scale for each column have a stage");
  const int64_t n = lastDim(y), k = lastDim(op.operand(0));
  if (logits < 0 && n % persistent::unitRows != 0)
    return unsupported(op, "its width is no multiple of " + llvm::Twine(persistent::unitRows));

  PersistentLinear form;
  form.weights = w->type.dtype;
  form.k = k;
  form.activation = op.stringAttr("activation");
  form.parts = maxima_.count(x);
  form.residual = residual;
  form.logits = logits >= 0;
  auto scratch = [](int64_t at) {
    plan::ArgT a;
    a.kind = plan::ArgKind::Scratch;
    a.index = int(at);
    return a;
  };
  const plan::ArgT none = StepBuilder::null();
  plan::ArgT to = none, maxima = none, gain = none, sums = none, added = none, scale = none,
             last = none;
  std::string what = norm ? (norm->info().mnemonic + "+").str() : "";
  what += op.info().mnemonic.str();
  std::vector<float> addends(n, 0.0f);
  if (bias) {
    what += "+bias";
    form.bias = true;
    for (int64_t i = 0; i < n; ++i)
      addends[i] = float(constant(bias)->asDouble(i));
  }
  if (scales) {
    std::vector<float> values(n);
    for (int64_t i = 0; i < n; ++i)
      values[i] = float(scales->asDouble(i));
    scale = weight(Tensor::of<float>(values, {n}));
  }
  if (norm) {
    form.norm = norm->is(OpCode::RmsNorm) ? "Rms" : "Layer";
    const Tensor &g = *constant(norm->operand(1));
    const Tensor *stored = nullptr;
    for (int64_t i = 0; i < g.count() && !form.gain; ++i)
      form.gain = g.asDouble(i) != 1;
    if (form.gain)
      gain = scaledGain(g, form.normScale, stored);
    if (form.norm == "Layer")
      sums.kind = plan::ArgKind::Weight, sums.index = b_.pool().rowSums(*constant(w), stored);
    if (const Tensor *shift = form.norm == "Layer" ? constant(norm->operand(2)) : nullptr) {
      bool any = false;
      for (int64_t i = 0; i < shift->count() && !any; ++i)
        any = shift->asDouble(i) != 0;
      if (any) {
        form.bias = true;
        const Tensor &moved = b_.pool().weights()[b_.pool().rowSums(*constant(w), shift)];
        for (int64_t i = 0; i < n; ++i)
          addends[i] += float(moved.asDouble(i) * (scales ? scales->asDouble(i) : 1));
      }
    }
  }
  if (form.bias)
    added = weight(Tensor::of<float>(addends, {n}));
  if (form.activation != "none")
    what += "+" + form.activation;
  if (form.parts)
    maxima = scratch(maxima_[x]);
  if (form.logits) {
    to.kind = plan::ArgKind::Output;
    to.index = logits;
    vocabulary_ = n;
    last = b_.i32(Dim::symbol("batch"));
  } else {
    to = scratch(channelFor(y));
  }
  if (residual) {
    auto at = channelOf(residual);
    if (!at || residual->type.dtype != type_ || form.logits)
      return unsupported(op, "its residual is no value of a stage");
    last = scratch(*at);
    what += "+residual";
  }
  auto weights = b_.read(w);
  if (!weights)
    return weights.takeError();
  Words words;
  words.units = (n + persistent::unitRows - 1) / persistent::unitRows;
  words.rows = n;
  words.rowBytes = k * byteSize(form.weights);
  words.weights = std::move(*weights);
  words.own = {scratch(from->second),
               to,
               maxima,
               gain,
               StepBuilder::f32(norm ? norm->floatAttr("epsilon") : 0.0f),
               sums,
               added,
               scale,
               last};
  linears_.push_back({out_.steps.size(), form, words.units});
  addStage(what, std::move(words), op);
  return llvm::Error::success();
}

} // namespace gpt2c
