#include "runtime/plan/PackedWeight.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

namespace gpt2c::rt {
namespace {

float toFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }
uint16_t toBits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

std::vector<uint16_t> normal(std::mt19937 &random, const PackedShape &shape, float deviation) {
  std::normal_distribution<float> draw(0, deviation);
  std::vector<uint16_t> out(shape.rows * shape.columns);
  for (uint16_t &x : out)
    x = toBits(draw(random));
  return out;
}

std::vector<uint16_t> unpacked(const PackedShape &shape, std::span<const std::byte> bytes) {
  std::vector<uint16_t> out(shape.rows * shape.columns, 0xabcd);
  unpackWeight(shape, bytes, std::as_writable_bytes(std::span(out)));
  return out;
}

uint32_t wordAt(std::span<const std::byte> bytes, uint64_t at) {
  uint32_t word;
  std::memcpy(&word, bytes.data() + at, 4);
  return word;
}

TEST(PackedWeight, IsOfWholeBlocks) {
  EXPECT_FALSE(PackedShape::of(std::vector<int64_t>{4, 48}));
  EXPECT_FALSE(PackedShape::of(std::vector<int64_t>{0, 64}));
  EXPECT_FALSE(PackedShape::of(std::vector<int64_t>{64}));
  EXPECT_EQ(PackedShape::of(std::vector<int64_t>{3, 96})->group, 32u);
  EXPECT_EQ(PackedShape::of(std::vector<int64_t>{3, 896})->group, 128u);
  EXPECT_EQ(PackedShape::of(std::vector<int64_t>{3, 2048})->group, 256u);
  const PackedShape s = *PackedShape::of(std::vector<int64_t>{1000, 2048});
  EXPECT_EQ(s.leastBytes(), 1000 * 2048 * 12 / 8 + 1000 * 8 * 4u);
  EXPECT_TRUE(s.mayHave(s.leastBytes() + 4 * kMostListed));
  EXPECT_FALSE(s.mayHave(s.leastBytes() + 4 * (kMostListed + 1)));
  EXPECT_FALSE(s.mayHave(s.leastBytes() - 4));
}

/// What packs has the same bits again: numbers as weights are, and whatever else there is.
TEST(PackedWeight, HasTheSameBits) {
  std::mt19937 random(3);
  auto below = [&](uint32_t n) { return uint32_t(random() % n); };
  int packed = 0;
  for (int i = 0; i < 200; ++i) {
    const PackedShape shape = *PackedShape::of(
        std::vector<int64_t>{int64_t(1 + below(40)), int64_t(32 * (1 + below(40)))});
    std::vector<uint16_t> w = normal(random, shape, std::ldexp(1.0f, int(below(200)) - 120));
    for (uint32_t n = below(4) * below(4); n > 0; --n) {
      uint16_t &x = w[below(uint32_t(w.size()))];
      const uint16_t odd[] = {
          0, 0x8000, 0x7f80, 0xff80, 0x7fc1, 0xffff, 1, 0x807f, uint16_t(random())};
      x = odd[below(std::size(odd))];
    }
    if (i % 5 == 0) // a row of zeros with signs
      for (uint64_t k = 0; k < shape.columns; ++k)
        w[k] = uint16_t(below(2) << 15);
    const auto bytes = packWeight(shape, w);
    if (!bytes)
      continue;
    ++packed;
    ASSERT_TRUE(shape.mayHave(bytes->size()));
    ASSERT_EQ(unpacked(shape, *bytes), w) << i;
  }
  EXPECT_GT(packed, 60);
}

/// Bytes are what the header says, by its formula, of a matrix that two threads pack.
TEST(PackedWeight, IsWhatTheFormulaSays) {
  std::mt19937 random(8);
  const PackedShape shape = *PackedShape::of(std::vector<int64_t>{2100, 1024});
  std::vector<uint16_t> w = normal(random, shape, 0.02f);
  const auto bytes = packWeight(shape, w);
  ASSERT_TRUE(bytes);
  uint64_t exceptions = 0;
  for (uint64_t i = 0; i < w.size(); ++i) {
    const uint64_t group = i / shape.group, place = i % shape.group;
    const uint32_t word = wordAt(*bytes, shape.wordsAt(bytes->size()) + 4 * group);
    const std::byte *const block = bytes->data() + i / 32 * 48;
    const auto signMantissa = uint32_t(block[i % 32]);
    uint32_t code = 0;
    const int bit = PackedShape::codeBit(int(i % 8));
    const uint32_t codes = wordAt(*bytes, i / 32 * 48 + 32 + i % 32 / 8 * 4);
    for (int b = 0; b < 4; ++b)
      code |= (codes >> (bit + b) % 32 & 1) << b;
    const float value = std::ldexp(1 + float(signMantissa & 127) / 128, int(code) - 15) *
                        std::ldexp(1.0f, int(word >> 24) - 127) * (signMantissa >> 7 ? -1 : 1);
    const bool listed = (word & 0x7f80) == 0x7f80, isPlace = (word >> 16 & 0xff) == place;
    if (!listed && isPlace) {
      EXPECT_EQ(word & 0xffff, w[i]);
    }
    if (value == toFloat(w[i]))
      continue;
    ++exceptions;
    EXPECT_TRUE(listed ? (word & 0xff807f) != 0 : isPlace) << i;
  }
  EXPECT_GT(exceptions, 10u);
  EXPECT_LT(exceptions, w.size() / 5000);
}

TEST(PackedWeight, LeavesWhatHasNoWindow) {
  std::mt19937 random(4);
  const PackedShape shape = *PackedShape::of(std::vector<int64_t>{16, 512});
  std::vector<uint16_t> w(shape.rows * shape.columns);
  for (uint16_t &x : w)
    x = uint16_t(random()); // of all exponents
  EXPECT_FALSE(packWeight(shape, w));
}

/// A list that a damaged word points into ends where the list does.
TEST(PackedWeight, StaysInsideOfItsList) {
  std::mt19937 random(4);
  const PackedShape shape = *PackedShape::of(std::vector<int64_t>{8, 512});
  std::vector<uint16_t> w = normal(random, shape, 1);
  w[3] = w[5] = 0x0080;
  auto bytes = packWeight(shape, w);
  ASSERT_TRUE(bytes);
  ASSERT_EQ(unpacked(shape, *bytes), w);
  for (uint32_t n : {0u, 1u, 2u, 3u, 7u, 0xffffu})
    for (uint64_t group = 0; group < shape.words(); ++group) {
      const uint32_t word =
          127u << 24 | (n & 0xff) << 16 | 0x7f80 | (n >> 15 & 1) << 15 | (n >> 8 & 0x7f);
      std::memcpy(bytes->data() + shape.wordsAt(bytes->size()) + 4 * group, &word, 4);
      unpacked(shape, *bytes);
    }
}

} // namespace
} // namespace gpt2c::rt
