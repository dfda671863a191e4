// tokenizer.model of SentencePiece, a message of Protocol Buffers: BPE and Unigram.
#include "runtime/text/tokenizer_files/TokenizerReader.h"
#include "runtime/text/unicode/Utf8.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <tuple>

namespace gpt2c::rt {
namespace {

using Json = nlohmann::json;
using Kind = TokenizerStep::Kind;
using Added = TokenizerModel::AddedToken;

constexpr const char *kSpace = "\xE2\x96\x81"; // U+2581, which stands for a space

/// The fields of a message, one after the other.
class Fields {
public:
  explicit Fields(std::string_view message) : left_(message) {}

  /// Goes to the next field; false at the end, or where the message is broken.
  bool next() {
    std::uint64_t tag;
    if (left_.empty() || !(ok_ = varint(tag)))
      return false;
    number = std::uint32_t(tag >> 3);
    text = {};
    value = 0;
    switch (tag & 7) {
    case 0:
      return ok_ = varint(value);
    case 1:
      return ok_ = take(8);
    case 2:
      return ok_ = varint(value) && take(value);
    case 5:
      return ok_ = take(4);
    default:
      return ok_ = false;
    }
  }
  bool ok() const { return ok_; }
  float real() const {
    float result = 0;
    if (text.size() == sizeof(result))
      std::memcpy(&result, text.data(), sizeof(result));
    return result;
  }

  std::uint32_t number = 0;
  std::uint64_t value = 0; // of a varint
  std::string_view text;   // of all others

private:
  bool varint(std::uint64_t &result) {
    result = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = std::uint8_t(left_[0]);
      left_.remove_prefix(1);
      result |= std::uint64_t(byte & 0x7F) << shift;
      if (!(byte & 0x80))
        return true;
    }
    return false;
  }
  bool take(std::uint64_t count) {
    if (count > left_.size())
      return false;
    text = left_.substr(0, count);
    left_.remove_prefix(count);
    return true;
  }

  std::string_view left_;
  bool ok_ = true;
};

enum class PieceType { Normal = 1, Unknown, Control, UserDefined, Unused, Byte };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::Normal;
};

/// What we read of a ModelProto.
struct Proto {
  std::vector<Piece> pieces;
  bool bpe = false, known = true; // known: the type of model is BPE or Unigram
  bool byteFallback = false, spaceAsSuffix = false;
  std::string charsmap;
  bool dummyPrefix = true, removeSpaces = true, escapeSpaces = true;
  bool ok = true;

  explicit Proto(std::string_view file) {
    Fields field(file);
    while (ok && field.next()) {
      if (field.number == 1)
        readPiece(field.text);
      else if (field.number == 2)
        readTrainer(field.text);
      else if (field.number == 3)
        readNormalizer(field.text);
    }
    ok = ok && field.ok() && !pieces.empty();
  }

private:
  void readPiece(std::string_view message) {
    Piece piece;
    Fields field(message);
    while (field.next()) {
      if (field.number == 1)
        piece.text = field.text;
      else if (field.number == 2)
        piece.score = field.real();
      else if (field.number == 3)
        piece.type = PieceType(field.value);
    }
    ok = field.ok();
    pieces.push_back(std::move(piece));
  }
  void readTrainer(std::string_view message) {
    Fields field(message);
    while (field.next()) {
      if (field.number == 3) {
        bpe = field.value == 2;
        known = field.value == 1 || field.value == 2;
      } else if (field.number == 24) {
        spaceAsSuffix = field.value != 0;
      } else if (field.number == 35) {
        byteFallback = field.value != 0;
      }
    }
    ok = field.ok();
  }
  void readNormalizer(std::string_view message) {
    Fields field(message);
    while (field.next()) {
      if (field.number == 2)
        charsmap = field.text;
      else if (field.number == 3)
        dummyPrefix = field.value != 0;
      else if (field.number == 4)
        removeSpaces = field.value != 0;
      else if (field.number == 5)
        escapeSpaces = field.value != 0;
    }
    ok = field.ok();
  }
};

/// A piece merges of each two pieces that its text is made of, those of the best score first.
Status addMerges(const Proto &proto, ModelBuilder &builder) {
  struct Pair {
    float score;
    std::size_t leftCharacters, rightCharacters;
    std::int32_t left, right;
    std::string leftText, rightText;
  };
  std::vector<Pair> pairs;
  auto characters = [](std::string_view text) {
    return std::size_t(
        std::ranges::count_if(text, [](char c) { return (std::uint8_t(c) & 0xC0) != 0x80; }));
  };
  for (const Piece &piece : proto.pieces) {
    if (piece.type != PieceType::Normal)
      continue;
    const auto first = std::ptrdiff_t(pairs.size());
    for (std::size_t cut = 1; cut < piece.text.size(); ++cut) {
      if ((std::uint8_t(piece.text[cut]) & 0xC0) == 0x80)
        continue;
      std::string left = piece.text.substr(0, cut), right = piece.text.substr(cut);
      const std::int32_t l = builder.find(left), r = builder.find(right);
      if (l >= 0 && r >= 0)
        pairs.push_back({piece.score, characters(left), characters(right), l, r, left, right});
    }
    std::stable_sort(pairs.begin() + first, pairs.end(), [](const Pair &a, const Pair &b) {
      return std::tie(a.left, a.right) < std::tie(b.left, b.right);
    });
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair &a, const Pair &b) {
    return std::tie(a.score, a.leftCharacters, a.rightCharacters) >
           std::tie(b.score, b.leftCharacters, b.rightCharacters);
  });
  for (const Pair &pair : pairs)
    if (Status status = builder.addMerge(pair.leftText, pair.rightText, "a piece"); !status.ok())
      return status;
  return {};
}

