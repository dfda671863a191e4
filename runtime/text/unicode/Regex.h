// Regular expressions over UTF-8, by PCRE2.
#pragma once

#include "runtime/Status.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// A byte range of a text.
struct TextSpan {
  std::size_t begin, end;
  bool operator==(const TextSpan &) const = default;
};

class Regex {
public:
  /// Memory that find reuses. One per thread.
  class Scratch {
  public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch &) = delete;

  private:
    friend class Regex;
    struct State;
    std::unique_ptr<State> state_;
  };

  /// `pattern` has Oniguruma's syntax (runtime/text/unicode/RegexSyntax.h). Error: Unsupported.
  static Result<Regex> compile(std::string_view pattern);

  Regex(Regex &&) noexcept;
  Regex &operator=(Regex &&) noexcept;
  ~Regex();

  /// The first match that begins at or behind `from` in `text`, which is UTF-8. Time and memory of
  /// one call are bounded: where a pattern needs more on a text, there is no match. Thread-safe.
  std::optional<TextSpan> find(std::string_view text, std::size_t from, Scratch &scratch) const;

  /// All matches from left to right that do not overlap. An empty one right behind another counts
  /// as none.
  void findAll(std::string_view text, Scratch &scratch, std::vector<TextSpan> &matches) const;

private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
};

} // namespace gpt2c::rt
