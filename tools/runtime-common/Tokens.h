// Token ids from what people give: a tokenizer, texts, lists of ids.
#pragma once

#include "runtime/session/Session.h"
#include "runtime/text/tokenizer/Tokenizer.h"

#include <optional>
#include <string>

namespace gpt2c {

/// The tokenizer in the folder or tokenizer.json `path`; where that is empty the plan's, if it has
/// one.
rt::Result<std::optional<rt::Tokenizer>> planTokenizer(const rt::Plan &plan,
                                                       const std::string &path);

/// "1,2 3": ids between commas and white space.
rt::Result<rt::Tokens> idsOf(std::string_view text);

/// The tokens of a text file, or, where its name ends in .ids, the ids in it; "-" is a text on
/// standard input. Documents are separated by <|endoftext|>, which becomes the one token that
/// models were trained with. `tokenizer` may be null for ids. A file without tokens is an error.
rt::Result<rt::Tokens> tokensOfFile(const std::string &path, const rt::Tokenizer *tokenizer);

} // namespace gpt2c
