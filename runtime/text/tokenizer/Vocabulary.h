// Finds tokens by their texts.
#pragma once

#include "runtime/text/tokenizer/TokenizerModel.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// The tokens that words can have, by text. Points into the model.
class Vocabulary {
public:
  explicit Vocabulary(const std::vector<TokenizerModel::Token> &tokens);

  /// The token with this text, -1: there is none.
  std::int32_t find(std::string_view text) const;

private:
  struct Slot {
    std::uint32_t tag = 0; // upper half of the hash
    std::int32_t token = -1;
  };
  const std::vector<TokenizerModel::Token> *tokens_;
  std::vector<Slot> slots_; // open addressing, linear probing, at most half full
};

} // namespace gpt2c::rt
