// Addresses of servers that a command line names.
#pragma once

#include "runtime/Status.h"

#include <string>

namespace gpt2c {

/// http://HOST[:PORT][/PATH]
struct HttpUrl {
  std::string host, port = "80",
                    path; ///< an address of IPv6 without brackets; path without a / last
};

/// Usage, which names `flag`, where it is none.
rt::Result<HttpUrl> parseHttpUrl(const std::string &flag, const std::string &url);

} // namespace gpt2c
