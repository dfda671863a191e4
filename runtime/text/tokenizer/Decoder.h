// The steps that make a text of tokens.
#pragma once

#include "runtime/Status.h"
#include "runtime/text/tokenizer/TokenizerModel.h"
#include "runtime/text/unicode/Regex.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

class Decoder {
public:
  /// Error: Unsupported, for a regular expression that cannot be used.
  static Result<Decoder> create(std::span<const TokenizerStep> steps);

  /// The text of tokens, a text of its own. Bytes that form no character stay as they are.
  std::string decode(std::vector<std::string> tokens) const;

  /// What a token adds to a text that goes on before and behind it: its bytes in decode(), but for
  /// what is taken off a text's beginning and end.
  std::string inside(std::string_view token) const;

  /// Whether decode() is nothing but inside() of each token.
  bool joinsOnly() const { return joinsOnly_; }

private:
  struct Step {
    TokenizerStep step;
    std::optional<Regex> regex;
  };

  std::vector<Step> steps_;
  bool joinsOnly_ = true;
};

} // namespace gpt2c::rt
