#include "runtime/text/unicode/Unicode.h"

#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <utf8proc.h>
#include <vector>

namespace gpt2c::rt {
namespace {

struct Range {
  char32_t first, last;
};

/// Numbers of Unicode 16 and 17 that utf8proc may not know yet.
constexpr Range kNewNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9},
                                 {0x11DE0, 0x11DE9}, {0x11F50, 0x11F59}, {0x16130, 0x16139},
                                 {0x16D70, 0x16D79}, {0x16FF4, 0x16FF6}, {0x1CCF0, 0x1CCF9},
                                 {0x1D2C0, 0x1D2D3}, {0x1E4F0, 0x1E4F9}, {0x1E5F1, 0x1E5FA}};

/// Alphabetic beyond the categories L and Nl: circled and squared letters.
constexpr Range kOtherAlphabetic[] = {
    {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

template <std::size_t N> bool isIn(const Range (&ranges)[N], char32_t c) {
  return std::ranges::any_of(ranges, [&](const Range &r) { return c >= r.first && c <= r.last; });
}

bool isBetween(utf8proc_category_t category, int first, int last) {
  return category >= first && category <= last;
}

utf8proc_category_t categoryOf(char32_t c) { return utf8proc_category(utf8proc_int32_t(c)); }

int formOptions(NormalForm form) {
  const bool compatible = form == NormalForm::Nfkc || form == NormalForm::Nfkd;
  const bool composed = form == NormalForm::Nfc || form == NormalForm::Nfkc;
  return UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0) |
         (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
}

/// Whether every such text is in the form already.
bool isStable(std::string_view text, NormalForm form) {
  // The first character below which all are composed is U+0300, a lead byte of CC.
  const std::uint8_t limit = form == NormalForm::Nfc ? 0xCC : 0x80;
  return std::ranges::all_of(text, [&](char c) { return std::uint8_t(c) < limit; });
}

/// Collects decomposed characters and puts marks in their canonical order.
class FormWriter {
public:
  FormWriter(std::string &out, int options) : out_(out), options_(options) {}

  void add(char32_t c) {
    utf8proc_int32_t parts[32]; // the longest decomposition has 18
    int boundary = 0;
    const auto count = utf8proc_decompose_char(utf8proc_int32_t(c), parts, std::size(parts),
                                               utf8proc_option_t(options_), &boundary);
    if (count < 0 || count > utf8proc_ssize_t(std::size(parts)))
      characters_.push_back(utf8proc_int32_t(c));
    else
      characters_.insert(characters_.end(), parts, parts + count);
  }

  void flush() {
    auto mark = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
    for (auto at = characters_.begin(); at != characters_.end();) {
      auto begin = std::find_if(at, characters_.end(), mark);
      at = std::find_if_not(begin, characters_.end(), mark);
      std::ranges::stable_sort(begin, at, {}, mark);
    }
    auto count = utf8proc_ssize_t(characters_.size());
    if (options_ & UTF8PROC_COMPOSE)
      count = utf8proc_normalize_utf32(characters_.data(), count, utf8proc_option_t(options_));
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      appendUtf8(out_, char32_t(characters_[i]));
    characters_.clear();
  }

private:
  std::string &out_;
  int options_;
  std::vector<utf8proc_int32_t> characters_;
};

} // namespace

bool isWhiteSpace(char32_t c) {
  if (c < 0x80)
    return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool isNumeric(char32_t c) {
  if (c < 0x80)
    return c >= '0' && c <= '9';
  return isBetween(categoryOf(c), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO) ||
         isIn(kNewNumbers, c);
}

bool isMark(char32_t c) {
  return c >= 0x80 && isBetween(categoryOf(c), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool isPunctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  return isBetween(categoryOf(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool isWord(char32_t c) {
  if (c < 0x80)
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
  const utf8proc_category_t category = categoryOf(c);
  return isBetween(category, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D ||
         isIn(kOtherAlphabetic, c);
}

void appendLower(std::string &out, char32_t c) {
  if (c == 0x130) // the one whose lower case is two characters
    out += "i\xCC\x87";
  else
    appendUtf8(out, char32_t(utf8proc_tolower(utf8proc_int32_t(c))));
}

void appendUpper(std::string &out, char32_t c) {
  if (c == 0xDF)
    out += "SS";
  else
    appendUtf8(out, char32_t(utf8proc_toupper(utf8proc_int32_t(c))));
}

bool isLetter(char32_t c) {
  if (c < 0x80)
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  return isBetween(categoryOf(c), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}

std::string normalForm(std::string_view text, NormalForm form) {
  if (isStable(text, form))
    return std::string(text);
  std::string out;
  FormWriter writer(out, formOptions(form));
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = codePointAt(text, at);
    if (c.valid) {
      writer.add(c.value);
    } else {
      writer.flush();
      out.push_back(text[at]);
    }
    at += c.length;
  }
  writer.flush();
  return out;
}

std::size_t graphemeLength(std::string_view text) {
  CodePoint last = codePointAt(text, 0);
  utf8proc_int32_t state = 0;
  std::size_t at = last.length;
  while (at < text.size()) {
    const CodePoint next = codePointAt(text, at);
    if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(last.value), utf8proc_int32_t(next.value),
                                         &state))
      break;
    last = next;
    at += next.length;
  }
  return at;
}

} // namespace gpt2c::rt
