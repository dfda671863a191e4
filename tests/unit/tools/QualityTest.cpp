#include "tools/runtime-common/Quality.h"

#include "ir/Error.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>
#include <random>

namespace gpt2c {
namespace {

constexpr int64_t kVocab = 11;

/// Logits that depend on the token, the one before it in the window, and its place in the window.
float logit(uint32_t seed, std::span<const int32_t> window, int64_t position, int64_t token) {
  uint32_t before = position ? window[position - 1] + 1 : 0;
  std::seed_seq sequence{seed, uint32_t(window[position]), before, uint32_t(position),
                         uint32_t(token)};
  uint32_t word[1];
  sequence.generate(word, word + 1);
  return float(word[0]) / float(1u << 29) - 4;
}

struct Model {
  uint32_t seed;
  float shift = 0; // added to the logits of one token
  std::vector<std::pair<int64_t, int64_t>> *calls = nullptr;

  rt::Result<rt::HostTensor> operator()(std::span<const rt::Tokens> sequences) const {
    int64_t n = int64_t(sequences[0].size());
    rt::HostTensor out(plan::DType::F32, {int64_t(sequences.size()), n, kVocab});
    float *to = out.values<float>().data();
    for (const rt::Tokens &s : sequences)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t v = 0; v < kVocab; ++v)
          *to++ = logit(seed, s, i, v) + (v == 3 ? shift : 0);
    if (calls)
      calls->push_back({int64_t(sequences.size()), n});
    return out;
  }
};

rt::Tokens randomText(int64_t n) {
  std::mt19937 random(7);
  rt::Tokens out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(int32_t(random() % kVocab));
  return out;
}

struct Reference {
  std::vector<double> nll, baseNll, kl;
  double agreement = 0, largest = 0;
};

double mean(const std::vector<double> &v) {
  double sum = 0;
  for (double x : v)
    sum += x;
  return sum / double(v.size());
}

/// Token by token in double precision, with the windows as PyTorch users write them: each ends
/// `window` tokens behind its begin, and scores what lies behind the end of the one before it.
Reference reference(const Model &base, const Model &model, const rt::Tokens &text, int64_t window,
                    int64_t stride) {
  Reference out;
  int64_t previousEnd = 0, n = int64_t(text.size());
  for (int64_t begin = 0; begin < n; begin += stride) {
    int64_t end = std::min(begin + window, n);
    std::span<const int32_t> ids(text.data() + begin, size_t(end - begin));
    for (int64_t target = std::max(previousEnd, begin + 1); target < end; ++target) {
      int64_t position = target - 1 - begin;
      std::vector<double> p, q;
      double sumP = 0, sumQ = 0, kl = 0;
      for (int64_t v = 0; v < kVocab; ++v) {
        float shiftB = v == 3 ? base.shift : 0, shiftM = v == 3 ? model.shift : 0;
        float b = logit(base.seed, ids, position, v) + shiftB;
        float m = logit(model.seed, ids, position, v) + shiftM;
        out.largest = std::max(out.largest, double(std::fabs(b - m)));
        p.push_back(std::exp(double(b)));
        q.push_back(std::exp(double(m)));
        sumP += p.back();
        sumQ += q.back();
      }
      for (int64_t v = 0; v < kVocab; ++v)
        kl += p[v] / sumP * std::log(p[v] / sumP / (q[v] / sumQ));
      out.kl.push_back(kl);
      out.nll.push_back(-std::log(q[text[target]] / sumQ));
      out.baseNll.push_back(-std::log(p[text[target]] / sumP));
      out.agreement +=
          std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin();
    }
    previousEnd = end;
    if (end == n)
      break;
  }
  out.agreement /= double(out.nll.size());
  std::ranges::sort(out.kl);
  return out;
}

TEST(Quality, EqualsDoublePrecisionForEveryWindowAndStride) {
  Model base{1}, model{1, 0.75f};
  rt::Tokens text = randomText(103);
  for (auto [window, stride] :
       {std::pair{10, 10}, {10, 3}, {10, 1}, {103, 103}, {200, 7}, {2, 1}, {34, 34}, {2, 2}}) {
    SCOPED_TRACE(std::to_string(window) + "/" + std::to_string(stride));
    Reference expected = reference(base, model, text, window, stride);
    EvalOptions options{.window = window, .stride = stride, .batch = 3};
    std::vector<LogitsFunction> models{base, model};
    auto reports = evaluate(models, /*compare=*/true, text, options);
    ASSERT_TRUE(bool(reports)) << reports.status().message();
    const QualityReport &first = (*reports)[0], &second = (*reports)[1];
    EXPECT_FALSE(first.baseline);
    EXPECT_EQ(second.tokens, int64_t(expected.nll.size()));
    EXPECT_NEAR(first.perplexity, std::exp(mean(expected.baseNll)), 1e-10 * first.perplexity);
    EXPECT_NEAR(second.nll, mean(expected.nll), 1e-11);
    EXPECT_NEAR(second.perplexity, std::exp(mean(expected.nll)), 1e-10 * second.perplexity);
    ASSERT_TRUE(second.baseline);
    const QualityReport::Comparison &c = *second.baseline;
    EXPECT_NEAR(c.increase, second.perplexity / first.perplexity - 1, 1e-11);
    EXPECT_NEAR(c.klMean, mean(expected.kl), 1e-11);
    size_t rank = size_t(std::ceil(0.99 * double(expected.kl.size())));
    EXPECT_NEAR(c.klP99, expected.kl[rank - 1], 1e-11);
    EXPECT_EQ(c.agreement, expected.agreement);
    EXPECT_EQ(c.largestError, expected.largest);
  }
}

TEST(Quality, StandardErrorIsThatOfPairedDifferences) {
  Model base{1}, model{2};
  rt::Tokens text = randomText(200);
  Reference expected = reference(base, model, text, 50, 50);
  std::vector<LogitsFunction> models{base, model};
  auto reports = evaluate(models, true, text, {.window = 50});
  ASSERT_TRUE(bool(reports));
  double sum = 0, squares = 0, n = double(expected.nll.size());
  for (size_t i = 0; i < expected.nll.size(); ++i)
    sum += expected.nll[i] - expected.baseNll[i];
  for (size_t i = 0; i < expected.nll.size(); ++i)
    squares += std::pow(expected.nll[i] - expected.baseNll[i] - sum / n, 2);
  EXPECT_NEAR((*reports)[1].baseline->increaseError, std::exp(sum / n) * std::sqrt(squares / n / n),
              1e-10);
}

TEST(Quality, NeitherThreadsNorBatchesChangeABit) {
  rt::Tokens text = randomText(90);
  std::vector<LogitsFunction> models{Model{1}, Model{2}};
  std::vector<double> seen;
  for (int threads : {1, 2, 5})
    for (int batch : {1, 2, 64}) {
      auto reports =
          evaluate(models, true, text, {.window = 8, .batch = batch, .threads = threads});
      ASSERT_TRUE(bool(reports));
      seen.push_back((*reports)[1].nll);
      seen.push_back((*reports)[1].baseline->klMean);
      EXPECT_EQ(seen[0], seen[seen.size() - 2]);
      EXPECT_EQ(seen[1], seen.back());
    }
}

TEST(Quality, BatchesAreWindowsOfOneLength) {
  std::vector<std::pair<int64_t, int64_t>> calls;
  std::vector<LogitsFunction> models{Model{1, 0, &calls}};
  auto reports = evaluate(models, false, randomText(45), {.window = 10, .batch = 3});
  ASSERT_TRUE(bool(reports));
  EXPECT_EQ(calls, (std::vector<std::pair<int64_t, int64_t>>{{3, 10}, {1, 10}, {1, 5}}));
  EXPECT_EQ((*reports)[0].tokens, 4 * 9 + 4);
  EXPECT_EQ(evalBatch(1024, 50257, 32), 1);
  EXPECT_EQ(evalBatch(512, 4096, 100), 2);
  EXPECT_EQ(evalBatch(512, 1024, 3), 3);
}

TEST(Quality, MaxTokensIsAPrefixOfTheText) {
  rt::Tokens text = randomText(80);
  std::vector<LogitsFunction> models{Model{5}};
  auto part = evaluate(models, false, text, {.window = 16, .maxTokens = 40});
  auto prefix = evaluate(models, false, std::span(text).first(40), {.window = 16});
  ASSERT_TRUE(part && prefix);
  EXPECT_EQ((*part)[0].nll, (*prefix)[0].nll);
  EXPECT_EQ((*part)[0].tokens, (*prefix)[0].tokens);
}

TEST(Quality, EqualModelsDoNotDiverge) {
  std::vector<LogitsFunction> models{Model{5}, Model{5}};
  auto reports = evaluate(models, true, randomText(80), {.window = 16, .sideBySide = true});
  ASSERT_TRUE(bool(reports));
  const QualityReport::Comparison &c = *(*reports)[1].baseline;
  EXPECT_EQ(c.increase, 0);
  EXPECT_LT(c.klP99, 1e-14);
  EXPECT_EQ(c.agreement, 1);
  EXPECT_EQ(c.largestError, 0);
}

TEST(Quality, WhatIsNotFiniteCountsAndNeverPasses) {
  LogitsFunction broken = [](std::span<const rt::Tokens> sequences) {
    auto out = Model{5}(sequences);
    out->values<float>()[2 * kVocab + 4] = std::numeric_limits<float>::quiet_NaN();
    out->values<float>()[4 * kVocab] = -std::numeric_limits<float>::infinity();
    return out;
  };
  std::vector<LogitsFunction> models{Model{5}, broken};
  auto reports = evaluate(models, true, randomText(16), {.window = 16});
  ASSERT_TRUE(bool(reports));
  const QualityReport &r = (*reports)[1];
  EXPECT_EQ(r.tokens, 15);
  EXPECT_EQ(r.notFinite, 2);
  EXPECT_EQ(r.perplexity, std::numeric_limits<double>::infinity());
  EXPECT_EQ(r.baseline->klMean, std::numeric_limits<double>::infinity());
  EXPECT_EQ(r.baseline->agreement, 13.0 / 15);
  EXPECT_NE(line(toJson(r)).find("\"perplexity\":null"), std::string::npos);
  const std::vector<std::string> exceeded = limitsExceeded(r, {});
  ASSERT_EQ(exceeded.size(), 1u);
  EXPECT_NE(exceeded[0].find("2 of 15 rows"), std::string::npos) << exceeded[0];
}

TEST(Quality, EveryLimitThatIsExceededIsNamed) {
  QualityReport r{.perplexity = 20.4};
  r.baseline = {.increase = 0.02, .klMean = 0.3};
  EXPECT_TRUE(limitsExceeded(r, {}).empty());
  EXPECT_TRUE(limitsExceeded(r, {.maxIncrease = 0.02, .maxKl = 0.3}).empty());
  const std::vector<std::string> broken = limitsExceeded(r, {.maxIncrease = 0.01, .maxKl = 0.25});
  ASSERT_EQ(broken.size(), 2u);
  EXPECT_NE(broken[0].find("2.000 % above the baseline's; the limit is 1.000 %"), std::string::npos)
      << broken[0];
  EXPECT_NE(broken[1].find("KL divergence from the baseline is 0.3"), std::string::npos)
      << broken[1];
  r.baseline->increase = std::nan("");
  EXPECT_EQ(limitsExceeded(r, {.maxIncrease = 1}).size(), 1u);
}

TEST(Quality, SharesAreNumbersOrPercentages) {
  EXPECT_EQ(*parseShare("--x", "1%"), 0.01);
  EXPECT_EQ(*parseShare("--x", "0.5 %"), 0.005);
  EXPECT_EQ(*parseShare("--x", "0.25"), 0.25);
  for (const char *bad : {"", "%", "one", "-1%", "nan", "1%%"})
    EXPECT_FALSE(parseShare("--x", bad)) << bad;
}

TEST(Quality, WhatCannotBeEvaluatedIsWrongUsage) {
  std::vector<LogitsFunction> models{Model{5}};
  auto failure = [&](std::span<const int32_t> text, const EvalOptions &options) {
    auto out = evaluate(models, false, text, options);
    return out ? std::string() : out.status().message();
  };
  rt::Tokens text = randomText(20), foreign{1, 2, int32_t(kVocab)};
  EXPECT_NE(failure(text, {.window = 1}).find("a window of 1"), std::string::npos);
  EXPECT_NE(failure(text, {.window = 4, .stride = 5}).find("stride of 5"), std::string::npos);
  EXPECT_NE(failure(rt::Tokens{1}, {.window = 4}).find("has 1 tokens"), std::string::npos);
  EXPECT_NE(failure(foreign, {.window = 4}).find("logits go to 10"), std::string::npos);
}

} // namespace
} // namespace gpt2c
