// What the reference executor does not run.
#include "ir/Executor.h"
#include "ir/Text.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace gpt2c;

TEST(Executor, HoldsToTheLimitsOfAFunction) {
  auto m = parseModule(R"(
func @f(%x: f32[seq]) -> (f32[seq]) where seq <= 5 {
  %y = neg(%x) : f32[seq]
  return %y
}
)",
                       "test");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  Executor executor(*(*m)->functions[0]);
  EXPECT_TRUE(bool(executor.run({Tensor::zeros(DType::F32, {5})})));
  auto more = executor.run({Tensor::zeros(DType::F32, {6})});
  ASSERT_FALSE(bool(more));
  EXPECT_EQ(llvm::toString(more.takeError()), "@f takes at most 5 of seq, 6 given");
}

TEST(Executor, WeightsInHalfPrecisionAreReadAsTheyAreStored) {
  auto m = parseModule(R"(
func @f(%x: f16[1, 4]) -> (f16[1, 2], f16[4]) {
  %w = constant dense<[[0.5, 1.0, -2.0, 0.25], [3.0, -1.0, 0.125, 7.0]]> : f16[2, 4]
  %t = constant dense<[[1.0, 2.0, 3.0, 4.0]]> : f16[1, 4]
  %y = linear(%x, %w) : f16[1, 2]
  %i = constant dense<0> : i64[]
  %row = gather(%t, %i) : f16[4]
  return %y, %row
}
)",
                       "test");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  ExecOptions options;
  options.widenedConstants = std::make_shared<ExecOptions::WidenedConstants>();
  Executor executor(*(*m)->functions[0], options);
  Tensor ones(DType::F32, {1, 4});
  std::fill_n(ones.data<float>(), 4, 1.0f);
  auto out = executor.run({ones.cast(DType::F16)});
  ASSERT_TRUE(bool(out)) << llvm::toString(out.takeError());
  EXPECT_EQ((*out)[0].asDouble(0), -0.25);
  EXPECT_EQ((*out)[0].asDouble(1), 9.125);
  EXPECT_EQ((*out)[1].asDouble(3), 4.0);
  EXPECT_TRUE(options.widenedConstants->byBytes.empty());
}

TEST(Executor, SamplesOfRoundingMoveHalfPrecisionByHalfAUnit) {
  auto m = parseModule(R"(
func @f(%x: f16[seq], %w: f32[seq]) -> (f16[seq], f16[1, seq], f32[seq]) {
  %y = neg(%x) : f16[seq]
  %z = reshape(%y) {shape = [1, -1]} : f16[1, seq]
  %v = neg(%w) : f32[seq]
  return %y, %z, %v
}
)",
                       "test");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  const int64_t n = 1000;
  Tensor ones(DType::F64, {n});
  std::fill_n(ones.data<double>(), n, 1);
  auto sample = [&](uint64_t seed) {
    Executor executor(*(*m)->functions[0], {.float64 = true, .roundingSeed = seed});
    auto out = executor.run({ones, ones});
    return out ? std::move(*out) : std::vector<Tensor>();
  };
  const std::vector<Tensor> one = sample(1), again = sample(1), other = sample(2);
  ASSERT_EQ(one.size(), 3U);
  double furthest = 0, sum = 0;
  int64_t equal = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double moved = one[0].asDouble(i) + 1;
    furthest = std::max(furthest, std::fabs(moved));
    sum += moved;
    equal += one[0].asDouble(i) == other[0].asDouble(i);
    EXPECT_EQ(one[0].asDouble(i), again[0].asDouble(i));
    EXPECT_EQ(one[1].asDouble(i), one[0].asDouble(i)); // nothing is rounded by a copy
    EXPECT_EQ(one[2].asDouble(i), -1);                 // nor to single precision
  }
  EXPECT_LE(furthest, 0x1p-11);
  EXPECT_GE(furthest, 0.98 * 0x1p-11);
  EXPECT_LE(std::fabs(sum) / n, 0.1 * 0x1p-11);
  EXPECT_EQ(equal, 0);
}
