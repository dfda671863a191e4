// A template's tokens as a tree.
#pragma once

#include "runtime/text/jinja/Ast.h"

#include <string_view>

namespace gpt2c::rt::jinja {

/// Throws Error: of the syntax, and for statements that templates of chats do not have (include,
/// extends, import, block, do).
Block parse(std::string_view source);

} // namespace gpt2c::rt::jinja
