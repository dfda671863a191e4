#include "runtime/text/Tokenizer.h"

#include "runtime/text/Bpe.h"
#include "runtime/text/PreTokenizer.h"
#include "runtime/text/TokenizerModel.h"
#include "runtime/text/Utf8.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <utility>

namespace gpt2c::rt {
namespace {

/// Finds words that are one token. Most words of a text are, and need no merging then.
class WordTable {
public:
  explicit WordTable(const std::vector<TokenizerModel::Token> &tokens) : tokens_(&tokens) {
    std::size_t count = std::ranges::count_if(
        tokens, [](const auto &token) { return token.flags & TokenizerModel::Whole; });
    slots_.resize(std::bit_ceil(2 * count + 2), Slot{0, -1});
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (!(tokens[id].flags & TokenizerModel::Whole))
        continue;
      std::uint64_t hash = XXH3_64bits(tokens[id].bytes.data(), tokens[id].bytes.size());
      std::size_t at = hash & (slots_.size() - 1);
      while (slots_[at].token >= 0)
        at = (at + 1) & (slots_.size() - 1);
      slots_[at] = {std::uint32_t(hash >> 32), std::int32_t(id)};
    }
  }

  /// The word's token, or -1.
  std::int32_t find(std::string_view word) const {
    std::uint64_t hash = XXH3_64bits(word.data(), word.size());
    for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      const Slot &slot = slots_[at];
      if (slot.token < 0 ||
          (slot.tag == std::uint32_t(hash >> 32) && (*tokens_)[slot.token].bytes == word))
        return slot.token;
    }
  }

private:
  struct Slot {
    std::uint32_t tag; // upper half of the hash
    std::int32_t token;
  };
  const std::vector<TokenizerModel::Token> *tokens_;
  std::vector<Slot> slots_; // open addressing, linear probing, at most half full
};

/// Finds added tokens in text: the leftmost, and of those that begin there the longest.
class AddedTokens {
public:
  struct Match {
    std::size_t position, length;
    std::int32_t token;
  };

  explicit AddedTokens(const std::vector<TokenizerModel::Token> &tokens) {
    for (std::size_t id = 0; id < tokens.size(); ++id)
      if (tokens[id].flags & TokenizerModel::Added)
        entries_[std::uint8_t(tokens[id].bytes[0])].push_back(
            {tokens[id].bytes, std::int32_t(id), bool(tokens[id].flags & TokenizerModel::Special)});
    for (auto &entries : entries_)
      std::ranges::sort(entries, [](const Entry &a, const Entry &b) {
        return std::pair(b.bytes.size(), a.token) < std::pair(a.bytes.size(), b.token);
      });
  }

  /// The first match at or after `from`; without one, a match of length 0 at the end of the text.
  Match find(std::string_view text, std::size_t from, bool allowSpecial) const {
    for (std::size_t at = from; at < text.size(); ++at)
      for (const Entry &entry : entries_[std::uint8_t(text[at])])
        if ((allowSpecial || !entry.special) && text.substr(at).starts_with(entry.bytes))
          return {at, entry.bytes.size(), entry.token};
    return {text.size(), 0, -1};
  }

private:
  struct Entry {
    std::string bytes;
    std::int32_t token;
    bool special;
  };
  std::array<std::vector<Entry>, 256> entries_; // by first byte, the longest first
};

} // namespace

struct Tokenizer::Impl {
  Impl(TokenizerModel source, PreTokenizer cutter)
      : model(std::move(source)), preTokenizer(std::move(cutter)),
        bpe(model.byteTokens, model.merges), words(model.tokens), added(model.tokens) {}
  Impl(const Impl &) = delete;

  static Result<Tokenizer> create(Result<TokenizerModel> model, bool flagWholeTokens);

  TokenizerModel model;
  PreTokenizer preTokenizer;
  Bpe bpe;
  WordTable words; // points into model
  AddedTokens added;
};

namespace {

/// Sets Flags::Whole. Only what byte-pair encoding itself gives may be looked up: merge lists may
/// leave tokens out of reach, and special tokens always are.
void setWholeFlags(TokenizerModel &model) {
  Bpe bpe(model.byteTokens, model.merges);
  Bpe::Scratch scratch;
  std::vector<std::int32_t> encoded;
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    encoded.clear();
    bpe.encode(model.tokens[id].bytes, scratch, encoded);
    if (encoded.size() == 1 && encoded[0] == std::int32_t(id))
      model.tokens[id].flags |= TokenizerModel::Whole;
  }
}

} // namespace

Result<Tokenizer> Tokenizer::Impl::create(Result<TokenizerModel> model, bool flagWholeTokens) {
  if (!model)
    return model.status();
  Result<PreTokenizer> preTokenizer = PreTokenizer::create();
  if (!preTokenizer)
    return preTokenizer.status();
  if (flagWholeTokens)
    setWholeFlags(*model);
  return Tokenizer(std::make_unique<const Impl>(model.take(), preTokenizer.take()));
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer &&) noexcept = default;
Tokenizer &Tokenizer::operator=(Tokenizer &&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::fromFiles(const std::string &path) {
  return Impl::create(TokenizerModel::read(path), /*flagWholeTokens=*/true);
}

Result<Tokenizer> Tokenizer::fromBytes(std::span<const std::uint8_t> blob) {
  return Impl::create(TokenizerModel::parse(blob), /*flagWholeTokens=*/false);
}

std::string Tokenizer::serialize() const { return impl_->model.serialize(); }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;
  Bpe::Scratch scratch;
  for (std::size_t from = 0; from < text.size();) {
    AddedTokens::Match match = impl_->added.find(text, from, options.allowSpecial);
    std::string_view plain = text.substr(from, match.position - from);
    impl_->preTokenizer.split(plain, ends);
    std::size_t begin = 0;
    for (std::size_t end : ends) {
      std::string_view word = plain.substr(begin, end - begin);
      if (std::int32_t token = impl_->words.find(word); token >= 0)
        tokens.push_back(token);
      else
        impl_->bpe.encode(word, scratch, tokens);
      begin = end;
    }
    if (match.length > 0)
      tokens.push_back(match.token);
    from = match.position + match.length;
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (std::int32_t token : tokens)
    text += tokenBytes(token);
  return text;
}

std::string_view Tokenizer::tokenBytes(std::int32_t token) const {
  const auto &tokens = impl_->model.tokens;
  return token >= 0 && std::size_t(token) < tokens.size() ? tokens[token].bytes
                                                          : std::string_view();
}

std::int32_t Tokenizer::vocabSize() const { return std::int32_t(impl_->model.tokens.size()); }

std::int32_t Tokenizer::eosToken() const { return impl_->model.eos; }

std::string StreamDecoder::push(std::int32_t token) {
  held_ += tokenizer_->tokenBytes(token);
  std::size_t complete = held_.size() - utf8IncompleteTail(held_);
  std::string ready = held_.substr(0, complete);
  held_.erase(0, complete);
  return ready;
}

std::string StreamDecoder::finish() { return std::exchange(held_, {}); }

} // namespace gpt2c::rt
