#include "passes/quantize/ScoreDivergence.h"

#include "ir/ops/Blas.h"
#include "ir/ops/Quantize.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace gpt2c {

namespace {

/// Rows of queries and keys, [rows, heads * size] and [rows, keyHeads * size] side by side.
struct Heads {
  int64_t rows, heads, keyHeads, size;
  int64_t columns() const { return (heads + keyHeads) * size; }
};

} // namespace

static const Op *attentionOf(const Op &product) {
  const Value *y = product.result();
  while (y->hasOneUse() && y->uses()[0].op->is(OpCode::Rope))
    y = y->uses()[0].op->result();
  if (!y->hasOneUse())
    return nullptr;
  const Use &use = y->uses()[0];
  return use.op->is(OpCode::AppendAttention) && use.operand == ops::AppendAttention::Qkv ? use.op
                                                                                         : nullptr;
}

/// What rows of k elements are after rounding.
template <typename Q>
static std::vector<float> rounded(const std::vector<float> &x, int64_t rows, int64_t k) {
  std::vector<Q> q(x.size());
  std::vector<float> scales(static_cast<size_t>(rows)), out(x.size());
  quantiseRows(x.data(), rows, k, 0, q.data(), scales.data());
  for (size_t i = 0; i < x.size(); ++i)
    out[i] = float(q[i]) * scales[i / size_t(k)];
  return out;
}

/// The scores of one row with all rows, of one head.
static void scoresOf(const std::vector<float> &y, const Heads &h, int64_t head, int64_t row,
                     float scale, std::vector<double> &scores) {
  const float *const q = y.data() + row * h.columns() + head * h.size;
  const int64_t keyHead = h.heads + head / (h.heads / h.keyHeads);
  for (int64_t j = 0; j < h.rows; ++j) {
    const float *const k = y.data() + j * h.columns() + keyHead * h.size;
    double sum = 0;
    for (int64_t i = 0; i < h.size; ++i)
      sum += double(q[i]) * double(k[i]);
    scores[size_t(j)] = sum * double(scale);
  }
}

/// Half of the variance of `off` less `scores` by the softmax of `scores`.
static double halfVariance(llvm::ArrayRef<double> scores, llvm::ArrayRef<double> off) {
  const double most = *llvm::max_element(scores);
  double all = 0, mean = 0, square = 0;
  for (auto [s, o] : llvm::zip_equal(scores, off)) {
    const double p = std::exp(s - most), d = o - s;
    all += p;
    mean += p * d;
    square += p * d * d;
  }
  mean /= all;
  return (square / all - mean * mean) / 2;
}

std::optional<double> scoreDivergence(const Op &product, const ActivationStats &stats, DType type) {
  const Op *attention = attentionOf(product);
  const Op *weights = constantOp(product.operand(ops::Linear::W));
  const int64_t k = stats.channels, rows = k ? int64_t(stats.sample.size()) / k : 0;
  if (!attention || !weights || weights->constant.dim(1) != k || rows == 0)
    return std::nullopt;
  const auto keyHeads =
      attention->operand(ops::AppendAttention::Kv)->type.shape[3].constant().value_or(0);
  const int64_t heads = attention->intAttr("num_heads"), all = heads + 2 * keyHeads,
                n = weights->constant.dim(0);
  if (keyHeads == 0 || n % all != 0 || heads % keyHeads != 0)
    return std::nullopt;
  const Heads h{rows, heads, keyHeads, n / all};
  const std::vector<float> w = floatElements(weights->constant);
  std::vector<float> bias(static_cast<size_t>(n));
  if (const Value *v = product.operand(ops::Linear::Bias))
    if (const Op *c = constantOp(v); c && c->constant.count() == n)
      bias = floatElements(c->constant);
  auto productOf = [&](const std::vector<float> &x) {
    std::vector<float> y(size_t(rows * h.columns()));
    matrixProduct<float>({x.data(), k}, {w.data(), k, true}, {y.data(), h.columns()}, rows,
                         h.columns(), k, false);
    for (size_t i = 0; i < y.size(); ++i)
      y[i] += bias[i % size_t(h.columns())];
    return y;
  };
  const std::vector<float> exact = productOf(stats.sample),
                           off = productOf(type == DType::F8E4M3
                                               ? rounded<Fp8>(stats.sample, rows, k)
                                               : rounded<int8_t>(stats.sample, rows, k));
  const auto scale = float(attention->floatAttr("scale"));
  std::vector<double> scores(static_cast<size_t>(rows)), others(scores);
  double sum = 0;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t row = 0; row < rows; ++row) {
      scoresOf(exact, h, head, row, scale, scores);
      scoresOf(off, h, head, row, scale, others);
      sum += halfVariance(scores, others);
    }
  return sum / double(heads * rows);
}

void findWideInputs(const Module &module, QuantizeOptions &options) {
  constexpr double most = 0.0025; // nats, of attention's probabilities
  if (!isFp8(options.scheme) || options.isWeightsOnly(options.scheme) || !options.calibration)
    return;
  llvm::StringSet<> seen;
  for (const auto &f : module.functions)
    for (const auto &op : f->ops()) {
      if (!isQuantisable(*op))
        continue;
      const std::string name = layerName(*op);
      const ActivationStats *stats = options.calibration->find(name);
      if (!stats || seen.contains(name))
        continue;
      const auto divergence = scoreDivergence(*op, *stats, DType::F8E4M3);
      if (!divergence)
        continue;
      seen.insert(name);
      if (*divergence > most)
        options.wideInputs.insert(name);
    }
}

} // namespace gpt2c
