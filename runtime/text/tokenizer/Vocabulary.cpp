#include "runtime/text/tokenizer/Vocabulary.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstddef>

namespace gpt2c::rt {
namespace {

bool isFindable(const TokenizerModel::Token &token) {
  return !token.text.empty() && !(token.flags & TokenizerModel::Token::Unreachable);
}

} // namespace

Vocabulary::Vocabulary(const std::vector<TokenizerModel::Token> &tokens) : tokens_(&tokens) {
  const auto count = std::size_t(std::ranges::count_if(tokens, isFindable));
  slots_.resize(std::bit_ceil(2 * count + 2));
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!isFindable(tokens[id]))
      continue;
    const std::uint64_t hash = XXH3_64bits(tokens[id].text.data(), tokens[id].text.size());
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].token >= 0)
      at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {std::uint32_t(hash >> 32), std::int32_t(id)};
  }
}

std::int32_t Vocabulary::find(std::string_view text) const {
  const std::uint64_t hash = XXH3_64bits(text.data(), text.size());
  for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot &slot = slots_[at];
    if (slot.token < 0 ||
        (slot.tag == std::uint32_t(hash >> 32) && (*tokens_)[std::size_t(slot.token)].text == text))
      return slot.token;
  }
}

} // namespace gpt2c::rt
