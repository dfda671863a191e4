#include "frontend/checkpoint/NamePattern.h"
#include "ir/Error.h"

#include "llvm/ADT/Twine.h"

#include <pcre2.h>

#include <memory>

namespace gpt2c {

static llvm::Error notMatched(llvm::StringRef pattern, const llvm::Twine &why) {
  return makeError(ExitCode::Unsupported, "the pattern '" + pattern.take_front(60) +
                                              "' of the adapter cannot be matched: " + why +
                                              ". A list of names in its place can");
}

static std::string messageOf(int code) {
  PCRE2_UCHAR text[120];
  const int length = pcre2_get_error_message(code, text, sizeof(text));
  return length < 0 ? "error " + std::to_string(code)
                    : std::string(reinterpret_cast<const char *>(text), size_t(length));
}

llvm::Expected<bool> matchesWhole(llvm::StringRef pattern, llvm::StringRef name) {
  constexpr size_t longest = 10'000;
  constexpr uint32_t mostSteps = 100'000, mostKiB = 1024;
  if (pattern.size() > longest)
    return notMatched(pattern, "it is longer than " + llvm::Twine(longest) + " bytes");
  int code = 0;
  PCRE2_SIZE at = 0;
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> compiled(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C, &code, &at,
                    nullptr),
      pcre2_code_free);
  if (!compiled)
    return notMatched(pattern, messageOf(code));
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(compiled.get(), nullptr), pcre2_match_data_free);
  pcre2_set_match_limit(limits.get(), mostSteps);
  pcre2_set_heap_limit(limits.get(), mostKiB);
  const int found = pcre2_match(compiled.get(), reinterpret_cast<PCRE2_SPTR>(name.data()),
                                name.size(), 0, 0, match.get(), limits.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH)
    return notMatched(pattern, messageOf(found));
  return found >= 0;
}

} // namespace gpt2c
