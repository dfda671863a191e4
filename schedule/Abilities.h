// Sets of what a kernel can, a problem wants or a machine has.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace gpt2c {

/// A set of the members of E, an enumeration of at most 64 whose nameOf(E) is in its namespace.
template <typename E> class Abilities {
public:
  constexpr Abilities() = default;
  constexpr Abilities(std::initializer_list<E> members) {
    for (E e : members)
      add(e);
  }

  constexpr Abilities &add(E e) {
    bits_ |= bit(e);
    return *this;
  }
  constexpr Abilities &addIf(bool present, E e) { return present ? add(e) : *this; }
  constexpr bool has(E e) const { return bits_ & bit(e); }
  constexpr bool hasAll(Abilities other) const { return (other - *this).empty(); }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr Abilities operator|(Abilities o) const { return Abilities(bits_ | o.bits_); }
  constexpr Abilities operator&(Abilities o) const { return Abilities(bits_ & o.bits_); }
  constexpr Abilities operator-(Abilities o) const { return Abilities(bits_ & ~o.bits_); }
  constexpr bool operator==(const Abilities &) const = default;

  /// "gate, statistics"
  std::string names() const {
    std::string text;
    for (unsigned i = 0; i < 64; ++i)
      if (bits_ >> i & 1)
        text += (text.empty() ? "" : ", ") + std::string(nameOf(E(i)));
    return text;
  }

private:
  constexpr explicit Abilities(uint64_t bits) : bits_(bits) {}
  static constexpr uint64_t bit(E e) { return uint64_t(1) << unsigned(e); }

  uint64_t bits_ = 0;
};

} // namespace gpt2c
