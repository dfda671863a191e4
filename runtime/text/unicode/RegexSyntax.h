// Regular expressions as tokenizer files have them (Oniguruma's Ruby syntax) in PCRE2's syntax.
#pragma once

#include "runtime/Status.h"

#include <string>
#include <string_view>

namespace gpt2c::rt {

/// A pattern for PCRE2 with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE that matches what `pattern`
/// matches in Oniguruma. What the two differ in: classes within classes and their intersections,
/// classes as Unicode has them, {n,m}+ (a repeated repetition), {,n}, (?m) and options in the
/// middle of a group, \h, \v, \b, names of scripts. Error: Unsupported, with the construct.
Result<std::string> pcre2Syntax(std::string_view pattern);

} // namespace gpt2c::rt
