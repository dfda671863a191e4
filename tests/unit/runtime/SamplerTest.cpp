#include "runtime/sampling/Sampler.h"

#include "runtime/sampling/Random.h"
#include "runtime/sampling/SampleMath.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace gpt2c::rt {
namespace {

// Known answers of the authors' Random123 (philox4x32, ten rounds).
TEST(RandomTest, PhiloxKnownAnswers) {
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, RowsGiveTheNumbersOfTheirPlaces) {
  UniformRow row(7, 3);
  for (int32_t id : {0, 5, 4, 1023, 2}) {
    double u = uniformAt(7, 3, id);
    EXPECT_EQ(row(id), u);
    EXPECT_GT(u, 0);
    EXPECT_LT(u, 1);
  }
  EXPECT_NE(uniformAt(7, 3, 0), uniformAt(7, 4, 0));
  EXPECT_NE(uniformAt(7, 3, 0), uniformAt(8, 3, 0));
}

std::vector<float> randomLogits(uint64_t seed, size_t n, double spread) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> logits(n);
  for (float &l : logits)
    l = float(std::round(normal(random) * 8) / 8); // ties
  return logits;
}

/// Probabilities by the definitions of SamplingParams, the long way round: everything is sorted,
/// and each stage renormalises what the one before has left.
std::vector<double> reference(std::vector<double> logits, const SamplingParams &p,
                              const std::vector<int32_t> &prompt,
                              const std::vector<int32_t> &answer) {
  for (auto [id, bias] : p.logitBias)
    logits[id] += bias;
  std::set<int32_t> all(prompt.begin(), prompt.end());
  all.insert(answer.begin(), answer.end());
  for (int32_t id : all)
    logits[id] *= logits[id] > 0 ? 1 / p.repetitionPenalty : p.repetitionPenalty;
  for (int32_t id : std::set<int32_t>(answer.begin(), answer.end()))
    logits[id] -= p.presencePenalty +
                  p.frequencyPenalty * double(std::count(answer.begin(), answer.end(), id));
  std::vector<double> q(logits.size());
  auto normalise = [&] {
    double sum = 0;
    for (double v : q)
      sum += v;
    for (double &v : q)
      v /= sum;
  };
  double highest = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < q.size(); ++i)
    q[i] = std::exp((logits[i] - highest) / p.temperature);
  normalise();
  double top = *std::max_element(q.begin(), q.end());
  for (double &v : q)
    if (v < p.minP * top * (1 - 1e-12))
      v = 0;
  normalise();
  std::vector<size_t> order(q.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (p.topK > 0 && size_t(p.topK) < q.size())
    for (size_t i : order)
      if (logits[i] < logits[order[p.topK - 1]])
        q[i] = 0;
  normalise();
  double sum = 0, last = highest;
  for (size_t i : order) {
    if (p.topP < 1 && sum >= p.topP - 1e-6 && logits[i] < last)
      q[i] = 0;
    else if (sum < p.topP - 1e-6)
      last = logits[i];
    sum += q[i];
  }
  normalise();
  return q;
}

struct NamedCase {
  const char *name;
  SamplingParams params;
};

std::vector<NamedCase> sampledCases() {
  return {{"temperature", {.temperature = 0.7}},
          {"hot", {.temperature = 2.5}},
          {"top-k", {.temperature = 1, .topK = 5}},
          {"top-p", {.temperature = 1, .topP = 0.8}},
          {"min-p", {.temperature = 1, .minP = 0.2}},
          {"top-k and top-p", {.temperature = 0.9, .topK = 12, .topP = 0.9, .minP = 0.02}},
          {"penalties",
           {.temperature = 1,
            .repetitionPenalty = 1.3,
            .frequencyPenalty = 0.4,
            .presencePenalty = 0.5}},
          {"bias", {.temperature = 1, .topK = 20, .logitBias = {{3, 4.0}, {9, -INFINITY}}}}};
}

