// Character classes as the bodies of PCRE2 classes, what stands between [ and ]. PCRE2 follows the
// Unicode version that it was built for (14 in Debian 12 and Ubuntu 24.04); characters that later
// versions added are spelled out.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpt2c::rt::classes {

std::string space();    ///< White_Space; PCRE2's \s also takes U+180E
std::string digit();    ///< Nd
std::string word();     ///< Alphabetic, M, Nd, Pc
std::string hexDigit(); ///< of ASCII
std::string everything();

/// The class of \p{name}: a general category, a class of POSIX, a script or a binary property,
/// short or long, in any case, with or without spaces, "-" and "_". A name that is none of the
/// first two is taken as PCRE2 knows it, which may be not at all. None where it cannot be a name.
std::optional<std::string> property(std::string_view name);

} // namespace gpt2c::rt::classes
