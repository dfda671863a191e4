#include "tools/runtime-common/HttpUrl.h"

#include <algorithm>
#include <string_view>

namespace gpt2c {

rt::Result<HttpUrl> parseHttpUrl(const std::string &flag, const std::string &url) {
  const rt::Status wrong(rt::Code::Usage,
                         flag + " is http://HOST:PORT; what talks TLS is before the server");
  constexpr std::string_view scheme = "http://";
  if (!url.starts_with(scheme))
    return wrong;
  std::string_view rest = std::string_view(url).substr(scheme.size());
  HttpUrl out;
  const size_t slash = std::min(rest.find('/'), rest.size());
  out.path = rest.substr(slash);
  while (out.path.ends_with('/'))
    out.path.pop_back();
  rest = rest.substr(0, slash);
  const size_t colon = rest.rfind(':');
  if (colon != rest.npos && rest.find(']', colon) == rest.npos) {
    out.port = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) // an address of IPv6
    rest = rest.substr(1, rest.size() - 2);
  out.host = rest;
  // They become lines of a request's head.
  const auto isPlain = [](char c) { return c > 0x20 && c < 0x7f; };
  if (out.host.empty() || out.port.empty() ||
      out.port.find_first_not_of("0123456789") != std::string::npos ||
      !std::ranges::all_of(url, isPlain))
    return wrong;
  return out;
}

} // namespace gpt2c
