// Runs a template's tree.
#pragma once

#include "runtime/text/jinja/Ast.h"
#include "runtime/text/jinja/Library.h"

#include <ctime>
#include <string>

namespace gpt2c::rt::jinja {

/// The text that `block` makes of `context`. `now` is what strftime_now tells. Throws Error.
std::string render(const Block &block, Dict context, std::time_t now);

} // namespace gpt2c::rt::jinja
