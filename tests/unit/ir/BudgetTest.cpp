// Sizes that wrap, memory and operations that an evaluation may take, and NaN in attention.
#include "ir/Budget.h"
#include "ir/Error.h"
#include "ir/Executor.h"
#include "ir/Text.h"
#include "ir/ops/AttentionHead.h"
#include "ir/ops/Quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace gpt2c;

TEST(Budget, SizesAreChecked) {
  EXPECT_EQ(tensorBytes(DType::F32, {2, 3}), 24);
  EXPECT_EQ(tensorBytes(DType::F32, {}), 4);
  EXPECT_EQ(tensorBytes(DType::F32, {int64_t(1) << 60, 0, int64_t(1) << 60}), 0);
  EXPECT_FALSE(tensorBytes(DType::F32, {int64_t(1) << 60, 4}));
  EXPECT_FALSE(tensorBytes(DType::F32, {int64_t(1) << 32, int64_t(1) << 32}));
  EXPECT_FALSE(tensorBytes(DType::F32, {-1}));
  EXPECT_THROW(Tensor(DType::F32, {int64_t(1) << 60, 4}), TensorTooLarge);
  EXPECT_THROW(Tensor(DType::F32, {-4}), TensorTooLarge);
}

TEST(Budget, BytesAreGivenBack) {
  Budget budget(1000, 0);
  for (int i = 0; i < 10; ++i)
    Tensor(DType::F32, {200});
  Tensor kept(DType::F32, {200}), copy = kept;
  EXPECT_THROW(Tensor(DType::F32, {51}), TensorTooLarge);
  kept = Tensor();
  EXPECT_THROW(Tensor(DType::F32, {51}), TensorTooLarge) << "the copy shares the bytes";
  copy = Tensor();
  Tensor(DType::F32, {51});
  Budget inner(10, 0);
  EXPECT_THROW(Tensor(DType::F32, {51}), TensorTooLarge);
}

static ExitCode codeOf(llvm::Error e, std::string &text) {
  llvm::raw_string_ostream os(text);
  return printError(std::move(e), os);
}

TEST(Budget, TheExecutorSaysWhichOp) {
  auto m = parseModule("func @f(%x: f32[n]) -> (f32[n, n]) {\n"
                       "  %0 = unsqueeze(%x) {axes = [0]} : f32[1, n]\n"
                       "  %1 = unsqueeze(%x) {axes = [1]} : f32[n, 1]\n"
                       "  %2 = mul(%0, %1) : f32[n, n] loc(\"/outer\")\n"
                       "  return %2\n}\n",
                       "test");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  Executor executor(*(*m)->functions.front());
  const Tensor x = Tensor::zeros(DType::F32, {100});
  {
    Budget enough(1 << 20, 1 << 20);
    EXPECT_TRUE(bool(executor.run({x})));
  }
  for (auto [bytes, operations] : {std::pair(1000, 1 << 20), {1 << 20, 100}}) {
    Budget little(bytes, operations);
    auto out = executor.run({x});
    ASSERT_FALSE(bool(out));
    std::string text;
    EXPECT_EQ(codeOf(out.takeError(), text), ExitCode::OutOfMemory);
    EXPECT_NE(text.find("/outer"), std::string::npos) << text;
  }
}

TEST(Attention, NaNStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (float bad : {nan, inf}) {
    const float keys[] = {1, bad, 2}, values[] = {1, 2, 3}, q[] = {1, 1, 1};
    float out[3];
    std::vector<float> scratch;
    KeyRun<float> run{keys, values, 3, 1};
    attentionHead<float>({q, out, 3, 1, 1}, run, 1, {1}, {.causal = true}, scratch);
    EXPECT_EQ(out[0], 1) << "the first query does not see it";
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_TRUE(std::isnan(out[2]));
  }
  // All scores of a query, as weights of queries that are NaN make them; and none that is visible.
  const float keys[] = {1, 1}, values[] = {1, 2}, q[] = {nan};
  const int64_t hidden[] = {0, 0};
  float out[1];
  std::vector<float> scratch;
  KeyRun<float> run{keys, values, 2, 1};
  attentionHead<float>({q, out, 1, 1, 1}, run, 1, {1}, {}, scratch);
  EXPECT_TRUE(std::isnan(out[0]));
  attentionHead<float>({q, out, 1, 1, 1}, run, 1, {1}, {.mask = hidden}, scratch);
  EXPECT_EQ(out[0], 0);
}

TEST(Quantise, NaNStays) {
  const float inf = std::numeric_limits<float>::infinity();
  for (float bad : {std::nanf(""), inf, -inf}) {
    const float x[] = {1, bad, 3, 4, 5, 6};
    int8_t q[6];
    float scales[2];
    quantiseRows(x, 2, 3, 0, q, scales);
    EXPECT_FALSE(std::isfinite(scales[0]));
    EXPECT_TRUE(std::isnan(float(q[1]) * scales[0]));
    EXPECT_EQ(scales[1], 6.0F / 127);
    EXPECT_EQ(q[5], 127);
  }
}
