// What an input in few bits does to attention's probabilities, against the formula in double
// precision, and the layers whose inputs are not in fp8 therefore.
#include "passes/quantize/ScoreDivergence.h"

#include "ir/Text.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace gpt2c;

namespace {

constexpr int64_t heads = 4, keyHeads = 2, size = 8, k = 32, rows = 64,
                  n = (heads + 2 * keyHeads) * size;

/// Two layers of a product and attention, of which the first has weights that are `large` times as
/// large in its first two columns.
std::unique_ptr<Module> layers(float large) {
  auto parsed = parseModule(
      "func @prefill(%x: f32[batch, seq, 32], %kv: f32[2, 2, slots, 2, 16, 8], %past: i32[batch])"
      " -> (f32[batch, seq, 32], f32[batch, seq, 32], f32[2, 2, slots, 2, 16, 8]) {\n"
      "%first = constant dense<0.0> : f32[64, 32]\n"
      "%second = constant dense<0.0> : f32[64, 32]\n"
      "%b = constant dense<0.5> : f32[64]\n"
      "%0 = linear(%x, %first, %b) : f32[batch, seq, 64]\n"
      "%1, %2 = append_attention(%kv, %0, %past) {layer = 0, num_heads = 4, scale = 0.35}"
      " : f32[2, 2, slots, 2, 16, 8], f32[batch, seq, 32]\n"
      "%3 = linear(%x, %second) : f32[batch, seq, 64]\n"
      "%4, %5 = append_attention(%1, %3, %past) {layer = 1, num_heads = 4, scale = 0.35}"
      " : f32[2, 2, slots, 2, 16, 8], f32[batch, seq, 32]\n"
      "return %2, %5, %4\n"
      "}\n",
      "layers");
  if (!parsed) {
    ADD_FAILURE() << llvm::toString(parsed.takeError());
    return nullptr;
  }
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.1F);
  for (auto &op : (*parsed)->functions.front()->ops())
    if (op->is(OpCode::Constant) && op->constant.count() == n * k) {
      std::vector<float> w(n * k);
      for (float &v : w)
        v = normal(random);
      if (op->result()->name == "first")
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < 2; ++j)
            w[size_t(i * k + j)] *= large;
      op->constant = Tensor::of<float>(w, {n, k});
    }
  return std::move(*parsed);
}

const Op &product(const Module &m, llvm::StringRef name) {
  for (const auto &op : m.functions.front()->ops())
    if (op->is(OpCode::Linear) && layerName(*op) == name)
      return *op;
  throw std::runtime_error("no such layer");
}

ActivationStats inputs(float large) {
  ActivationStats stats;
  stats.rows = rows;
  stats.channels = k;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows * k; ++i)
    stats.sample.push_back(normal(random) * (i % k < 2 ? large : 1));
  return stats;
}

/// x / s with four bits, by its exponent; of int8 the integer next to it.
double rounded(double x, DType type) {
  if (type == DType::I8)
    return std::nearbyint(x);
  int exponent = 0;
  std::frexp(x, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent, -5) - 4);
  return std::nearbyint(x / step) * step;
}

std::vector<double> scores(const Op &linear, std::vector<double> x) {
  const Tensor &w = constantOp(linear.operand(ops::Linear::W))->constant;
  const Value *b = linear.operand(ops::Linear::Bias);
  std::vector<double> y(rows * n), out;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < n; ++c) {
      double sum = b ? constantOp(b)->constant.asDouble(c) : 0;
      for (int64_t j = 0; j < k; ++j)
        sum += x[size_t(i * k + j)] * w.asDouble(c * k + j);
      y[size_t(i * n + c)] = sum;
    }
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < rows; ++j) {
        double sum = 0;
        for (int64_t d = 0; d < size; ++d)
          sum += y[size_t(i * n + h * size + d)] * y[size_t(j * n + (heads + h / 2) * size + d)];
        out.push_back(0.35 * sum);
      }
  return out;
}

double byFormula(const Op &linear, const std::vector<float> &sample, DType type) {
  std::vector<double> x(sample.begin(), sample.end()), q(x);
  for (int64_t i = 0; i < rows; ++i) {
    double most = 0;
    for (int64_t j = 0; j < k; ++j)
      most = std::max(most, std::fabs(x[size_t(i * k + j)]));
    const double s = most / (type == DType::I8 ? 127 : 448);
    for (int64_t j = 0; j < k; ++j)
      q[size_t(i * k + j)] = s * rounded(x[size_t(i * k + j)] / s, type);
  }
  const std::vector<double> exact = scores(linear, x), off = scores(linear, q);
  double all = 0;
  for (size_t at = 0; at < exact.size(); at += rows) {
    double sum = 0, mean = 0, square = 0;
    for (size_t j = at; j < at + rows; ++j)
      sum += std::exp(exact[j]);
    for (size_t j = at; j < at + rows; ++j) {
      const double p = std::exp(exact[j]) / sum, d = off[j] - exact[j];
      mean += p * d;
      square += p * d * d;
    }
    all += (square - mean * mean) / 2;
  }
  return all / (heads * rows);
}

TEST(ScoreDivergence, IsThatOfTheFormula) {
  const auto m = layers(3);
  ASSERT_TRUE(m);
  const ActivationStats stats = inputs(6);
  for (const char *name : {"first", "second"})
    for (DType type : {DType::F8E4M3, DType::I8}) {
      const auto d = scoreDivergence(product(*m, name), stats, type);
      ASSERT_TRUE(d.has_value());
      const double expected = byFormula(product(*m, name), stats.sample, type);
      // A number in the middle between two may go to either, in single precision.
      EXPECT_NEAR(*d, expected, 0.02 * expected) << name;
    }
}

TEST(ScoreDivergence, LayersThatHangOnFewChannelsKeepTheirInputs) {
  const auto m = layers(8);
  ASSERT_TRUE(m);
  auto calibration = std::make_shared<Calibration>();
  calibration->layers["first"] = calibration->layers["second"] = inputs(6);
  QuantizeOptions options;
  options.scheme = QuantizeScheme::Fp8;
  options.calibration = calibration;
  findWideInputs(*m, options);
  EXPECT_TRUE(options.wideInputs.contains("first"));
  EXPECT_FALSE(options.wideInputs.contains("second"));
  EXPECT_EQ(treatmentOf(product(*m, "first"), options).first, Treatment::WeightsOnly);
  EXPECT_EQ(treatmentOf(product(*m, "second"), options).first, Treatment::Full);
  options.include = {"first"};
  EXPECT_EQ(treatmentOf(product(*m, "first"), options).first, Treatment::Full);
}

TEST(ScoreDivergence, NoOtherSchemeAsks) {
  const auto m = layers(8);
  ASSERT_TRUE(m);
  auto calibration = std::make_shared<Calibration>();
  calibration->layers["first"] = inputs(6);
  for (QuantizeScheme scheme : {QuantizeScheme::W8A8, QuantizeScheme::Fp8Weights}) {
    QuantizeOptions options;
    options.scheme = scheme;
    options.calibration = calibration;
    findWideInputs(*m, options);
    EXPECT_TRUE(options.wideInputs.empty());
  }
}

} // namespace
