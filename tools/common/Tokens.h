// Token ids from what people give: a tokenizer, texts, lists of ids.
#pragma once

#include "runtime/session/Session.h"
#include "runtime/text/tokenizer/Tokenizer.h"

#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace gpt2c {

/// tools/runtime-common/Tokens.h, with the compiler's errors: planTokenizer, idsOf, tokensOfFile.
llvm::Expected<std::optional<rt::Tokenizer>> openTokenizer(const rt::Plan &plan,
                                                           const std::string &path);
llvm::Expected<rt::Tokens> parseIds(llvm::StringRef text);
llvm::Expected<rt::Tokens> readTokens(const std::string &path, const rt::Tokenizer *tokenizer);

} // namespace gpt2c
