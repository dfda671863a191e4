#include "tools/runtime-common/Tokens.h"

#include "tools/runtime-common/Files.h"
#include "tools/runtime-common/Report.h"

#include <charconv>

namespace gpt2c {

rt::Result<std::optional<rt::Tokenizer>> planTokenizer(const rt::Plan &plan,
                                                       const std::string &path) {
  std::span<const std::byte> blob = plan.tokenizerBlob();
  if (path.empty() && blob.empty())
    return std::optional<rt::Tokenizer>();
  rt::Result<rt::Tokenizer> tokenizer =
      path.empty() ? rt::Tokenizer::fromBytes(
                         {reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()})
                   : rt::Tokenizer::fromFiles(path);
  if (!tokenizer)
    return tokenizer.status();
  return std::optional(tokenizer.take());
}

rt::Result<rt::Tokens> idsOf(std::string_view text) {
  constexpr const char *separators = ", \t\r\n";
  rt::Tokens out;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(separators), text.size()));
    if (text.empty())
      return out;
    const std::string_view item = text.substr(0, text.find_first_of(separators));
    const char *begin = item.data(), *end = begin + item.size();
    const std::from_chars_result read = std::from_chars(begin, end, out.emplace_back());
    if (read.ec != std::errc() || read.ptr != end)
      return {rt::Code::Usage, "'" + std::string(item) + "' is no token id"};
    text.remove_prefix(item.size());
  }
}

rt::Result<rt::Tokens> tokensOfFile(const std::string &path, const rt::Tokenizer *tokenizer) {
  rt::Result<std::string> text = readInput(path);
  if (!text)
    return text.status();
  rt::Tokens tokens;
  if (path.ends_with(".ids")) {
    rt::Result<rt::Tokens> ids = idsOf(*text);
    if (!ids)
      return inContext(path, ids.status());
    tokens = ids.take();
  } else if (tokenizer) {
    tokens = tokenizer->encode(*text);
  } else {
    return {rt::Code::Usage, "there is no tokenizer to read '" + path +
                                 "' with: give --tokenizer, or a file of ids whose name ends in "
                                 ".ids"};
  }
  if (tokens.empty())
    return {rt::Code::Usage, "'" + path + "' has no tokens"};
  return tokens;
}

} // namespace gpt2c