// Chi-square over 20,000 draws at different positions. 60 tokens, expected counts below 5 pooled;
// the limit is the mean plus 5 standard deviations of the distribution.
TEST(SamplerTest, DrawsFollowTheDistribution) {
  std::vector<float> logits = randomLogits(1, 60, 1.5);
  std::vector<int32_t> prompt{1, 2, 3, 3}, answer{4, 4, 5};
  for (auto &[name, params] : sampledCases()) {
    std::vector<double> p = reference({logits.begin(), logits.end()}, params, prompt, answer);
    constexpr int draws = 20000;
    std::map<int32_t, int> counts;
    for (int i = 0; i < draws; ++i) {
      SamplingParams drawn = params;
      drawn.seed = 1000 + uint64_t(i);
      // An answer that is forced, then the draw behind it.
      Sampler sampler(drawn, prompt);
      for (int32_t token : answer) {
        std::vector<float> forced(60, -INFINITY);
        forced[token] = 1000;
        ASSERT_EQ(sampler.choose(forced)->token, token);
      }
      Result<Choice> c = sampler.choose(logits);
      ASSERT_TRUE(c);
      ++counts[c->token];
    }
    double chi = 0, pooledExpected = 0, pooledSeen = 0;
    int cells = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      double expected = p[i] * draws, seen = counts[int32_t(i)];
      if (expected == 0) {
        EXPECT_EQ(seen, 0) << name << ": " << i;
      } else if (expected < 5) {
        pooledExpected += expected;
        pooledSeen += seen;
      } else {
        chi += (seen - expected) * (seen - expected) / expected;
        ++cells;
      }
    }
    if (pooledExpected > 0) {
      chi += (pooledSeen - pooledExpected) * (pooledSeen - pooledExpected) / pooledExpected;
      ++cells;
    }
    EXPECT_LT(chi, cells - 1 + 5 * std::sqrt(2.0 * (cells - 1))) << name;
    EXPECT_GT(cells, 2) << name;
  }
}

// For given random numbers the choice is exactly the Gumbel maximum over the reference's
// probabilities.
TEST(SamplerTest, ChoiceIsTheGumbelMaximum) {
  for (auto &[name, params] : sampledCases())
    for (uint64_t seed = 0; seed < 200; ++seed) {
      std::vector<float> logits = randomLogits(100 + seed, 97, 2);
      std::vector<int32_t> prompt{5, 6, 7};
      std::vector<double> p = reference({logits.begin(), logits.end()}, params, prompt, {});
      int32_t expected = -1;
      double best = -INFINITY;
      for (int32_t i = 0; i < 97; ++i) {
        double score = std::log(p[i]) - std::log(-std::log(uniformAt(seed, 3, i)));
        if (p[i] > 0 && score > best) {
          best = score;
          expected = i;
        }
      }
      params.seed = seed;
      EXPECT_EQ(Sampler(params, prompt).choose(logits)->token, expected) << name << " " << seed;
    }
}

TEST(SamplerTest, ScoresKeepTheirOrderAsFarAsKeysHaveRoom) {
  const double scores[] = {-INFINITY, -1e60, -300.5, -1e-3, 0, 1e-9, 2, 2 + 0x1p-32, 700, 1e60};
  for (size_t i = 1; i < std::size(scores); ++i)
    EXPECT_LT(sampling::scoreOrder(scores[i - 1]), sampling::scoreOrder(scores[i])) << i;
  EXPECT_EQ(sampling::scoreOrder(2), sampling::scoreOrder(2 + 0x1p-40));
  EXPECT_LT(sampling::scoreOrder(1e60), uint64_t{1} << 46);
}

TEST(SamplerTest, WhatIsDrawnByTheTemperatureAloneIsKnown) {
  auto alone = [](const SamplingParams &p) {
    const std::vector<int32_t> prompt = {1, 2};
    return Sampler(p, prompt).choiceAt(2).isByTemperature();
  };
  EXPECT_TRUE(alone({.temperature = 0.8, .seed = 3}));
  EXPECT_FALSE(alone({}));
  EXPECT_FALSE(alone({.temperature = 1, .topK = 5}));
  EXPECT_FALSE(alone({.temperature = 1, .topP = 0.5}));
  EXPECT_FALSE(alone({.temperature = 1, .minP = 0.1}));
  EXPECT_FALSE(alone({.temperature = 1, .presencePenalty = 1}));
  EXPECT_FALSE(alone({.temperature = 1, .logitBias = {{1, 2.0}}}));
  EXPECT_FALSE(alone({.temperature = 1, .logprobs = 0}));
}

