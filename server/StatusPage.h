// The page at /: what the server does, drawn from /metrics.
#pragma once

#include <string_view>

namespace gpt2c::serve {

/// HTML; it loads nothing but /metrics, /v1/models and /version of this server.
std::string_view statusPage();

} // namespace gpt2c::serve
