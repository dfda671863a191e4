// Linears as stages of a persistent kernel, and what of their norms becomes constants.
#include "templates/decode_step/common/PersistentBuilder.h"
#include "templates/decode_step/common/PersistentConfig.h"

#include "llvm/ADT/STLExtras.h"

#include <bit>
#include <cmath>

namespace gpt2c {

using namespace persistent;

static const Tensor *constant(const Value *v) {
  return v && v->def() && v->def()->is(OpCode::Constant) && v->type.isStatic() ? &v->def()->constant
                                                                               : nullptr;
}

/// Norms are computed by the linears that use them.
llvm::Error PersistentBuilder::checkNorm(Op &op) {
  using enum ops::LayerNorm::Operand;
  Value *x = op.operand(X), *shift = op.is(OpCode::LayerNorm) ? op.operand(Bias) : nullptr;
  bool row = op.is(OpCode::RmsNorm) || op.intAttr("axis") == -1 ||
             op.intAttr("axis") == int64_t(x->type.rank()) - 1;
  auto isVector = [&](const Value *v) {
    return constant(v) && v->type.rank() == 1 && widthOf(v) == widthOf(x);
  };
  if (!row || x->type.dtype != type_ || op.result()->type.dtype != type_ ||
      !isVector(op.operand(Scale)) || (shift && !isVector(shift)))
    return unsupported(op, "only norms of a row with constant gains and shifts have a stage");
  if (!llvm::all_of(op.result()->uses(), [](const Use &u) {
        return (u.op->is(OpCode::Linear) || u.op->is(OpCode::QuantizedLinear)) &&
               u.operand == ops::Linear::X;
      }))
    return unsupported(op, "only a norm that linears use is part of a stage");
  return llvm::Error::success();
}

plan::ArgT PersistentBuilder::weight(const Tensor &t) { return b_.pool().address(t); }

Tensor PersistentBuilder::ofRanks(llvm::function_ref<Tensor(PartOf)> make) {
  PlanPool &pool = b_.pool();
  return pool.ofRanks(members_, [&](int64_t rank) {
    return make([&](const Tensor &t) { return pool.ofRank(t, rank); });
  });
}

static bool isZero(const Tensor &t) {
  for (int64_t i = 0; i < t.count(); ++i)
    if (t.asDouble(i) != 0)
      return false;
  return true;
}

/// The scales of each `group` elements of a row, [N, K / group], which others may share: floats, of
/// weights of less than a byte with the zero point and 8 in the place of the last four bits, whose
/// rounding is of 2^-20.
Tensor PersistentBuilder::groupScales(const GroupTerms &of, const Tensor &w, int64_t group) {
  const bool packed = infoOf(w.dtype()).bits < 8;
  return ofRanks([&](PartOf part) {
    const int64_t n = w.dim(0), k = w.dim(1);
    const Tensor scales = part(*of.scales), zeros = of.zeros ? part(*of.zeros) : Tensor();
    const int64_t each = scales.count() / n;
    std::vector<float> words(n * (k / group));
    for (int64_t i = 0; i < int64_t(words.size()); ++i) {
      const int64_t at = i / (k / group) * each + i % (k / group) * group / (k / each);
      const auto bits = std::bit_cast<uint32_t>(float(scales.asDouble(at)));
      const int64_t zero = of.zeros ? zeros.asInt(at) : 0;
      words[i] =
          std::bit_cast<float>(packed ? ((bits + 8) & ~uint32_t(15)) | uint32_t(zero + 8) : bits);
    }
    return Tensor::of<float>(words, {n, k / group});
  });
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

/// The constants of a norm that a linear computes: gain and sums of the weights' rows. Returns its
/// shift, which joins the bias; null: there is none.
const Tensor *PersistentBuilder::addNormTerms(Op &norm, const Tensor &w, const GroupTerms &groups,
                                              LinearStageConfig &form,
                                              LinearTerms<HostWords> &terms) {
  form.Norm = normOf(norm);
  const Tensor &g = *constant(norm.operand(ops::LayerNorm::Scale));
  const Tensor *stored = nullptr;
  for (int64_t i = 0; i < g.count() && !form.Gain; ++i)
    form.Gain = g.asDouble(i) != 1;
  if (form.Gain)
    terms.gain = words_.address(scaledGain(g, form.NormScale, stored));
  if (form.Norm == NormKind::Rms)
    return nullptr;
  terms.sums = words_.address(weight(b_.pool().sumsOf(w, stored, groups.scales, groups.zeros)));
  const Tensor *shift = constant(norm.operand(ops::LayerNorm::Bias));
  return shift && !isZero(*shift) ? shift : nullptr;
}

/// A bias, or null, and what a norm's shift, or null, adds to each column of a product with w,
/// whose rows have `scales`, or null.
Tensor PersistentBuilder::addends(const Tensor *bias, const Tensor *shift, const Tensor &w,
                                  const Tensor *scales, const GroupTerms &groups) {
  std::optional<Tensor> moved;
  if (shift)
    moved = b_.pool().sumsOf(w, shift, groups.scales, groups.zeros);
  return ofRanks([&](PartOf part) {
    const int64_t n = w.dim(0);
    std::vector<float> all(n, 0.0f);
    auto add = [&](const Tensor &t, const Tensor *factors) {
      for (int64_t i = 0; i < n; ++i)
        all[i] += float(t.asDouble(i) * (factors ? factors->asDouble(i) : 1));
    };
    if (bias)
      add(part(*bias), nullptr);
    if (moved) {
      const Tensor factors = scales ? part(*scales) : Tensor();
      add(part(*moved), scales ? &factors : nullptr);
    }
    return Tensor::of<float>(all, {n});
  });
}

std::optional<PersistentBuilder::Product::Packed> PersistentBuilder::packedOf(const Op &linear) {
  if (!linear.is(OpCode::Linear))
    return std::nullopt;
  auto places = b_.pool().packed(*constant(linear.operand(ops::Linear::W)));
  if (!places)
    return std::nullopt;
  return Product::Packed{words_.address(std::move(places->weights)),
                         words_.address(std::move(places->words))};
}

llvm::Error PersistentBuilder::lowerLinear(Op &op) {
  using Quantized = ops::QuantizedLinear;
  const bool quantised = op.is(OpCode::QuantizedLinear);
  Value *w = op.operand(ops::Linear::W), *y = op.result();
  Value *bias = quantised ? op.operand(Quantized::Bias) : op.operand(ops::Linear::Bias),
        *residual = quantised ? op.operand(Quantized::Residual) : op.operand(ops::Linear::Residual);
  const Tensor *scales = quantised ? constant(op.operand(Quantized::WScale)) : nullptr;
  Value *x = source(op.operand(ops::Linear::X));
  Op *norm = x->def() && isNorm(*x->def()) ? x->def() : nullptr;
  if (norm)
    x = source(norm->operand(ops::LayerNorm::X));
  auto from = channels_.find(x);
  const int logits = outputOf(y, "logits");
  if (from == channels_.end() || !constant(w) || (bias && !constant(bias)) ||
      !(quantised ? isQuantised(w->type.dtype) : w->type.dtype == type_) ||
      (y->type.dtype != type_ && (logits < 0 || y->type.dtype != DType::F32)))
    return unsupported(op, "its operands are no constant weights and values of stages in one "
                           "element type");
  const HostWords::Channel input = words_.channel(from->second);
  const bool grouped = weightGroupOf(op) > 0, ofByte = infoOf(w->type.dtype).bits >= 8;
  const Tensor *zeros = quantised ? constant(op.operand(Quantized::WZero)) : nullptr;
  if (quantised && (!scales || op.operand(Quantized::XScale) || op.intAttr("x_group") != -1 ||
                    bool(zeros) != bool(op.operand(Quantized::WZero)) || (zeros && ofByte) ||
                    (grouped && !shape_)))
    return unsupported(op, "of int8 only weights with a scale for each column have a stage");
  const int64_t n = widthOf(y), k = widthOf(op.operand(ops::Linear::X));
  if (logits < 0 && n % unitRows != 0)
    return unsupported(op, "its width is no multiple of " + llvm::Twine(unitRows));

  const bool parts = maxima_.count(x);
  LinearStageConfig form = {.T = elementOf(type_),
                            .W = elementOf(w->type.dtype),
                            .K = int(k),
                            .Chunk = 0, // once all are known, as are the rounds
                            .Rows = int(rows_),
                            .Tiles = 1,
                            .Splits = parts ? int(splits_) : 1,
                            .HeadDim = parts ? int(headDim_) : int(k),
                            .Gain = false,
                            .Bias = bool(bias),
                            .Residual = bool(residual),
                            .Logits = logits >= 0,
                            .Norm = NormKind::None,
                            .NormScale = 1,
                            .Function = *activationNamed(op.stringAttr("activation"))};
  LinearTerms<HostWords> terms = {
      .maxima = parts ? words_.channel(maxima_[x]) : words_.noChannel(),
      .gain = words_.null(),
      .epsilon = words_.real(StepBuilder::f32(norm ? norm->floatAttr("epsilon") : 0.0f)),
      .sums = words_.null(),
      .bias = words_.null(),
      .scales = words_.null()};
  std::string what = norm ? (norm->info().mnemonic + "+").str() : "";
  what += op.info().mnemonic.str();
  if (bias)
    what += "+bias";
  const GroupTerms groups = grouped ? GroupTerms{scales, zeros} : GroupTerms{};
  if (grouped)
    terms.scales = words_.address(weight(
        groupScales(groups, *constant(w), logits >= 0 ? shape_->lastGroup : shape_->weightGroup)));
  else if (scales)
    terms.scales = words_.address(weight(ofRanks([&](PartOf part) {
      const Tensor mine = part(*scales);
      std::vector<float> values(n);
      for (int64_t i = 0; i < n; ++i)
        values[i] = float(mine.asDouble(i));
      return Tensor::of<float>(values, {n});
    })));
  const Tensor *shift = norm ? addNormTerms(*norm, *constant(w), groups, form, terms) : nullptr;
  form.Bias |= shift != nullptr;
  if (form.Bias)
    terms.bias = words_.address(weight(addends(bias ? constant(bias) : nullptr, shift, *constant(w),
                                               grouped ? nullptr : scales, groups)));
  if (form.Function != Activation::None)
    what += "+" + op.stringAttr("activation");
  int64_t to = 0, added = 0;
  if (form.Logits)
    vocabulary_ = n;
  else
    to = channelFor(y);
  if (residual) {
    auto at = channelOf(residual);
    if (!at || residual->type.dtype != type_ || form.Logits)
      return unsupported(op, "its residual is no value of a stage");
    added = *at;
    what += "+residual";
  }
  auto weights = b_.read(w);
  if (!weights)
    return weights.takeError();
  const int64_t units = (n + unitRows - 1) / unitRows;
  Stage own = stage(LinearStage, units);
  own.weights = words_.address(std::move(*weights));
  own.rows = integer(n);
  own.rowBytes = integer(storedBytes(w->type.dtype, k));
  linears_.push_back(
      {.step = out_.steps.size(), .form = form, .units = units, .y = y, .packed = packedOf(op)});
  if (form.Logits) {
    plan::ArgT output;
    output.kind = plan::ArgKind::Output;
    output.index = logits;
    addStage(what, units,
             LogitsRecord<HostWords>{.stage = own,
                                     .x = input,
                                     .logits = words_.address(std::move(output)),
                                     .terms = terms,
                                     .batch = integer(Dim::symbol("batch"))},
             op);
  } else {
    addStage(
        what, units,
        LinearRecord<HostWords>{.stage = own,
                                .x = input,
                                .y = words_.channel(to),
                                .terms = terms,
                                .residual = residual ? words_.channel(added) : words_.noChannel()},
        op);
  }
  return llvm::Error::success();
}

} // namespace gpt2c