TEST(SamplerTest, GreedyIsTheLowestOfEquals) {
  Sampler sampler({}, std::vector<int32_t>{1});
  EXPECT_EQ(sampler.choose(std::vector<float>{0, 3, 3, 1})->token, 1);
}

TEST(SamplerTest, TopOneIsGreedyAmongEquals) {
  const std::vector<int32_t> prompt{1};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Sampler sampler({.temperature = 2, .topK = 1, .seed = seed}, prompt);
    EXPECT_EQ(sampler.choose(std::vector<float>{0, 3, 3, 3})->token, 1) << seed;
    Sampler biased({.temperature = 2, .topK = 1, .logitBias = {{1, -1}}, .seed = seed}, prompt);
    EXPECT_EQ(biased.choose(std::vector<float>{0, 3, 3, 3})->token, 2) << seed;
  }
  EXPECT_TRUE((SamplingParams{.temperature = 2, .topK = 1}.isGreedy()));
  EXPECT_FALSE((SamplingParams{.temperature = 2, .topK = 2}.isGreedy()));
}

TEST(SamplerTest, LogProbabilitiesAreTheModels) {
  SamplingParams params{.temperature = 1, .topK = 1, .logitBias = {{0, 100}}, .logprobs = 2};
  std::vector<float> logits{1, 2, 4, 4};
  Choice c = *Sampler(params, std::vector<int32_t>{1}).choose(logits);
  double sum = std::log(std::exp(1) + std::exp(2) + 2 * std::exp(4));
  EXPECT_EQ(c.token, 0);
  EXPECT_NEAR(c.logprob, 1 - sum, 1e-12);
  ASSERT_EQ(c.top.size(), 2u);
  EXPECT_EQ(c.top[0].token, 2);
  EXPECT_EQ(c.top[1].token, 3);
  EXPECT_NEAR(c.top[0].logprob, 4 - sum, 1e-12);
}

TEST(SamplerTest, BadLogitsAreSaid) {
  SamplingParams params{.temperature = 1};
  std::vector<int32_t> prompt{1};
  std::vector<float> nan{0, NAN, 1}, none(3, -INFINITY);
  EXPECT_EQ(Sampler(params, prompt).choose(nan).status().code(), Code::Quality);
  EXPECT_EQ(Sampler(params, prompt).choose(none).status().code(), Code::Quality);
}

TEST(SamplerTest, FieldsOutsideTheirRangesAreNamed) {
  auto message = [](const SamplingParams &p) { return checkSampling(p, 10).message(); };
  EXPECT_NE(message({.temperature = -1}).find("temperature is -1"), std::string::npos);
  EXPECT_NE(message({.topK = -2}).find("top_k"), std::string::npos);
  EXPECT_NE(message({.topP = 0}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.minP = 1.5}).find("min_p"), std::string::npos);
  EXPECT_NE(message({.repetitionPenalty = 0}).find("repetition_penalty"), std::string::npos);
  EXPECT_NE(message({.frequencyPenalty = NAN}).find("frequency_penalty"), std::string::npos);
  EXPECT_NE(message({.presencePenalty = 3}).find("presence_penalty"), std::string::npos);
  EXPECT_NE(message({.logitBias = {{10, 1}}}).find("token 10"), std::string::npos);
  EXPECT_NE(message({.logprobs = -3}).find("logprobs"), std::string::npos);
  EXPECT_TRUE(checkSampling({.temperature = 1, .topK = 3, .topP = 0.5, .logprobs = 0}, 10).ok());
}

} // namespace
} // namespace gpt2c::rt
