// Well-formed UTF-8 as Unicode defines it (table 3-7): no surrogates, no overlong forms, nothing
// above U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace gpt2c::rt {

/// Length (1 to 4) of the well-formed sequence that `text` begins with; 0 when there is none.
std::size_t utf8SequenceLength(std::string_view text);

bool isUtf8(std::string_view text);

/// Number of bytes (0 to 3) at the end of `text` that more bytes could complete to a well-formed
/// sequence.
std::size_t utf8IncompleteTail(std::string_view text);

} // namespace gpt2c::rt
