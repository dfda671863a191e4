#include "tools/runtime-common/EngineFlags.h"

#include <charconv>

namespace gpt2c {

void EngineFlags::addTo(Flags &flags) {
  flags
      .value("kv-cache-bytes", "N", "Memory of the KV cache; 0: what plan and device say", kvBytes_)
      .value("host-pages", "N|BYTES",
             "Pages of the KV cache in host memory behind those of the device, or with KiB, MiB "
             "or GiB memory for them: sequences that find no room take turns on the device",
             hostPages_)
      .choice<rt::Comeback>(
          "host-pages-return", "How a sequence's keys and values come back", comeback_,
          {{"auto", rt::Comeback::Auto,
            "copied; or computed again, where that is faster and gives the same bits (default)"},
           {"copy", rt::Comeback::Copied, "copied"},
           {"recompute", rt::Comeback::Recomputed, "computed again"}})
      .value("turn-tokens", "N",
             "New tokens of a turn, at least; 0: so many that copies take half of the time",
             turnTokens_)
      .flag("check-host-pages", "Check that pages in host memory come back as they left", checks_);
}

/// The number, and the bytes of its unit, 1 where there is none.
static bool readSize(std::string_view text, uint64_t &number, uint64_t &unit) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view rest(end, size_t(text.data() + text.size() - end));
  unit = rest.empty()    ? 1
         : rest == "KiB" ? 1 << 10
         : rest == "MiB" ? 1 << 20
         : rest == "GiB" ? 1 << 30
                         : 0;
  return error == std::errc() && unit && number <= (uint64_t(1) << 62) / unit;
}

rt::Status EngineFlags::apply(rt::EngineOptions &options) const {
  options.kvBytes = kvBytes_;
  options.comeback = comeback_;
  options.turnTokens = turnTokens_;
  options.checkHostPages = checks_;
  if (turnTokens_ < 0)
    return {rt::Code::Usage, "--turn-tokens is a number of at least 0"};
  if (hostPages_.empty())
    return {};
  uint64_t number = 0, unit = 0;
  if (!readSize(hostPages_, number, unit) || (unit == 1 && number > INT32_MAX / 2))
    return {rt::Code::Usage,
            "--host-pages is a number of pages, or memory as 16GiB, not '" + hostPages_ + "'"};
  if (unit == 1)
    options.hostPages = int32_t(number);
  else
    options.hostBytes = number * unit;
  return {};
}

} // namespace gpt2c