/// Where the mark of a space goes that SentencePiece puts ahead of a text.
enum class Prefix {
  Text,  ///< as SentencePiece does
  Parts, ///< ahead of each part between added tokens, as transformers did at first
  First, ///< ahead of the first part, unless it begins with one, as transformers does now
};

void setSteps(const Proto &proto, Prefix prefix, TokenizerModel &model) {
  auto &normalizers = model.normalizers;
  const std::string space = proto.escapeSpaces ? kSpace : " ";
  if (!proto.charsmap.empty())
    normalizers.push_back({Kind::Charsmap, 1, proto.charsmap, {}});
  if (proto.removeSpaces) {
    // At its end SentencePiece takes the mark for a space.
    const bool marks = proto.escapeSpaces && prefix == Prefix::Text;
    normalizers.push_back({Kind::ReplaceRegex, 0,
                           marks ? std::string(R"(\A +|[ )") + kSpace + R"(]+\z)" : R"(\A +| +\z)",
                           ""});
    normalizers.push_back({Kind::ReplaceRegex, 0, " {2,}", " "});
  }
  if (prefix == Prefix::First) {
    model.preTokenizers.push_back({Kind::PrefixReplacement, proto.dummyPrefix ? 1u : 0, space, {}});
  } else {
    if (proto.dummyPrefix)
      normalizers.push_back({Kind::Prepend, prefix == Prefix::Text ? 1u : 0, {}, space});
    if (proto.escapeSpaces)
      normalizers.push_back({Kind::Replace, 0, " ", kSpace});
  }
  model.decoders = {
      {Kind::Replace, 0, kSpace, " "}, {Kind::ByteFallback, 0, {}, {}}, {Kind::Fuse, 0, {}, {}}};
  if (proto.dummyPrefix)
    model.decoders.push_back({Kind::Strip, 1, {}, " "});
}

Status addPieces(const Proto &proto, Prefix prefix, ModelBuilder &builder) {
  using Token = TokenizerModel::Token;
  TokenizerModel &model = builder.model();
  for (std::size_t id = 0; id < proto.pieces.size(); ++id) {
    const Piece &piece = proto.pieces[id];
    const bool matched = piece.type == PieceType::Normal;
    if (Status status = builder.addToken(piece.text, id, matched ? 0 : Token::Unreachable);
        !status.ok())
      return status;
    if (piece.type == PieceType::Unknown)
      model.unknown = std::int32_t(id);
    if (piece.type == PieceType::Control || piece.type == PieceType::Unknown ||
        piece.type == PieceType::UserDefined) {
      const std::uint8_t flags = piece.type != PieceType::UserDefined ? Added::Special
                                 : prefix == Prefix::Text             ? Added::Normalized
                                                                      : 0;
      if (Status status = builder.addAdded(piece.text, id, flags); !status.ok())
        return status;
    }
    if (model.kind == TokenizerModel::Kind::Unigram)
      model.scores.push_back(double(piece.score));
  }
  return {};
}

} // namespace

Status readSentencePiece(const std::string &, std::string_view file, const Json &config,
                         ModelBuilder &builder) {
  const Proto proto(file);
  if (!proto.ok)
    return builder.fail("neither a SentencePiece model nor ranks of tiktoken");
  if (!proto.known)
    return builder.refuse("the SentencePiece model is neither BPE nor Unigram");
  if (proto.spaceAsSuffix)
    return builder.refuse("the SentencePiece model has treat_whitespace_as_suffix");
  TokenizerModel &model = builder.model();
  model.kind = proto.bpe ? TokenizerModel::Kind::Bpe : TokenizerModel::Kind::Unigram;
  model.byteFallback = proto.byteFallback;
  model.fuseUnknown = true;
  const std::string name = tokenContent(member(config, "tokenizer_class"));
  const Json &legacy = member(config, "legacy");
  const Prefix prefix = legacy == false                               ? Prefix::First
                        : legacy == true || name.starts_with("Llama") ? Prefix::Parts
                                                                      : Prefix::Text;
  if (Status status = addPieces(proto, prefix, builder); !status.ok())
    return status;
  setSteps(proto, prefix, model);
  const std::int32_t begin = builder.find("<s>") >= 0 ? builder.find("<s>") : builder.find("<bos>");
  const std::int32_t end = builder.find("</s>") >= 0 ? builder.find("</s>") : builder.find("<eos>");
  model.bos = begin;
  if (end >= 0)
    model.texts.ends = {end};
  if (name.starts_with("T5") && end >= 0)
    model.behind = {end};
  else if (begin >= 0)
    model.before = {begin};
  return proto.bpe ? addMerges(proto, builder) : Status();
}

} // namespace gpt2c::rt
