#include "runtime/text/tokenizer/WordEncoder.h"

#include "runtime/text/unicode/Utf8.h"

#include <algorithm>

namespace gpt2c::rt {
namespace {

std::vector<std::pair<std::string_view, std::int32_t>>
textsOf(const std::vector<TokenizerModel::Token> &tokens) {
  std::vector<std::pair<std::string_view, std::int32_t>> texts;
  texts.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (!(tokens[id].flags & TokenizerModel::Token::Unreachable))
      texts.emplace_back(tokens[id].text, std::int32_t(id));
  return texts;
}

/// The byte of "<0x0A>", -1: another text.
int namedByte(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>')
    return -1;
  const std::size_t high = kDigits.find(text[3]), low = kDigits.find(text[4]);
  return high == kDigits.npos || low == kDigits.npos ? -1 : int(high * 16 + low);
}

} // namespace

WordEncoder::WordEncoder(const TokenizerModel &model)
    : model_(model), vocabulary_(model.tokens), bpe_(model.merges) {
  if (model.kind == TokenizerModel::Kind::Unigram)
    unigram_.emplace(textsOf(model.tokens), model.scores, model.unknown);
  byteTokens_.fill(-1);
  for (int byte = 0; model.bytes && byte < 256; ++byte)
    byteTokens_[std::size_t(byte)] = vocabulary_.find(std::string(1, char(byte)));
  for (std::size_t id = 0; !model.bytes && id < model.tokens.size(); ++id)
    if (const int byte = namedByte(model.tokens[id].text); byte >= 0)
      byteTokens_[std::size_t(byte)] = std::int32_t(id);
  for (int c = 0; c < 128; ++c)
    asciiTokens_[std::size_t(c)] = vocabulary_.find(std::string(1, char(c)));
}

bool WordEncoder::knowsAllBytes() const { return !std::ranges::count(byteTokens_, -1); }

void WordEncoder::encode(std::string_view word, Scratch &scratch,
                         std::vector<std::int32_t> &tokens) const {
  const std::int32_t token = vocabulary_.find(word);
  if (token >= 0 && (model_.tokens[std::size_t(token)].flags & TokenizerModel::Token::Whole))
    tokens.push_back(token);
  else
    encodeAnew(word, scratch, tokens);
}

void WordEncoder::encodeAnew(std::string_view word, Scratch &scratch,
                             std::vector<std::int32_t> &tokens) const {
  if (unigram_)
    return encodeUnigram(word, scratch, tokens);
  scratch.bpe.begin();
  if (model_.bytes)
    addBytes(word, scratch.bpe);
  else
    addCharacters(word, scratch);
  bpe_.encode(scratch.bpe, tokens);
}

void WordEncoder::addBytes(std::string_view word, Bpe::Scratch &scratch) const {
  bool unknown = false; // one waits to be added
  for (const char byte : word) {
    const std::int32_t token = byteTokens_[std::uint8_t(byte)];
    const bool ends = unknown && (token >= 0 || !model_.fuseUnknown);
    if (ends)
      scratch.add(model_.unknown);
    unknown = token < 0 && model_.unknown >= 0;
    if (token >= 0)
      scratch.add(token);
  }
  if (unknown)
    scratch.add(model_.unknown);
}

std::int32_t WordEncoder::characterToken(std::string_view character) const {
  return character.size() == 1 && std::uint8_t(character[0]) < 0x80
             ? asciiTokens_[std::uint8_t(character[0])]
             : vocabulary_.find(character);
}

bool WordEncoder::fallsBack(std::string_view text) const {
  return model_.byteFallback &&
         std::ranges::all_of(text, [&](char byte) { return byteTokens_[std::uint8_t(byte)] >= 0; });
}

bool WordEncoder::addFallback(std::string_view text, Bpe::Scratch &scratch) const {
  if (!fallsBack(text))
    return false;
  for (const char byte : text)
    scratch.add(byteTokens_[std::uint8_t(byte)]);
  return true;
}

void WordEncoder::addCharacters(std::string_view word, Scratch &scratch) const {
  const bool plain = model_.continuingPrefix.empty() && model_.endSuffix.empty();
  bool unknown = false; // one waits to be added
  for (std::size_t at = 0; at < word.size();) {
    std::string_view character = word.substr(at, codePointAt(word, at).length);
    const bool first = at == 0;
    at += character.size();
    if (!plain) {
      scratch.text = first ? "" : model_.continuingPrefix;
      scratch.text += character;
      scratch.text += at == word.size() ? model_.endSuffix : "";
      character = scratch.text;
    }
    if (const std::int32_t token = characterToken(character); token >= 0) {
      if (unknown)
        scratch.bpe.add(model_.unknown);
      unknown = false;
      scratch.bpe.add(token);
    } else if (!addFallback(character, scratch.bpe) && model_.unknown >= 0) {
      if (unknown && !model_.fuseUnknown)
        scratch.bpe.add(model_.unknown);
      unknown = true;
    }
  }
  if (unknown)
    scratch.bpe.add(model_.unknown);
}

void WordEncoder::encodeUnigram(std::string_view word, Scratch &scratch,
                                std::vector<std::int32_t> &tokens) const {
  unigram_->encode(word, model_.fuseUnknown, scratch.unigram, scratch.pieces);
  for (const Unigram::Piece &piece : scratch.pieces) {
    if (piece.token >= 0) {
      tokens.push_back(piece.token);
      continue;
    }
    std::string_view text = word.substr(piece.begin, piece.end - piece.begin);
    if (const std::int32_t token = unigram_->find(text); token >= 0)
      tokens.push_back(token);
    else if (fallsBack(text))
      for (const char byte : text)
        tokens.push_back(byteTokens_[std::uint8_t(byte)]);
    else if (model_.unknown >= 0)
      tokens.push_back(model_.unknown);
  }
}

} // namespace gpt2c::rt
