#include "runtime/text/jinja/Lexer.h"

#include "runtime/text/jinja/Value.h"
#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <cctype>

namespace gpt2c::rt::jinja {
namespace {

bool isOneOf(std::string_view all, char c) { return all.find(c) != all.npos; }

bool isSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string unixLines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    i += i + 1 < source.size() && source[i + 1] == '\n';
  }
  return out;
}

class Lexer {
public:
  explicit Lexer(std::string_view source) : text_(unixLines(source)) {
    if (text_.ends_with('\n'))
      text_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < text_.size())
      readText();
    add(Token::Kind::End, "");
    return std::move(out_);
  }

private:
  [[noreturn]] void fail(const std::string &message) const { throw Error{message, line_}; }
  bool has(std::string_view what) const {
    return std::string_view(text_).substr(at_).starts_with(what);
  }
  void add(Token::Kind kind, std::string text) { out_.push_back({kind, std::move(text), line_}); }
  void advance(std::size_t to) {
    line_ += int(
        std::count(text_.begin() + std::ptrdiff_t(at_), text_.begin() + std::ptrdiff_t(to), '\n'));
    at_ = to;
  }

  /// Up to the next tag, and the tag.
  void readText() {
    std::size_t tag = at_;
    while ((tag = text_.find('{', tag)) != text_.npos &&
           (tag + 1 >= text_.size() || !isOneOf("{%#", text_[tag + 1])))
      ++tag;
    if (tag == text_.npos) {
      add(Token::Kind::Text, text_.substr(at_));
      return advance(text_.size());
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
    std::string before = text_.substr(at_, tag - at_);
    if (sign == '-')
      while (!before.empty() && isSpace(before.back()))
        before.pop_back();
    else if (sign != '+' && kind != '{')
      stripLine(before);
    if (!before.empty())
      add(Token::Kind::Text, std::move(before));
    advance(tag + 2 + (sign == '-' || sign == '+'));
    if (kind == '#')
      readComment();
    else if (kind == '%' && isRaw())
      readRaw();
    else
      readTag(kind == '%');
  }

  /// White space between the beginning of its line and a tag goes.
  void stripLine(std::string &before) const {
    const std::size_t line = before.rfind('\n');
    const std::size_t begin = line == before.npos ? 0 : line + 1;
    if ((begin > 0 || lineStarts_) &&
        std::all_of(before.begin() + std::ptrdiff_t(begin), before.end(), isSpace))
      before.resize(begin);
  }

  /// Behind a tag, whose last sign is at at_ - 1: `minus` takes all white space, else `trims` one
  /// line end.
  void endTag(bool minus, bool trims) {
    std::size_t to = at_;
    if (minus)
      while (to < text_.size() && isSpace(text_[to]))
        ++to;
    else if (trims && to < text_.size() && text_[to] == '\n')
      ++to;
    lineStarts_ = to > 0 && text_[to - 1] == '\n';
    advance(to);
  }

  void readComment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == text_.npos)
      fail("a comment is not closed");
    const char sign = end > at_ ? text_[end - 1] : ' ';
    advance(end + 2);
    endTag(sign == '-', sign != '+');
  }

  /// Whether "{%", before at_, begins {% raw %}.
  bool isRaw() const {
    std::size_t at = at_;
    while (at < text_.size() && isSpace(text_[at]))
      ++at;
    if (text_.compare(at, 3, "raw") != 0)
      return false;
    at += 3;
    while (at < text_.size() && isSpace(text_[at]))
      ++at;
    return text_.compare(at, 2, "%}") == 0 || text_.compare(at, 3, "-%}") == 0;
  }

  void readRaw() {
    const std::size_t close = text_.find("%}", at_);
    const bool minus = text_[close - 1] == '-';
    advance(close + 2);
    endTag(minus, true);
    for (std::size_t end = at_; (end = text_.find("{%", end)) != text_.npos; end += 2) {
      std::size_t at = end + 2;
      const char sign = at < text_.size() ? text_[at] : ' ';
      at += sign == '-' || sign == '+';
      while (at < text_.size() && isSpace(text_[at]))
        ++at;
      if (text_.compare(at, 6, "endraw") != 0)
        continue;
      std::string raw = text_.substr(at_, end - at_);
      if (sign == '-')
        while (!raw.empty() && isSpace(raw.back()))
          raw.pop_back();
      else if (sign != '+')
        stripLine(raw);
      add(Token::Kind::Text, std::move(raw));
      const std::size_t last = text_.find("%}", at);
      if (last == text_.npos)
        break;
      const bool strips = text_[last - 1] == '-';
      advance(last + 2);
      return endTag(strips, text_[last - 1] != '+');
    }
    fail("raw is not closed");
  }

  void readTag(bool statement) {
    add(statement ? Token::Kind::TagBegin : Token::Kind::PrintBegin, "");
    const std::string_view end = statement ? "%}" : "}}";
    std::string open; // brackets within the tag
    for (;;) {
      while (at_ < text_.size() && isSpace(text_[at_]))
        advance(at_ + 1);
      if (at_ >= text_.size())
        fail("a tag is not closed");
      const char sign = has("-") || has("+") ? text_[at_] : ' ';
      const std::size_t signs = sign == ' ' ? 0 : 1;
      if (open.empty() && std::string_view(text_).substr(at_ + signs).starts_with(end) &&
          (statement || sign != '+')) {
        add(statement ? Token::Kind::TagEnd : Token::Kind::PrintEnd, "");
        advance(at_ + signs + end.size());
        return endTag(sign == '-', statement && sign != '+');
      }
      readToken(open);
    }
  }

  void readToken(std::string &open) {
    const char c = text_[at_];
    if (std::isalpha(std::uint8_t(c)) || c == '_' || std::uint8_t(c) >= 0x80) {
      std::size_t end = at_;
      while (end < text_.size() && (std::isalnum(std::uint8_t(text_[end])) || text_[end] == '_' ||
                                    std::uint8_t(text_[end]) >= 0x80))
        ++end;
      add(Token::Kind::Name, text_.substr(at_, end - at_));
      return advance(end);
    }
    if (std::isdigit(std::uint8_t(c)))
      return readNumber();
    if (c == '\'' || c == '"')
      return readString(c);
    for (std::string_view op : {"**", "//", "==", "!=", "<=", ">="})
      if (has(op)) {
        add(Token::Kind::Operator, std::string(op));
        return advance(at_ + 2);
      }
    if (!isOneOf("+-*/%~<>=()[]{}.,:|", c))
      fail(std::string("the character ") + c + " has no meaning here");
    if (isOneOf("([{", c))
      open += c;
    else if (isOneOf(")]}", c)) {
      const char partner = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != partner)
        fail(std::string("the ") + c + " closes nothing");
      open.pop_back();
    }
    add(Token::Kind::Operator, std::string(1, c));
    advance(at_ + 1);
  }

  void readNumber() {
    std::size_t end = at_;
    bool real = false;
    auto digits = [&] {
      while (end < text_.size() && (std::isdigit(std::uint8_t(text_[end])) || text_[end] == '_'))
        ++end;
    };
    digits();
    if (end + 1 < text_.size() && text_[end] == '.' && std::isdigit(std::uint8_t(text_[end + 1]))) {
      real = true;
      ++end;
      digits();
    }
    if (end < text_.size() && (text_[end] | 0x20) == 'e') {
      std::size_t exponent = end + 1;
      if (exponent < text_.size() && (text_[exponent] == '-' || text_[exponent] == '+'))
        ++exponent;
      if (exponent < text_.size() && std::isdigit(std::uint8_t(text_[exponent]))) {
        real = true;
        end = exponent;
        digits();
      }
    }
    std::string number = text_.substr(at_, end - at_);
    std::erase(number, '_');
    if (number.size() > (real ? 60u : 18u))
      fail("a number is too long");
    add(real ? Token::Kind::Float : Token::Kind::Integer, std::move(number));
    advance(end);
  }

  void readString(char quote) {
    std::string value;
    std::size_t at = at_ + 1;
    for (; at < text_.size() && text_[at] != quote; ++at) {
      if (text_[at] != '\\') {
        value += text_[at];
        continue;
      }
      if (++at == text_.size())
        break;
      appendEscape(value, at);
    }
    if (at >= text_.size())
      fail("a string is not closed");
    add(Token::Kind::String, std::move(value));
    advance(at + 1);
  }

  /// The escape whose letter is at `at`, which becomes its last.
  void appendEscape(std::string &value, std::size_t &at) const {
    static constexpr std::string_view kFrom = "ntrabfv0'\"\\", kTo("\n\t\r\a\b\f\v\0'\"\\", 11);
    const char c = text_[at];
    const std::size_t length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (length && at + length < text_.size()) {
      const std::string digits = text_.substr(at + 1, length);
      if (std::ranges::all_of(digits, [](char d) { return std::isxdigit(std::uint8_t(d)); })) {
        const auto code = char32_t(std::stoul(digits, nullptr, 16));
        if (code > 0x10FFFF || (code >> 11) == 0x1B)
          fail("a character that does not exist");
        appendUtf8(value, code);
        at += length;
        return;
      }
    }
    if (const std::size_t index = kFrom.find(c); index != kFrom.npos)
      value += kTo[index];
    else if (c != '\n')
      value += {'\\', c};
  }

  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool lineStarts_ = true;
  std::vector<Token> out_;
};

} // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

} // namespace gpt2c::rt::jinja
