#include "runtime/text/unicode/RegexSyntax.h"

#include "runtime/text/unicode/CharacterClasses.h"
#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <optional>
#include <vector>

namespace gpt2c::rt {
namespace {

constexpr std::size_t kMaxDepth = 200;

bool isDigit(char c) { return c >= '0' && c <= '9'; }

std::string literal(char32_t c) {
  if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'))
    return std::string(1, char(c));
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), "\\x{%X}", unsigned(c));
  return buffer;
}

/// A class under construction: a body of PCRE2's and, beside it, expressions of one character.
struct ClassParts {
  std::string body;
  std::vector<std::string> others;

  std::string expression() const {
    if (others.empty())
      return body.empty() ? "(?!)" : "[" + body + "]";
    std::string all = body.empty() ? "" : "[" + body + "]";
    for (const std::string &other : others)
      all += (all.empty() ? "" : "|") + other;
    return "(?:" + all + ")";
  }
};

class Translator {
public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size() && status_.ok())
      step();
    if (status_.ok() && !groups_.empty())
      fail("a group that is not closed");
    out_.append(atTop_, ')');
    if (!status_.ok())
      return status_;
    return std::move(out_);
  }

private:
  struct Group {
    std::size_t begin; // of its text in out_
    int options = 0;   // groups that options in its middle have opened
  };

  void fail(const std::string &what) {
    if (status_.ok())
      status_ = Status(Code::Unsupported, "the regular expression has " + what + " at character " +
                                              std::to_string(at_));
  }

  bool has(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!has(text))
      return false;
    at_ += text.size();
    return true;
  }
  char32_t takeCharacter() {
    const CodePoint c = codePointAt(in_, at_);
    at_ += c.length;
    return c.value;
  }

  void atom(const std::string &text) {
    atom_ = out_.size();
    repeated_ = false;
    out_ += text;
  }
  void wrapAtom() {
    out_.insert(atom_, "(?:");
    out_ += ')';
    repeated_ = false;
  }

  void step() {
    const char c = in_[at_];
    if (c == '\\')
      escape();
    else if (c == '[')
      atom(parseClass());
    else if (c == '(')
      openGroup();
    else if (c == ')')
      closeGroup();
    else if (c == '*' || c == '+' || c == '?' || (c == '{' && interval()))
      repeat();
    else if (c == '|' || c == '^' || c == '$') {
      out_ += c;
      atom_ = std::string::npos;
      ++at_;
    } else if (c == '.') {
      atom(".");
      ++at_;
    } else {
      atom(literal(takeCharacter()));
    }
  }

  /// The lengths of {n}, {n,}, {,m}, {n,m} at at_, in PCRE2's form; none of them: a literal.
  std::optional<std::string> interval() const {
    std::size_t end = at_ + 1;
    std::string low, high;
    while (end < in_.size() && isDigit(in_[end]))
      low += in_[end++];
    const bool comma = end < in_.size() && in_[end] == ',';
    if (comma)
      ++end;
    while (comma && end < in_.size() && isDigit(in_[end]))
      high += in_[end++];
    if (end == in_.size() || in_[end] != '}' || (low.empty() && high.empty()))
      return std::nullopt;
    return "{" + (low.empty() ? "0" : low) + (comma ? "," : "") + high + "}";
  }

  void repeat() {
    if (atom_ == std::string::npos)
      return fail("a repetition of nothing");
    if (repeated_)
      wrapAtom();
    if (in_[at_] != '{') {
      out_ += in_[at_++];
      if (at_ < in_.size() && (in_[at_] == '?' || in_[at_] == '+'))
        out_ += in_[at_++];
    } else {
      const std::string text = *interval();
      at_ = in_.find('}', at_) + 1;
      out_ += text;
      // Behind {n} and {n,m} a + repeats once more, and so does a ? behind {n}.
      if (text.find(',') != text.npos && take("?"))
        out_ += '?';
    }
    repeated_ = true;
  }

  void openGroup() {
    if (groups_.size() > kMaxDepth)
      return fail("groups that are nested too deeply");
    const std::size_t begin = out_.size();
    atom_ = std::string::npos;
    if (take("(?#")) {
      at_ = std::min(in_.find(')', at_), in_.size() - 1) + 1;
      return;
    }
    for (const char *head : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
      if (take(head)) {
        out_ += head;
        groups_.push_back({begin});
        return;
      }
    if (has("(?<") || has("(?'")) {
      const char close = in_[at_ + 2] == '<' ? '>' : '\'';
      const std::size_t end = in_.find(close, at_ + 3);
      if (end == in_.npos)
        return fail("a name that is not closed");
      out_ += in_.substr(at_, end + 1 - at_);
      at_ = end + 1;
    } else if (take("(?")) {
      return options(begin);
    } else {
      ++at_;
      out_ += '(';
    }
    groups_.push_back({begin});
  }

  /// Behind "(?": i, m, x with or without "-", then ":" or ")".
  void options(std::size_t begin) {
    std::string flags;
    for (; at_ < in_.size() && in_[at_] != ':' && in_[at_] != ')'; ++at_) {
      const char flag = in_[at_];
      if (flag != 'i' && flag != 'm' && flag != '-')
        return fail("an option that is not known");
      flags += flag == 'm' ? 's' : flag; // Ruby's m: "." matches a line end too
    }
    if (at_ == in_.size())
      return fail("a group that is not closed");
    out_ += "(?" + flags + ":";
    if (in_[at_++] == ':') {
      groups_.push_back({begin});
    } else if (groups_.empty()) {
      ++atTop_; // up to the end of the pattern, with all its alternatives
    } else {
      ++groups_.back().options;
    }
  }

  void closeGroup() {
    if (groups_.empty())
      return fail("a ) without (");
    const Group group = groups_.back();
    groups_.pop_back();
    out_.append(group.options + 1, ')');
    ++at_;
    atom_ = group.begin;
    repeated_ = false;
  }

  /// A class that \d, \s, \w, \h, \p name at at_ (behind the backslash), and whether it is negated.
  struct Named {
    std::string body;
    bool negated;
  };
  std::optional<Named> namedClass() {
    const char c = in_[at_];
    const bool negated = c >= 'A' && c <= 'Z';
    switch (c | 0x20) {
    case 'd':
      return ++at_, Named{classes::digit(), negated};
    case 's':
      return ++at_, Named{classes::space(), negated};
    case 'w':
      return ++at_, Named{classes::word(), negated};
    case 'h':
      return ++at_, Named{classes::hexDigit(), negated};
    case 'p':
      break;
    default:
      return std::nullopt;
    }
    if (at_ + 1 >= in_.size() || in_[at_ + 1] != '{')
      return std::nullopt;
    const std::size_t end = in_.find('}', at_);
    if (end == in_.npos)
      return std::nullopt;
    std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
    const bool inverse = name.starts_with('^');
    auto body = classes::property(name.substr(inverse));
    if (!body) {
      fail("the property " + std::string(name));
      return Named{};
    }
    at_ = end + 1;
    return Named{*body, negated != inverse};
  }

  /// The character that the escape at at_ (behind the backslash) stands for.
  std::optional<char32_t> escapedCharacter() {
    static constexpr std::string_view kFrom = "tnrfaev", kTo = "\t\n\r\f\a\x1B\v";
    const char c = in_[at_];
    if (auto index = kFrom.find(c); index != kFrom.npos)
      return ++at_, char32_t(kTo[index]);
    if (c == 'x' || c == 'u') {
      ++at_;
      const bool braces = c == 'x' && take("{");
      const std::size_t most = braces ? 8 : c == 'x' ? 2 : 4;
      char32_t value = 0;
      std::size_t count = 0;
      for (; at_ < in_.size() && count < most && std::isxdigit(std::uint8_t(in_[at_])); ++count)
        value =
            value << 4 | (isDigit(in_[at_]) ? in_[at_++] - '0' : (in_[at_++] | 0x20) - 'a' + 10);
      if (!count || (braces && !take("}")) || value > 0x10FFFF || (value >> 11) == 0x1B)
        fail("a character that does not exist");
      return value;
    }
    if (c == '0') {
      char32_t value = 0;
      for (int i = 0; i < 3 && at_ < in_.size() && in_[at_] >= '0' && in_[at_] <= '7'; ++i)
        value = value * 8 + (in_[at_++] - '0');
      return value;
    }
    if (!std::isalnum(std::uint8_t(c)))
      return takeCharacter();
    return std::nullopt;
  }

  void escape() {
    if (++at_ == in_.size())
      return fail("a backslash at its end");
    const char c = in_[at_];
    // By itself \w has ², ³, ¹, ¼, ½ and ¾ besides, which it has not in a class.
    const std::string word = classes::word() + "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
    if ((c | 0x20) == 'w')
      return ++at_, atom((c == 'w' ? "[" : "[^") + word + "]");
    if (auto named = namedClass())
      return atom((named->negated ? "[^" : "[") + named->body + "]");
    if (auto character = escapedCharacter())
      return atom(literal(*character));
    const std::string w = "[" + word + "]";
    ++at_;
    if (c == 'b')
      atom("(?:(?<=" + w + ")(?!" + w + ")|(?<!" + w + ")(?=" + w + "))");
    else if (c == 'B')
      atom("(?:(?<=" + w + ")(?=" + w + ")|(?<!" + w + ")(?!" + w + "))");
    else if (c == 'O')
      atom("(?s:.)");
    else if (std::string_view("AzZGRXKN").find(c) != std::string_view::npos || isDigit(c))
      atom(std::string("\\") + c);
    else if (std::string_view("kgyYMCc").find(c) != std::string_view::npos)
      fail(std::string("\\") + c);
    else
      atom(literal(char32_t(c)));
  }

  void addNamed(ClassParts &parts, const Named &named) {
    if (named.negated)
      parts.others.push_back("[^" + named.body + "]");
    else
      parts.body += named.body;
  }

  /// [:name:] or [:^name:] at at_.
  bool posixClass(ClassParts &parts) {
    const std::size_t end = has("[:") ? in_.find(":]", at_ + 2) : in_.npos;
    if (end == in_.npos)
      return false;
    std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
    const bool negated = name.starts_with('^');
    for (const char c : name.substr(negated))
      if (c < 'a' || c > 'z')
        return false;
    auto body = classes::property(name.substr(negated));
    if (!body)
      return false;
    addNamed(parts, {*body, negated});
    at_ = end + 2;
    return true;
  }

  /// One character of a class, or a class that an escape names (then none).
  std::optional<char32_t> classCharacter(ClassParts &parts) {
    if (in_[at_] != '\\')
      return takeCharacter();
    if (++at_ == in_.size()) {
      fail("a backslash at its end");
      return std::nullopt;
    }
    if (auto named = namedClass()) {
      addNamed(parts, *named);
      return std::nullopt;
    }
    if (take("b"))
      return U'\b';
    if (auto character = escapedCharacter())
      return character;
    return takeCharacter();
  }

  void classItem(ClassParts &parts) {
    if (posixClass(parts))
      return;
    if (in_[at_] == '[') {
      parts.others.push_back(parseClass());
      return;
    }
    auto first = classCharacter(parts);
    if (!first)
      return;
    if (!has("-") || at_ + 1 >= in_.size() || in_[at_ + 1] == ']' || in_[at_ + 1] == '[') {
      parts.body += literal(*first);
      return;
    }
    ++at_;
    auto last = classCharacter(parts);
    if (!last) // [a-\d]: three members
      parts.body += literal(*first) + literal(U'-');
    else if (*last < *first)
      fail("a range that is empty");
    else
      parts.body += literal(*first) + "-" + literal(*last);
  }

  /// The class at at_ as an expression of one character.
  std::string parseClass() {
    if (++depth_ > kMaxDepth) {
      fail("classes that are nested too deeply");
      return {};
    }
    ++at_;
    const bool negated = take("^");
    std::vector<ClassParts> operands(1);
    for (bool first = true; status_.ok(); first = false) {
      if (at_ >= in_.size()) {
        fail("a class that is not closed");
        break;
      }
      if (in_[at_] == ']' && !first)
        break;
      if (take("&&"))
        operands.emplace_back();
      else
        classItem(operands.back());
    }
    ++at_;
    --depth_;
    if (operands.size() == 1 && operands[0].others.empty() && !operands[0].body.empty())
      return (negated ? "[^" : "[") + operands[0].body + "]";
    std::string all = operands.back().expression();
    for (std::size_t i = 0; i + 1 < operands.size(); ++i)
      all.insert(0, "(?=" + operands[i].expression() + ")");
    return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = std::string::npos; // where the last atom begins in out_
  bool repeated_ = false;                // it has a repetition already
  std::vector<Group> groups_;
  int atTop_ = 0;
  std::size_t depth_ = 0;
  Status status_;
};

} // namespace

Result<std::string> pcre2Syntax(std::string_view pattern) {
  if (!isUtf8(pattern))
    return {Code::Unsupported, "the regular expression is no UTF-8"};
  return Translator(pattern).run();
}

} // namespace gpt2c::rt
