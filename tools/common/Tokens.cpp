#include "tools/common/Tokens.h"

#include "ir/Error.h"
#include "tools/common/CommandLine.h"
#include "tools/common/RuntimeError.h"

#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

llvm::Expected<std::optional<rt::Tokenizer>> openTokenizer(const rt::Plan &plan,
                                                           const std::string &path) {
  std::span<const std::byte> blob = plan.tokenizerBlob();
  if (path.empty() && blob.empty())
    return std::nullopt;
  rt::Result<rt::Tokenizer> tokenizer =
      path.empty() ? rt::Tokenizer::fromBytes(
                         {reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()})
                   : rt::Tokenizer::fromFiles(path);
  if (!tokenizer)
    return toError(tokenizer.status());
  return std::optional(tokenizer.take());
}

llvm::Expected<rt::Tokens> parseIds(llvm::StringRef text) {
  constexpr const char *separators = ", \t\r\n";
  rt::Tokens out;
  for (;;) {
    auto [item, rest] = llvm::getToken(text, separators);
    if (item.empty())
      return out;
    if (item.getAsInteger(10, out.emplace_back()))
      return makeError(ExitCode::Usage, "'" + item + "' is no token id");
    text = rest;
  }
}

llvm::Expected<rt::Tokens> readTokens(const std::string &path, const rt::Tokenizer *tokenizer) {
  auto buffer = readInput(path);
  if (!buffer)
    return buffer.takeError();
  llvm::StringRef text = (*buffer)->getBuffer();
  rt::Tokens tokens;
  if (llvm::StringRef(path).ends_with(".ids")) {
    auto ids = parseIds(text);
    if (!ids)
      return inContext(path, ids.takeError());
    tokens = std::move(*ids);
  } else if (tokenizer) {
    tokens = tokenizer->encode(std::string_view(text.data(), text.size()));
  } else {
    return makeError(ExitCode::Usage, "there is no tokenizer to read '" + path +
                                          "' with: give --tokenizer, or a file of ids whose name "
                                          "ends in .ids");
  }
  if (tokens.empty())
    return makeError(ExitCode::Usage, "'" + path + "' has no tokens");
  return tokens;
}

} // namespace gpt2c
