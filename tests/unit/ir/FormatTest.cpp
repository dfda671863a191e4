// Formats: what encoding and decoding changes, against the bounds of the table, and sizes.
#include "ir/Format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace gpt2c {
namespace {

constexpr OperandFormat all[] = {
#define FORMAT(Name, ...) OperandFormat::Name,
#include "ir/Formats.def"
};

/// Magnitudes over some decades, all normal in every format.
std::vector<float> randomRow(std::mt19937 &random, int64_t k) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> decades(-2, 2);
  const float size = std::pow(10.0F, decades(random));
  std::vector<float> row(k);
  for (float &v : row) {
    const float x = normal(random);
    v = size * (std::fabs(x) < 0.01F ? std::copysign(0.01F, x) : x);
  }
  return row;
}

TEST(Format, RoundingStaysWithinTheBound) {
  std::mt19937 random(7);
  for (OperandFormat f : all)
    for (int turn = 0; turn < 200; ++turn) {
      const int64_t group = 8 << turn % 4, k = group * (1 + turn % 5);
      const std::vector<float> row = randomRow(random, k);
      const std::vector<float> back = decodeRow(f, encodeRow(f, row, group));
      ASSERT_EQ(back.size(), row.size());
      const int64_t share = infoOf(f).scale == FormatInfo::Group ? group : k;
      for (int64_t i = 0; i < k; ++i) {
        double largest = 0;
        for (int64_t j = i / share * share; j < (i / share + 1) * share; ++j)
          largest = std::max<double>(largest, std::fabs(row[j]));
        // The products of a scale are rounded, too.
        const double bound = errorBound(f, row[i], largest) + std::fabs(row[i]) * 0x1p-22;
        EXPECT_LE(std::fabs(double(back[i]) - row[i]), bound) << infoOf(f).name.str() << " " << i;
      }
    }
}

TEST(Format, TheBoundIsNoLargerThanWhatRoundingDoes) {
  std::mt19937 random(11);
  for (OperandFormat f : all) {
    if (f == OperandFormat::F32) // rows are in fp32
      continue;
    double most = 0;
    for (int turn = 0; turn < 50; ++turn) {
      const std::vector<float> row = randomRow(random, 64);
      const std::vector<float> back = decodeRow(f, encodeRow(f, row, 64));
      double largest = 0;
      for (float v : row)
        largest = std::max<double>(largest, std::fabs(v));
      for (size_t i = 0; i < row.size(); ++i)
        most = std::max(most, std::fabs(double(back[i]) - row[i]) / errorBound(f, row[i], largest));
    }
    EXPECT_GT(most, 0.9) << infoOf(f).name.str();
  }
}

TEST(Format, BytesOfARowWithItsScales) {
  EXPECT_EQ(rowBytes(OperandFormat::F32, 96), 384);
  EXPECT_EQ(rowBytes(OperandFormat::F16, 96), 192);
  EXPECT_EQ(rowBytes(OperandFormat::BF16, 96), 192);
  EXPECT_EQ(rowBytes(OperandFormat::I8Row, 96), 100);
  EXPECT_EQ(rowBytes(OperandFormat::I8Group, 96, 32), 108);
  EXPECT_EQ(rowBytes(OperandFormat::I8Row, 0), 0);
  EXPECT_EQ(rowBytes(OperandFormat::F8Row, 96), 100);
  EXPECT_EQ(rowBytes(OperandFormat::I4Row, 96), 52);
  EXPECT_EQ(rowBytes(OperandFormat::I4Group, 96, 32), 60);
  EXPECT_EQ(int8Format(0), OperandFormat::I8Row);
  EXPECT_EQ(int8Format(64), OperandFormat::I8Group);
}

TEST(Format, EncodingAgainChangesNothing) {
  std::mt19937 random(3);
  for (OperandFormat f : all) {
    const std::vector<float> row = randomRow(random, 128);
    const std::vector<float> once = decodeRow(f, encodeRow(f, row, 32)),
                             twice = decodeRow(f, encodeRow(f, once, 32));
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_NEAR(once[i], twice[i], std::fabs(once[i]) * 0x1p-21) << infoOf(f).name.str();
  }
}

TEST(Fp8, IsTheNearestOfAll256) {
  for (int b = 0; b < 256; ++b) {
    const float v = fp8ToFloat(uint8_t(b));
    if ((b & 127) == 127) {
      EXPECT_TRUE(std::isnan(v)) << b;
      continue;
    }
    const int exponent = b >> 3 & 15, mantissa = b & 7;
    const double magnitude = exponent ? std::ldexp(8 + mantissa, exponent - 10) // by definition
                                      : std::ldexp(mantissa, -9);
    EXPECT_EQ(double(v), b & 128 ? -magnitude : magnitude) << b;
    EXPECT_EQ(floatToFp8(v), b);
    if ((b & 127) == 126)
      continue;
    // Halfway to the next the even one, on either side of it the nearer.
    const float next = fp8ToFloat(uint8_t(b + 1)), middle = (v + next) / 2;
    EXPECT_EQ(floatToFp8(middle), b % 2 ? b + 1 : b) << b;
    EXPECT_EQ(floatToFp8(std::nextafter(middle, v)), b) << b;
    EXPECT_EQ(floatToFp8(std::nextafter(middle, next)), b + 1) << b;
  }
  EXPECT_EQ(floatToFp8(449.0F), 0x7e);
  EXPECT_EQ(floatToFp8(-1e30F), 0xfe);
  EXPECT_EQ(floatToFp8(INFINITY), 0x7e);
  EXPECT_EQ(floatToFp8(NAN) & 0x7f, 0x7f);
}

TEST(Int4, EightInAWordOfWhichNeighboursAre16BitsApart) {
  Int4x8 word{0};
  for (int e = 0; e < 8; ++e)
    word.set(e, e - 4);
  for (int e = 0; e < 8; ++e) {
    EXPECT_EQ(word.get(e), e - 4);
    EXPECT_EQ(Int4x8::shift(e), e % 2 * 16 + e / 2 * 4);
  }
  word.set(3, -8);
  EXPECT_EQ(word.get(3), -8);
  EXPECT_EQ(word.get(2), -2);
  EXPECT_EQ(word.get(4), 0);
}

TEST(Int4, TensorsOfThemRoundAndClamp) {
  const std::vector<float> values = {-9, -8, -7.5F, -6.5F, 0.5F, 1.5F, 7.4F, 8, 3, NAN, 0};
  const Tensor t = Tensor::of<float>(values, {11}).cast(DType::I4);
  EXPECT_EQ(t.bytes(), 8U);
  const int expected[] = {-8, -8, -8, -6, 0, 2, 7, 7, 3, -8, 0};
  for (int i = 0; i < 11; ++i)
    EXPECT_EQ(t.asInt(i), expected[i]) << i;
  // What is behind the last element is 0, so that equal tensors have equal bytes.
  EXPECT_EQ(t.hash(), Tensor::of<float>(values, {11}).cast(DType::F64).cast(DType::I4).hash());
  EXPECT_EQ(t.cast(DType::I8).asInt(9), -8);
}

TEST(Fp8, RowsWithoutNumbersOrOfZeros) {
  const std::vector<float> zeros(8, 0.0F), none = {1, NAN, 2, 3};
  for (float v : decodeRow(OperandFormat::F8Row, encodeRow(OperandFormat::F8Row, zeros)))
    EXPECT_EQ(v, 0.0F);
  for (float v : decodeRow(OperandFormat::F8Row, encodeRow(OperandFormat::F8Row, none)))
    EXPECT_TRUE(std::isnan(v));
}

} // namespace
} // namespace gpt2c
