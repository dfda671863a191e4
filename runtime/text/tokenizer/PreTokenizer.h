// The steps that cut a text into the words that tokens never cross.
#pragma once

#include "runtime/Status.h"
#include "runtime/text/tokenizer/TokenizerModel.h"
#include "runtime/text/unicode/Regex.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// GPT-2's regular expression, which the step ByteLevel of the `tokenizers` crate cuts by.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The words of a text. One per thread; split reuses its memory.
class Words {
public:
  struct Word {
    std::size_t begin, end; // in text()
    bool first;             // it begins the whole text
  };

  std::string_view text() const { return text_; }
  std::span<const Word> words() const { return words_; }
  std::string_view operator[](std::size_t i) const {
    return text_.substr(words_[i].begin, words_[i].end - words_[i].begin);
  }
  std::size_t size() const { return words_.size(); }

  Regex::Scratch regex;

private:
  friend class PreTokenizer;

  void begin(std::string_view text, bool first);
  void setText(std::string text);
  /// The text with bytes outside of UTF-8 masked.
  std::string_view matched();

  std::string_view text_;
  std::string own_, masked_;
  bool isUtf8_ = false;
  std::vector<Word> words_, next_;
  std::vector<TextSpan> matches_;
};

class PreTokenizer {
public:
  /// Error: Unsupported, for a regular expression that cannot be used.
  static Result<PreTokenizer> create(std::span<const TokenizerStep> steps);

  /// Sets `words` to the words of `text`; none of them is empty. Words may have other characters
  /// than the text, see TokenizerStep. `first`: whether `text` begins the whole text. A byte that
  /// belongs to no well-formed UTF-8 sequence counts as one symbol (neither space, letter nor
  /// number), just as U+FFFD in its place would. `text` must outlive `words`. Thread-safe.
  void split(std::string_view text, bool first, Words &words) const;

private:
  struct Step {
    TokenizerStep step;
    std::optional<Regex> regex;
  };
  static void findMatches(const Step &step, std::string_view word, Words &words);
  static void splitWords(const Step &step, Words &words);
  static void changeWords(const Step &step, Words &words);

  std::vector<Step> steps_;
};

} // namespace gpt2c::rt
