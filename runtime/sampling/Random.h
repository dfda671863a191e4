// Random numbers by counter: each is a function of a key and a place, so that what is drawn at one
// place depends on nothing that was drawn before.
#pragma once

#include <array>
#include <cstdint>

namespace gpt2c::rt {

/// Philox4x32-10: ten rounds over a counter of four words under a key of two.
/// Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// A number in (0, 1), a multiple of 2^-33, for the token `id` as a candidate for place `position`
/// of a text that is sampled with `seed`.
double uniformAt(uint64_t seed, int64_t position, int32_t id);

/// The same numbers one id after the other: philox() runs once for four ids.
class UniformRow {
public:
  UniformRow(uint64_t seed, int64_t position) : seed_(seed), position_(position) {}
  /// The number times 2^32, less one half.
  uint32_t word(int32_t id);
  double operator()(int32_t id) { return (double(word(id)) + 0.5) * 0x1p-32; }

private:
  uint64_t seed_;
  int64_t position_;
  int64_t block_ = -1;
  std::array<uint32_t, 4> words_{};
};

} // namespace gpt2c::rt
