#include "runtime/device/HostTensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace gpt2c::rt {
namespace {

template <typename T> HostTensor tensor(plan::DType dtype, std::vector<T> values) {
  HostTensor t(dtype, {static_cast<int64_t>(values.size())});
  std::ranges::copy(values, t.values<T>().begin());
  return t;
}

TEST(HostTensor, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = halfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(halfToFloat(floatToHalf(value)))) << bits;
    else
      EXPECT_EQ(floatToHalf(value), bits);
  }
}

TEST(HostTensor, HalvesRoundToNearestEven) {
  EXPECT_EQ(floatToHalf(1.0f + 0x1p-11f), 0x3c00);            // halfway: to even, down
  EXPECT_EQ(floatToHalf(1.0f + 0x1p-10f + 0x1p-11f), 0x3c02); // halfway: to even, up
  EXPECT_EQ(floatToHalf(std::nextafter(1.0f + 0x1p-11f, 2.0f)), 0x3c01);
  EXPECT_EQ(floatToHalf(65519.9f), 0x7bff);
  EXPECT_EQ(floatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(floatToHalf(-1e9f), 0xfc00);
  EXPECT_EQ(floatToHalf(0x1p-25f), 0x0000); // halfway to the smallest subnormal
  EXPECT_EQ(floatToHalf(0x1.8p-25f), 0x0001);
  EXPECT_EQ(floatToHalf(-0.0f), 0x8000);
  EXPECT_EQ(floatToHalf(0x1.ffep-15f), 0x0400); // a subnormal that rounds up to a normal
}

TEST(HostTensor, ConvertsBetweenElementTypes) {
  Result<HostTensor> wide = convert(tensor<int32_t>(plan::DType::I32, {-1, 7}), plan::DType::I64);
  ASSERT_TRUE(wide);
  EXPECT_EQ(wide->dtype, plan::DType::I64);
  EXPECT_EQ(wide->shape, std::vector<int64_t>{2});
  EXPECT_EQ(wide->values<int64_t>()[0], -1);
  Result<HostTensor> half = convert(tensor<float>(plan::DType::F32, {1.5f, -2}), plan::DType::F16);
  ASSERT_TRUE(half);
  EXPECT_EQ(half->values<uint16_t>()[0], 0x3e00);
  EXPECT_EQ(half->values<uint16_t>()[1], 0xc000);
  Result<HostTensor> whole =
      convert(tensor<float>(plan::DType::F32, {1.9f, -1.9f}), plan::DType::I32);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->values<int32_t>()[0], 1);
  EXPECT_EQ(whole->values<int32_t>()[1], -1);
  Result<HostTensor> truth =
      convert(tensor<float>(plan::DType::F32, {0.0f, 0.25f}), plan::DType::Bool);
  ASSERT_TRUE(truth);
  EXPECT_EQ(truth->values<uint8_t>()[0], 0);
  EXPECT_EQ(truth->values<uint8_t>()[1], 1);
}

TEST(HostTensor, RefusesIntegersThatDoNotFit) {
  constexpr int64_t large = int64_t(1) << 31;
  EXPECT_EQ(
      convert(tensor<int64_t>(plan::DType::I64, {0, large}), plan::DType::I32).status().code(),
      Code::Usage);
  EXPECT_TRUE(convert(tensor<int64_t>(plan::DType::I64, {-large, large - 1}), plan::DType::I32));
  EXPECT_FALSE(convert(tensor<int64_t>(plan::DType::I64, {-1}), plan::DType::U8));
  float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(convert(tensor<float>(plan::DType::F32, {nan}), plan::DType::I64));
  EXPECT_FALSE(convert(tensor<float>(plan::DType::F32, {0x1p63f}), plan::DType::I64));
  EXPECT_TRUE(convert(tensor<float>(plan::DType::F32, {-0x1p63f}), plan::DType::I64));
}

TEST(HostTensor, DescribesItself) {
  EXPECT_EQ(describe(plan::DType::F16, std::vector<int64_t>{2, 8}), "f16[2, 8]");
  EXPECT_EQ(describe(plan::DType::I64, {}), "i64[]");
}

} // namespace
} // namespace gpt2c::rt
