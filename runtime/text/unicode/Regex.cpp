#include "runtime/text/unicode/Regex.h"

#include "runtime/text/unicode/RegexSyntax.h"
#include "runtime/text/unicode/Utf8.h"

#include <cstdint>
#include <string>
#include <utility>

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

namespace gpt2c::rt {
namespace {

/// Of one match: steps, and KiB of memory for what it may come back to.
constexpr std::uint32_t kMatchLimit = 20'000'000, kHeapLimit = 256 << 10;
constexpr std::size_t kSmallestStack = 32 << 10, kLargestStack = 64 << 20;
constexpr std::size_t kLongestPattern = 1 << 16;

std::string pcre2Message(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char *>(buffer);
}

template <auto Free> struct Deleter {
  void operator()(auto *object) const { Free(object); }
};
template <typename T, auto Free> using Owned = std::unique_ptr<T, Deleter<Free>>;

} // namespace

struct Regex::Code {
  Owned<pcre2_code, pcre2_code_free> code;
  bool jit = false;
};

struct Regex::Scratch::State {
  Owned<pcre2_match_data, pcre2_match_data_free> match{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_match_context, pcre2_match_context_free> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack;
};

Regex::Scratch::Scratch() : state_(std::make_unique<State>()) {
  if (state_->context) {
    pcre2_set_match_limit(state_->context.get(), kMatchLimit);
    pcre2_set_heap_limit(state_->context.get(), kHeapLimit);
  }
}
Regex::Scratch::~Scratch() = default;

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex &&) noexcept = default;
Regex &Regex::operator=(Regex &&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  using rt::Code;
  if (pattern.size() > kLongestPattern)
    return {Code::Unsupported, "a regular expression is longer than 64 KiB"};
  Result<std::string> text = pcre2Syntax(pattern);
  if (!text)
    return text.status();
  auto made = std::make_unique<Regex::Code>();
  Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  if (context)
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  made->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text->data()), text->size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                 &error, &offset, context.get()));
  if (!made->code)
    return {Code::Unsupported,
            "the regular expression " + std::string(pattern) + ": " + pcre2Message(error)};
  // Without a JIT (or where the system forbids one) pcre2_match interprets.
  made->jit = pcre2_jit_compile(made->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(made));
}

std::optional<TextSpan> Regex::find(std::string_view text, std::size_t from,
                                    Scratch &scratch) const {
  Scratch::State &s = *scratch.state_;
  if (!s.match || !s.context)
    return std::nullopt;
  auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  auto run = [&] {
    return code_->jit ? pcre2_jit_match(code_->code.get(), subject, text.size(), from,
                                        PCRE2_NO_UTF_CHECK, s.match.get(), s.context.get())
                      : pcre2_match(code_->code.get(), subject, text.size(), from,
                                    PCRE2_NO_UTF_CHECK, s.match.get(), s.context.get());
  };
  int found = run();
  if (found == PCRE2_ERROR_JIT_STACKLIMIT && !s.stack) {
    s.stack.reset(pcre2_jit_stack_create(kSmallestStack, kLargestStack, nullptr));
    if (s.stack)
      pcre2_jit_stack_assign(s.context.get(), nullptr, s.stack.get());
    found = run();
  }
  if (found < 0)
    return std::nullopt;
  const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s.match.get());
  // \K in a lookahead may end a match before its beginning.
  if (range[0] < from || range[1] < range[0])
    return std::nullopt;
  return TextSpan{range[0], range[1]};
}

void Regex::findAll(std::string_view text, Scratch &scratch, std::vector<TextSpan> &matches) const {
  matches.clear();
  for (std::size_t from = 0; from <= text.size();) {
    auto match = find(text, from, scratch);
    if (!match)
      return;
    if (match->begin == match->end && !matches.empty() && matches.back().end == match->end) {
      if (from == text.size())
        return;
      from += codePointAt(text, from).length;
      continue;
    }
    matches.push_back(*match);
    from = match->end;
  }
}

} // namespace gpt2c::rt
