#include "tools/common/Tokens.h"

#include "tools/common/RuntimeError.h"
#include "tools/runtime-common/Tokens.h"

namespace gpt2c {

llvm::Expected<std::optional<rt::Tokenizer>> openTokenizer(const rt::Plan &plan,
                                                           const std::string &path) {
  return toExpected(planTokenizer(plan, path));
}

llvm::Expected<rt::Tokens> parseIds(llvm::StringRef text) { return toExpected(idsOf(text)); }

llvm::Expected<rt::Tokens> readTokens(const std::string &path, const rt::Tokenizer *tokenizer) {
  return toExpected(tokensOfFile(path, tokenizer));
}

} // namespace gpt2c
