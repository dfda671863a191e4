// A template as texts and the tokens of its tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt::jinja {

struct Token {
  enum class Kind {
    Text,
    PrintBegin,
    PrintEnd,
    TagBegin,
    TagEnd,
    Name,
    String,
    Integer,
    Float,
    Operator,
    End
  };
  Kind kind;
  std::string text;
  int line = 0;
};

/// With trim_blocks and lstrip_blocks, as transformers reads templates. Throws Error.
std::vector<Token> tokenize(std::string_view source);

} // namespace gpt2c::rt::jinja
