#include "runtime/text/tokenizer/Tokenizer.h"

#include "runtime/text/tokenizer/AddedTokens.h"
#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Decoder.h"
#include "runtime/text/tokenizer/Normalizer.h"
#include "runtime/text/tokenizer/PreTokenizer.h"
#include "runtime/text/tokenizer/TokenizerModel.h"
#include "runtime/text/tokenizer/WordEncoder.h"
#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <utility>

namespace gpt2c::rt {
namespace {

using Token = TokenizerModel::Token;
using AddedToken = TokenizerModel::AddedToken;

/// A token's name, what its decoders are given.
std::string nameOf(const TokenizerModel &model, const Token &token) {
  const bool bytes = model.bytes && !model.decoders.empty() && !(token.flags & Token::Unreachable);
  return bytes ? alphabet::characters(token.text) : token.text;
}

/// Sets Token::Whole. Only what the model itself gives may be looked up: merge lists may leave
/// tokens out of reach.
void setWhole(TokenizerModel &model) {
  const bool affixes = !model.continuingPrefix.empty() || !model.endSuffix.empty();
  if (affixes && !model.ignoreMerges)
    return;
  const WordEncoder encoder(model);
  WordEncoder::Scratch scratch;
  std::vector<std::int32_t> encoded;
  std::vector<std::size_t> whole;
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    const Token &token = model.tokens[id];
    if (token.text.empty() || (token.flags & Token::Unreachable))
      continue;
    encoded.clear();
    if (!model.ignoreMerges)
      encoder.encodeAnew(token.text, scratch, encoded);
    if (model.ignoreMerges || (encoded.size() == 1 && encoded[0] == std::int32_t(id)))
      whole.push_back(id);
  }
  for (const std::size_t id : whole)
    model.tokens[id].flags |= Token::Whole;
}

} // namespace

struct Tokenizer::Impl {
  Impl(TokenizerModel source, Normalizer normal, PreTokenizer cutter, Decoder joiner);
  Impl(const Impl &) = delete;

  static Result<Tokenizer> create(TokenizerModel model);

  void encodeStretch(std::string_view text, bool first, bool allowSpecial, Words &words,
                     WordEncoder::Scratch &scratch, std::vector<std::int32_t> &tokens) const;
  const std::string &addedName(std::size_t index) const;
  std::string nameOfId(std::int32_t token) const;

  TokenizerModel model;
  const Normalizer normalizer;
  const PreTokenizer preTokenizer;
  const Decoder decoder;
  const WordEncoder encoder;
  std::vector<std::string> normalContents; // what `normalAdded` points to
  AddedTokens added, normalAdded;
  std::string shown; // the bytes of each token, one behind the other
  std::vector<std::uint32_t> shownEnds;
};

Tokenizer::Impl::Impl(TokenizerModel source, Normalizer normal, PreTokenizer cutter, Decoder joiner)
    : model(std::move(source)), normalizer(std::move(normal)), preTokenizer(std::move(cutter)),
      decoder(std::move(joiner)), encoder(model), normalContents(model.added.size()) {
  std::vector<std::pair<std::string_view, std::int32_t>> plain, normalised;
  Regex::Scratch scratch;
  for (std::size_t i = 0; i < model.added.size(); ++i) {
    const AddedToken &token = model.added[i];
    if (!(token.flags & AddedToken::Normalized)) {
      plain.emplace_back(token.content, std::int32_t(i));
      continue;
    }
    bool begins = false;
    normalContents[i] = normalizer.apply(token.content, begins, scratch);
    normalised.emplace_back(normalContents[i], std::int32_t(i));
  }
  added = AddedTokens(model.added, std::move(plain));
  normalAdded = AddedTokens(model.added, std::move(normalised));

  auto extra = model.added.begin();
  for (std::int32_t id = 0; id < model.size(); ++id) {
    if (extra != model.added.end() && extra->id == id)
      shown += decoder.inside(addedName(std::size_t(extra++ - model.added.begin())));
    else if (std::size_t(id) < model.tokens.size() && !model.tokens[std::size_t(id)].text.empty())
      shown += decoder.inside(nameOf(model, model.tokens[std::size_t(id)]));
    shownEnds.push_back(std::uint32_t(shown.size()));
  }
}

Result<Tokenizer> Tokenizer::Impl::create(TokenizerModel model) {
  Result<Normalizer> normalizer = Normalizer::create(model.normalizers);
  if (!normalizer)
    return normalizer.status();
  Result<PreTokenizer> preTokenizer = PreTokenizer::create(model.preTokenizers);
  if (!preTokenizer)
    return preTokenizer.status();
  Result<Decoder> decoder = Decoder::create(model.decoders);
  if (!decoder)
    return decoder.status();
  return Tokenizer(std::make_unique<Impl>(std::move(model), normalizer.take(), preTokenizer.take(),
                                          decoder.take()));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer &&) noexcept = default;
