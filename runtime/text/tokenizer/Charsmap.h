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
  /// So do Hugging Face's tokenizers.
  std::string apply(std::string_view text) const;

  /// `text` with the longest prefix that the table has anything for replaced, again and again. So
  /// does SentencePiece.
  std::string applyLongest(std::string_view text) const;

private:
  struct Match {
    std::size_t length;
    std::string_view text;
  };
  /// The shortest prefix of `chunk` that has a text, or the longest.
  std::optional<Match> find(std::string_view chunk, bool longest) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

} // namespace gpt2c::rt
