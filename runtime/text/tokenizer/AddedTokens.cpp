#include "runtime/text/tokenizer/AddedTokens.h"

#include "runtime/text/unicode/Unicode.h"
#include "runtime/text/unicode/Utf8.h"

#include <algorithm>

namespace gpt2c::rt {
namespace {

using Added = TokenizerModel::AddedToken;

/// The character that ends at `end` > 0.
CodePoint characterBefore(std::string_view text, std::size_t end) {
  for (std::size_t length = 1; length <= 4 && length <= end; ++length)
    if (const CodePoint c = codePointAt(text, end - length); c.valid && c.length == length)
      return c;
  return {0xFFFD, 1, false};
}

bool standsAlone(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin == 0 || !isWord(characterBefore(text, begin).value)) &&
         (end == text.size() || !isWord(codePointAt(text, end).value));
}

std::size_t spaceBefore(std::string_view text, std::size_t begin, std::size_t least) {
  while (begin > least) {
    const CodePoint c = characterBefore(text, begin);
    if (!isWhiteSpace(c.value) || begin - c.length < least)
      break;
    begin -= c.length;
  }
  return begin;
}

std::size_t spaceBehind(std::string_view text, std::size_t end) {
  while (end < text.size()) {
    const CodePoint c = codePointAt(text, end);
    if (!isWhiteSpace(c.value))
      break;
    end += c.length;
  }
  return end;
}

} // namespace

std::pair<std::size_t, std::int32_t> AddedTokens::longest(std::string_view text,
                                                          std::size_t at) const {
  std::pair<std::size_t, std::int32_t> best = {0, -1};
  Trie::Node node = Trie::kRoot;
  for (std::size_t i = at; i < text.size(); ++i) {
    node = trie_.next(node, std::uint8_t(text[i]));
    if (node == Trie::kNone)
      break;
    if (const std::int32_t index = trie_.value(node); index >= 0)
      best = {i + 1 - at, index};
  }
  return best;
}

void AddedTokens::cut(std::string_view text, bool allowSpecial, std::vector<Stretch> &out) const {
  std::size_t done = 0; // where the last stretch ended
  for (std::size_t at = 0; at < text.size() && !trie_.empty();) {
    auto [length, index] = longest(text, at);
    if (length == 0) {
      ++at;
      continue;
    }
    const Added &token = (*tokens_)[std::size_t(index)];
    std::size_t begin = at, end = at + length;
    at = end;
    if ((!allowSpecial && (token.flags & Added::Special)) ||
        ((token.flags & Added::SingleWord) && !standsAlone(text, begin, end)))
      continue;
    if (token.flags & Added::LeftSpace)
      begin = std::max(spaceBefore(text, begin, done), done);
    if (token.flags & Added::RightSpace)
      end = spaceBehind(text, end);
    if (begin > done)
      out.push_back({done, begin, -1});
    if (end > begin) // the token before has taken it for its white space
      out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size())
    out.push_back({done, text.size(), -1});
}

} // namespace gpt2c::rt
