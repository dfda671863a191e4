#include "server/http/RandomId.h"

#include <cstdint>
#include <random>

namespace gpt2c::serve {

std::string randomDigits(int count) {
  thread_local std::mt19937_64 engine{std::random_device{}() ^ uint64_t(std::random_device{}())
                                                                   << 32};
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  uint64_t bits = 0;
  for (int i = 0; i < count; ++i, bits >>= 4) {
    if (i % 16 == 0)
      bits = engine();
    out += digits[bits & 15];
  }
  return out;
}

std::string randomId(const char *prefix) { return prefix + randomDigits(24); }

} // namespace gpt2c::serve
