#include "passes/quantize/CentreKeys.h"

#include "ir/Operands.h"
#include "ir/ops/Quantize.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static unsigned biasOf(const Op &product) {
  return product.is(OpCode::Linear) ? unsigned(ops::Linear::Bias)
                                    : unsigned(ops::QuantizedLinear::Bias);
}

/// The elements of a constant of `count` floats; empty: it is none.
static std::vector<float> vectorOf(const Value *v, int64_t count) {
  const Op *c = v ? constantOp(v) : nullptr;
  return c && c->constant.valid() && c->constant.count() == count ? floatElements(c->constant)
                                                                  : std::vector<float>();
}

/// About the mean of the rows that a product reads, of k columns; empty: it is not known.
static std::vector<float> meanOfRows(const Value *x, int64_t k) {
  if (x->def() && x->def()->is(OpCode::Quantize))
    x = x->def()->operand(ops::Quantize::X);
  const Op *norm = x->def();
  if (norm && norm->is(OpCode::LayerNorm))
    return vectorOf(norm->operand(ops::LayerNorm::Bias), k);
  return norm && norm->is(OpCode::AddLayerNorm)
             ? vectorOf(norm->operand(ops::AddLayerNorm::Bias), k)
             : std::vector<float>();
}

/// The sum over a row of a product's weights, each times its column's `factor`.
static double rowTimes(const Op &product, int64_t row, llvm::ArrayRef<float> factors) {
  const Tensor &w = constantOp(product.operand(ops::Linear::W))->constant;
  const Op *scale = product.is(OpCode::QuantizedLinear)
                        ? constantOp(product.operand(ops::QuantizedLinear::WScale))
                        : nullptr;
  const auto k = int64_t(factors.size());
  const int64_t scales = scale ? scale->constant.count() : 1;
  const int64_t groups = std::max<int64_t>(scales / w.dim(0), 1);
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    const int64_t at = scales == 1 ? 0 : row * groups + i * groups / k;
    sum += w.asDouble(row * k + i) * (scale ? scale->constant.asDouble(at) : 1) *
           double(factors[size_t(i)]);
  }
  return sum;
}

void KeyCentring::look(Function &f, const Value &state) {
  for (const Value *at = &state; at;) {
    const Value *next = nullptr;
    for (const Use &u : at->uses())
      if (u.op->is(OpCode::AppendAttention) || u.op->is(OpCode::QuantizedAppendAttention)) {
        layers_[u.op->intAttr("layer")].push_back(siteOf(f, *u.op));
        next = u.op->result(ops::AppendAttention::NextKv);
      }
    at = next;
  }
}

KeyCentring::Site KeyCentring::siteOf(Function &f, Op &attention) {
  Value *qkv = attention.operand(ops::AppendAttention::Qkv);
  Op *product = qkv->def();
  const bool quantised = product && product->is(OpCode::QuantizedLinear);
  const auto keyHeads = attention.operand(ops::AppendAttention::Kv)->type.shape[3].constant();
  if (!product || (!product->is(OpCode::Linear) && !quantised) || !qkv->hasOneUse() || !keyHeads ||
      attention.floatAttr("soft_cap") != 0 || product->stringAttr("activation") != "none")
    return {};
  const Op *w = constantOp(product->operand(ops::Linear::W));
  if (!w || !w->constant.valid() ||
      (quantised && (!constantOp(product->operand(ops::QuantizedLinear::WScale)) ||
                     product->operand(ops::QuantizedLinear::WZero))))
    return {};
  const int64_t n = w->constant.dim(0), heads = attention.intAttr("num_heads"),
                d = n / (heads + 2 * *keyHeads);
  return vectorOf(product->operand(biasOf(*product)), n).empty()
             ? Site()
             : Site{&f, product, heads * d, *keyHeads * d};
}

int KeyCentring::apply() {
  int moved = 0;
  for (auto &[layer, sites] : layers_) {
    auto biasAt = [](const Site &s) {
      return s.product ? constantOp(s.product->operand(biasOf(*s.product)))->constant : Tensor();
    };
    const Tensor old = biasAt(sites.front());
    if (llvm::any_of(sites,
                     [&](const Site &s) { return !s.product || biasAt(s).raw() != old.raw(); }))
      continue;
    const Site &first = sites.front();
    const int64_t k = first.product->operand(ops::Linear::W)->type.shape[1].constant().value_or(0);
    const std::vector<float> mean = meanOfRows(first.product->operand(ops::Linear::X), k);
    if (mean.empty())
      continue;
    std::vector<float> bias = floatElements(old);
    for (int64_t row = first.first; row < first.first + first.count; ++row)
      bias[size_t(row)] = float(0 - rowTimes(*first.product, row, mean));
    const Tensor centred = Tensor::of<float>(bias, old.shape()).cast(old.dtype());
    for (const Site &s : sites) {
      Builder b(*s.function, s.product);
      b.setLocations(s.product->locations);
      Value *value = b.constant(centred);
      value->name = s.product->operand(biasOf(*s.product))->name;
      s.product->setOperand(biasOf(*s.product), value);
    }
    ++moved;
  }
  return moved;
}

} // namespace gpt2c
