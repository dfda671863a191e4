// Ids that nobody else has.
#pragma once

#include <string>

namespace gpt2c::serve {

/// So many random digits of base 16.
std::string randomDigits(int count);
/// A prefix and 24 of them.
std::string randomId(const char *prefix);

} // namespace gpt2c::serve
