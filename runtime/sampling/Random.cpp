#include "runtime/sampling/Random.h"

namespace gpt2c::rt {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b),
               uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

uint32_t UniformRow::word(int32_t id) {
  if (int64_t block = id / 4; block != block_) {
    block_ = block;
    words_ = philox({uint32_t(block), uint32_t(position_), uint32_t(uint64_t(position_) >> 32), 0},
                    {uint32_t(seed_), uint32_t(seed_ >> 32)});
  }
  return words_[id % 4];
}

double uniformAt(uint64_t seed, int64_t position, int32_t id) {
  return UniformRow(seed, position)(id);
}

} // namespace gpt2c::rt
