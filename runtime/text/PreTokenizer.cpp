#include "runtime/text/PreTokenizer.h"

#include "runtime/text/Utf8.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

namespace gpt2c::rt {
namespace {

// PCRE2's \s also takes U+180E, and its \p{L} and \p{N} follow the Unicode version it was built for
// (14 in PCRE2 10.40). So the classes are spelled out: White_Space in full, letters and numbers
// with those that Unicode 15, 15.1 and 16 added to version 14.
constexpr char kSpace[] =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F})"
    R"(\x{3000})";
constexpr char kLetter[] =
    R"(\p{L}\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3})"
    R"(\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
    R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF})"
    R"(\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB})"
    R"(\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr char kNumber[] =
    R"(\p{N}\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
    R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3})"
    R"(\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";

std::string pattern() {
  const std::string space = kSpace, letter = kLetter, number = kNumber;
  return "'s|'t|'re|'ve|'m|'ll|'d"
         "| ?[" +
         letter +
         "]+"
         "| ?[" +
         number +
         "]+"
         "| ?[^" +
         space + letter + number +
         "]+"
         "|[" +
         space + "]+(?![^" + space +
         "])"
         "|[" +
         space + "]+";
}

std::string pcre2Message(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char *>(buffer);
}

template <auto Free> struct Deleter {
  void operator()(auto *object) const { Free(object); }
};
using Compiled = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;

/// A copy of `text` with the same length in which every byte outside well-formed UTF-8 is NUL, a
/// character of the symbol class that no other part of the pattern names.
std::string maskInvalid(std::string_view text) {
  std::string masked(text);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = utf8SequenceLength(text.substr(at));
    if (length == 0)
      masked[at] = '\0';
    at += length ? length : 1;
  }
  return masked;
}

} // namespace

struct PreTokenizer::Regex {
  Compiled code;
  MatchContext context;
};

PreTokenizer::PreTokenizer(std::unique_ptr<Regex> regex) : regex_(std::move(regex)) {}
PreTokenizer::PreTokenizer(PreTokenizer &&) noexcept = default;
PreTokenizer &PreTokenizer::operator=(PreTokenizer &&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::create() {
  auto regex = std::make_unique<Regex>();
  const std::string text = pattern();
  int error = 0;
  PCRE2_SIZE offset = 0;
  regex->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                  PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  if (!regex->code)
    return {rt::Code::Unsupported, "PCRE2 rejects the pre-tokenizer's pattern at offset " +
                                       std::to_string(offset) + ": " + pcre2Message(error)};
  regex->context.reset(pcre2_match_context_create(nullptr));
  if (!regex->context)
    return {rt::Code::OutOfMemory, "out of memory for the pre-tokenizer"};
  // No limit on steps: the pattern never backtracks by more than one character.
  pcre2_set_match_limit(regex->context.get(), UINT32_MAX);
  // Without a JIT (or where the system forbids one) pcre2_match interprets.
  (void)pcre2_jit_compile(regex->code.get(), PCRE2_JIT_COMPLETE);
  return PreTokenizer(std::move(regex));
}

void PreTokenizer::split(std::string_view text, std::vector<std::size_t> &ends) const {
  ends.clear();
  std::string masked;
  if (!isUtf8(text))
    text = masked = maskInvalid(text);
  MatchData match(pcre2_match_data_create(1, nullptr));
  for (std::size_t at = 0; at < text.size(); at = ends.back()) {
    int found = match ? pcre2_match(regex_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                    text.size(), at, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK,
                                    match.get(), regex_->context.get())
                      : PCRE2_ERROR_NOMEMORY;
    // Every character is in one of the classes, so only exhausted memory can fail a match; it ends
    // the process as any other failed allocation does.
    if (found < 0) {
      std::fprintf(stderr, "pre-tokenizer: %s\n", pcre2Message(found).c_str());
      std::abort();
    }
    ends.push_back(pcre2_get_ovector_pointer(match.get())[1]);
  }
}

} // namespace gpt2c::rt