Tokenizer &Tokenizer::operator=(Tokenizer &&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::fromFiles(const std::string &path) {
  Result<TokenizerModel> model = TokenizerModel::read(path);
  if (!model)
    return model.status();
  setWhole(*model);
  Result<Tokenizer> made = Impl::create(model.take());
  if (!made)
    return {made.status().code(), path + ": " + made.status().message()};
  return made;
}

Result<Tokenizer> Tokenizer::fromBytes(std::span<const std::uint8_t> blob) {
  Result<TokenizerModel> model = TokenizerModel::parse(blob);
  if (!model)
    return model.status();
  Result<Tokenizer> made = Impl::create(model.take());
  if (!made)
    return {Code::Corrupt, "tokenizer blob: " + made.status().message()};
  return made;
}

std::string Tokenizer::serialize() const { return impl_->model.serialize(); }

/// What lies between the tokens that are found in the text as it is.
void Tokenizer::Impl::encodeStretch(std::string_view text, bool first, bool allowSpecial,
                                    Words &words, WordEncoder::Scratch &scratch,
                                    std::vector<std::int32_t> &tokens) const {
  std::string normal;
  if (!normalizer.empty())
    text = normal = normalizer.apply(text, first, words.regex);
  std::vector<AddedTokens::Stretch> stretches;
  normalAdded.cut(text, allowSpecial, stretches);
  for (const AddedTokens::Stretch &stretch : stretches) {
    if (stretch.token >= 0) {
      tokens.push_back(stretch.token);
      continue;
    }
    preTokenizer.split(text.substr(stretch.begin, stretch.end - stretch.begin),
                       first && stretch.begin == 0, words);
    for (std::size_t i = 0; i < words.size(); ++i)
      encoder.encode(words[i], scratch, tokens);
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TokenizerModel &model = impl_->model;
  std::vector<std::int32_t> tokens;
  if (options.addBos != AddBos::No)
    tokens = model.before;
  if (options.addBos == AddBos::Yes && model.before.empty() && model.bos >= 0)
    tokens.push_back(model.bos);
  std::vector<AddedTokens::Stretch> stretches;
  impl_->added.cut(text, options.allowSpecial, stretches);
  Words words;
  WordEncoder::Scratch scratch;
  for (const AddedTokens::Stretch &stretch : stretches)
    if (stretch.token >= 0)
      tokens.push_back(stretch.token);
    else
      impl_->encodeStretch(text.substr(stretch.begin, stretch.end - stretch.begin),
                           stretch.begin == 0, options.allowSpecial, words, scratch, tokens);
  if (options.addBos != AddBos::No)
    tokens.insert(tokens.end(), model.behind.begin(), model.behind.end());
  return tokens;
}

/// What the decoders are given for an added token.
const std::string &Tokenizer::Impl::addedName(std::size_t index) const {
  const bool normal = !normalContents[index].empty();
  return normal ? normalContents[index] : model.added[index].content;
}

std::string Tokenizer::Impl::nameOfId(std::int32_t token) const {
  const auto extra = std::ranges::lower_bound(model.added, token, {}, &AddedToken::id);
  if (extra != model.added.end() && extra->id == token)
    return addedName(std::size_t(extra - model.added.begin()));
  return nameOf(model, model.tokens[std::size_t(token)]);
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  if (impl_->decoder.joinsOnly()) {
    for (const std::int32_t token : tokens)
      text += tokenBytes(token);
    return text;
  }
  std::vector<std::string> names;
  names.reserve(tokens.size());
  for (const std::int32_t token : tokens)
    if (!tokenBytes(token).empty() || impl_->model.isToken(token))
      names.push_back(impl_->nameOfId(token));
  return impl_->decoder.decode(std::move(names));
}

std::string_view Tokenizer::tokenBytes(std::int32_t token) const {
  if (token < 0 || std::size_t(token) >= impl_->shownEnds.size())
    return {};
  const std::uint32_t begin = token ? impl_->shownEnds[std::size_t(token) - 1] : 0;
  return std::string_view(impl_->shown).substr(begin, impl_->shownEnds[std::size_t(token)] - begin);
}

std::vector<std::int32_t> Tokenizer::specialTokens() const {
  std::vector<std::int32_t> out;
  for (const TokenizerModel::AddedToken &token : impl_->model.added)
    if (token.flags & TokenizerModel::AddedToken::Special)
      out.push_back(token.id);
  return out;
}

std::int32_t Tokenizer::find(std::string_view name) const { return impl_->model.find(name); }

std::int32_t Tokenizer::vocabSize() const { return std::int32_t(impl_->shownEnds.size()); }

std::int32_t Tokenizer::bosToken() const { return impl_->model.bos; }

std::int32_t Tokenizer::eosToken() const {
  return texts().ends.empty() ? -1 : texts().ends.front();
}

const ModelTexts &Tokenizer::texts() const { return impl_->model.texts; }

void Tokenizer::setTexts(ModelTexts texts) { impl_->model.texts = std::move(texts); }

bool Tokenizer::isLossless() const {
  const TokenizerModel &m = impl_->model;
  using Kind = TokenizerStep::Kind;
  auto keeps = [](const TokenizerStep &step) {
    return step.kind == Kind::SplitLength ||
           (step.kind >= Kind::SplitText && step.kind <= Kind::SplitSpace &&
            step.option % TokenizerStep::Invert != TokenizerStep::Removed);
  };
  auto exact = [](const AddedToken &token) {
    return !(token.flags & (AddedToken::LeftSpace | AddedToken::RightSpace));
  };
  return m.bytes && m.kind == TokenizerModel::Kind::Bpe && m.normalizers.empty() &&
         m.decoders.empty() && impl_->encoder.knowsAllBytes() &&
         std::ranges::all_of(m.preTokenizers, keeps) && std::ranges::all_of(m.added, exact);
}

std::string StreamDecoder::push(std::int32_t token) {
  held_ += tokenizer_->tokenBytes(token);
  std::size_t complete = held_.size() - utf8IncompleteTail(held_);
  std::string ready = held_.substr(0, complete);
  held_.erase(0, complete);
  return ready;
}

std::string StreamDecoder::finish() { return std::exchange(held_, {}); }

} // namespace gpt2c::rt
