// Numbers as people write them.
#pragma once

#include <charconv>
#include <cstdlib>
#include <string>

namespace gpt2c {

/// The number with the fewest decimal digits that rounds to `value` in single precision: 1e-5 for
/// 9.99999974738e-06f. It is what whoever wrote the float meant, and prints shortly.
inline double decimalOf(float value) {
  constexpr size_t most = 32; // of the shortest decimal of a float, sign and exponent included
  char text[most];
  const auto [end, error] = std::to_chars(text, text + most, value);
  return error == std::errc() ? std::strtod(std::string(text, end).c_str(), nullptr) : value;
}

} // namespace gpt2c
