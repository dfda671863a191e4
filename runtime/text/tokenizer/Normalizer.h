// The steps that change a text before it is cut into words.
#pragma once

#include "runtime/Status.h"
#include "runtime/text/tokenizer/Charsmap.h"
#include "runtime/text/tokenizer/TokenizerModel.h"
#include "runtime/text/unicode/Regex.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// `text` with bytes outside of well-formed UTF-8 as NUL, a character of its length that patterns
/// do not name.
std::string maskInvalidUtf8(std::string_view text);

/// `text` with each match of `pattern` replaced.
std::string replaceAll(const Regex &pattern, std::string_view text, std::string_view content,
                       Regex::Scratch &scratch);
std::string replaceAll(std::string_view pattern, std::string_view text, std::string_view content);

class Normalizer {
public:
  /// Error: Unsupported, for an expression or table that cannot be used.
  static Result<Normalizer> create(std::span<const TokenizerStep> steps);

  bool empty() const { return steps_.empty(); }

  /// Sets `begins` to false where the first characters of `text` were taken away. Thread-safe.
  std::string apply(std::string_view text, bool &begins, Regex::Scratch &scratch) const;

private:
  struct Step {
    TokenizerStep step;
    std::optional<Regex> regex;
    std::optional<Charsmap> charsmap;
  };
  static std::string applyStep(const Step &step, std::string_view text, bool &begins,
                               Regex::Scratch &scratch);

  std::vector<Step> steps_;
};

} // namespace gpt2c::rt
