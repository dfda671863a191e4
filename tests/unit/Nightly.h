// What is too long for every change.
#pragma once

#include <cstdlib>

namespace gpt2c::test {

/// Whether this run may take its time: GPT2C_NIGHTLY is set, as scripts/nightly.sh does. Others try
/// a part of what it tries.
inline bool nightly() { return std::getenv("GPT2C_NIGHTLY") != nullptr; }

} // namespace gpt2c::test
