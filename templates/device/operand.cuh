// What a storage type of ir/Formats.def is to a kernel.
#pragma once

namespace gpt2c {

/// `scaled`: elements are steps of a scale that stands beside them, for a row, a column, a group or
/// all; else they are the values themselves.
template <typename T> struct Operand {
  static constexpr int bits = 8 * (int)sizeof(T);
  static constexpr bool scaled = false;
};
template <> struct Operand<signed char> {
  static constexpr int bits = 8;
  static constexpr bool scaled = true;
};

} // namespace gpt2c
