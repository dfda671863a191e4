// SentencePiece's compiled table of normalisation: a double array of prefixes and, behind it, the
// texts that replace them.
#pragma once

#include "runtime/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

class Charsmap {
public:
  /// `table`: the size in bytes of the array (u32), its units (u32 each), texts that end in NUL.
  /// Little endian. Error: Unsupported.
  static Result<Charsmap> parse(std::string_view table);

  /// `text` with each grapheme cluster of fewer than 6 bytes, or else each of its characters,
  /// replaced by what the table has for the shortest prefix that it has anything for.
  std::string apply(std::string_view text) const;

private:
  std::optional<std::string_view> find(std::string_view chunk) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

} // namespace gpt2c::rt
