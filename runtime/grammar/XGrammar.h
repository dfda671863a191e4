// Grammars by XGrammar. Only the files of this folder include this.
#pragma once

#include "runtime/grammar/Grammar.h"

#include <memory>

namespace gpt2c::rt {

/// Null where this build has no XGrammar.
class GrammarBackend {
public:
  virtual ~GrammarBackend() = default;
  virtual Result<std::shared_ptr<const Constraint>> compile(const GrammarText &what) = 0;
};

/// For the tokens that have texts, which are special ones where `special` has them.
Result<std::unique_ptr<GrammarBackend>> makeGrammarBackend(const Tokenizer &tokenizer,
                                                           int32_t vocabulary,
                                                           const std::vector<int32_t> &ends,
                                                           const GrammarLimits &limits);

} // namespace gpt2c::rt
