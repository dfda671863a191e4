// What a file is that was taken for a plan, or for one that belongs to a model.
#pragma once

#include <string>
#include <string_view>

namespace gpt2c::rt {

/// Tells files of other kinds, which people give in place of a plan or find in place of a
/// tokenizer, by their first bytes: what it is, and what to do about it. Empty: not known.
std::string foreignFile(std::string_view bytes);

} // namespace gpt2c::rt
