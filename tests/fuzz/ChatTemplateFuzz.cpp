// A template and, behind a NUL, a context as JSON: whatever they are, rendering ends, with a text
// or an error that says something, and twice the same.
#include "runtime/text/ChatTemplate.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace gpt2c::rt;

namespace {

constexpr std::string_view kSeed =
    "{%- set ns = namespace(n=0) %}{% macro f(a, b='x') %}{{ a ~ b | upper }}{% endmacro %}\n"
    "  {% for m in messages if m.role != 'tool' %}{% set ns.n = ns.n + loop.index0 % 2 %}\n"
    "{{- f(m['content'] | trim, b=m.role[1:]) }}{% if loop.last and not tools is defined %}"
    "{% break %}{% elif m.content is string %}{{ m.content.split('</t>')[-1].lstrip('\\n') }}"
    "{% endif %}{% else %}{{ raise_exception('none') }}{% endfor %}{{ messages | tojson(indent=2) "
    "}}"
    "{% set t %}{{ [1, 2.5, none][::-1] | map('string') | join(', ') }}{% endset %}{{ t }}"
    "{{ {'a': 1} | dictsort }}{{ messages | selectattr('role', 'eq', 'user') | list | length }}"
    "{# c #}{% raw %}{{{% endraw %}{% generation %}g{% endgeneration %}{{ 'a' if 1 < 2 else 'b' }}";
constexpr std::string_view kContext =
    R"({"messages": [{"role": "user", "content": " é "}, {"role": "tool", "content": null}]})";

void require(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "property violated: %s\n", what);
    std::abort();
  }
}

std::string outcome(const ChatTemplate &chat, std::string_view context) {
  Result<std::string> text = chat.render(context, 0);
  require(text || !text.status().message().empty(), "an error has a message");
  return text ? *text : text.status().message();
}

} // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size, std::size_t maxSize);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size,
                                               std::size_t maxSize, unsigned seed) {
  if (seed % 16 == 0 && maxSize >= kSeed.size() + 1 + kContext.size()) {
    size = kSeed.copy(reinterpret_cast<char *>(data), kSeed.size());
    data[size++] = 0;
    size += kContext.copy(reinterpret_cast<char *>(data) + size, kContext.size());
  }
  return LLVMFuzzerMutate(data, size, maxSize);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  const std::size_t end = text.find('\0');
  const std::string_view context = end == text.npos ? kContext : text.substr(end + 1);
  Result<ChatTemplate> chat = ChatTemplate::parse(text.substr(0, end));
  if (chat)
    require(outcome(*chat, context) == outcome(*chat, context), "rendering twice is the same");
  return 0;
}
