// The data of a tokenizer, apart from the indexes that make it fast: what tokenizer.json of Hugging
// Face's `tokenizers` can say. Readers of every format produce one; what they produce has been
// checked.
//
// A text becomes tokens so: added tokens are found in it; what lies between them goes through the
// normalizers, is searched for the added tokens that are found in normalised text, is cut into
// words by the pre-tokenizers, and each word becomes tokens of the vocabulary by merges (BPE) or by
// the best sum of scores (Unigram). Tokens become text by the decoders.
#pragma once

#include "runtime/Status.h"
#include "runtime/text/ModelTexts.h"
#include "runtime/text/tokenizer/Bpe.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// One step of the normalizers, the pre-tokenizers or the decoders.
struct TokenizerStep {
  enum class Kind : std::uint8_t {
    // Normalizers: text to text.
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    StripAccents,
    Nmt,        ///< drops control characters, makes spaces of what is like one
    Charsmap,   ///< `text` is SentencePiece's table; `option` 1: the longest prefixes, see Charsmap
    StripSpace, ///< `option`: 1 on the left, 2 on the right, 3 both
    Prepend, ///< `content`, to texts that are not empty; `option` 1: only to what begins the text
    // Normalizers, pre-tokenizers and (but for BytesToCharacters) decoders.
    Replace,           ///< `text` by `content`
    ReplaceRegex,      ///< matches of `text` by `content`
    BytesToCharacters, ///< each byte by its character of the byte-level alphabet
    // Pre-tokenizers: each word becomes several. `option` is a Behaviour; + Invert: what lies
    // between matches is the match.
    SplitText,
    SplitRegex,
    SplitDigits,
    SplitPunctuation,
    SplitSpace,
    SplitLength,       ///< words of `option` characters
    PrefixSpace,       ///< " " before words that do not begin with one
    PrefixReplacement, ///< spaces become `text`, which goes before words without it; `option` 1:
                       ///< only
                       ///< before the one that begins the text, 2: before all, 0: before none
    // Decoders: tokens to tokens, which in the end are joined.
    CharactersToBytes,  ///< joins, and undoes BytesToCharacters
    ByteFallback,       ///< <0xNN> by its byte; those that touch join
    Fuse,               ///< joins
    Strip,              ///< up to `option` times the character `content` at the beginning of each
    StripEnd,           ///< the same at the end
    ReplacementToSpace, ///< the character `text` by a space, in the first token by nothing unless
                        ///< `option` is 0
    SuffixToSpace,      ///< `text` by a space, in the last token by nothing
    PrefixJoins, ///< `text` at the beginning goes; tokens without it get a space before them, which
                 ///< `option` 1 takes off in front of punctuation and what shortens words
    JoinBySpace, ///< a space before each token but the first
  };
  enum Behaviour : std::uint8_t {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous
  };
  static constexpr std::uint32_t Invert = 8;

  Kind kind;
  std::uint32_t option = 0;
  std::string text, content;
  bool operator==(const TokenizerStep &) const = default;
};

struct TokenizerModel {
  enum class Kind : std::uint8_t { Bpe, Unigram };
  static constexpr std::int32_t kMaxTokens = 1 << 22;

  struct Token {
    enum Flags : std::uint8_t {
      Whole = 1,       ///< the word `text` becomes this one token
      Unreachable = 2, ///< no word becomes it: its text is outside of the byte-level alphabet, or
                       ///< is a name that texts do not have
    };
    std::string text; ///< as words have it; empty where no token has this id
    std::uint8_t flags = 0;
    bool operator==(const Token &) const = default;
  };

  /// A token that is found in text before it is cut into words, or beside it.
  struct AddedToken {
    enum Flags : std::uint8_t {
      Special = 1,    ///< found only on request
      Normalized = 2, ///< found in normalised text
      LeftSpace = 4,  ///< takes the white space on its left
      RightSpace = 8,
      SingleWord = 16, ///< only where no letter touches it
    };
    std::int32_t id;
    std::string content;
    std::uint8_t flags = 0;
    bool operator==(const AddedToken &) const = default;
  };

  Kind kind = Kind::Bpe;
  /// Words are bytes: token texts are what characters of the byte-level alphabet stand for. So it
  /// is where BytesToCharacters ends the pre-tokenizers, which leave that step out then; without
  /// decoders, tokens become text by their bytes.
  bool bytes = false;
  bool byteFallback = false; ///< an unknown character becomes the tokens <0xNN> of its bytes
  bool fuseUnknown = false;  ///< unknown characters that touch are one token
  bool ignoreMerges = false; ///< a word that is a token is that token, whatever the merges say
  std::int32_t unknown = -1; ///< the token of an unknown character, -1: it is left out
  std::string continuingPrefix, endSuffix; ///< of a word's characters but the first; of its last
  std::vector<Token> tokens;               ///< by id
  std::vector<Merge> merges;               ///< Bpe: by rank
  std::vector<double> scores;              ///< Unigram: by id
  std::vector<AddedToken> added;           ///< by id, each id once
  std::vector<TokenizerStep> normalizers, preTokenizers, decoders;
  /// What the tokenizer puts before and behind a text.
  std::vector<std::int32_t> before, behind;
  std::int32_t bos = -1; ///< the token that begins a text
  ModelTexts texts;

  bool operator==(const TokenizerModel &) const = default;

  /// Reports the first broken rule of those that encode and decode rely on: ids in range, steps in
  /// their places, merges that join their two tokens, scores that are numbers.
  Status check() const;

  /// The format of serialize(), a compact form for a section of a plan:
  ///   "G2CT", then unsigned LEB128 numbers in their shortest form and raw bytes, in the order of
  ///   the members above behind the version; a list has its length first, an id is written + 1, a
  ///   score as the 8 bytes of its double.
  /// Equal models give equal bytes. parse() takes untrusted input and accepts only what
  /// serialize() writes, or wrote as version 1.
  std::string serialize() const;
  static Result<TokenizerModel> parse(std::span<const std::uint8_t> blob);

  /// Reads a tokenizer's files from a folder, or one file by its own path: see
  /// Tokenizer::fromFiles.
  static Result<TokenizerModel> read(const std::string &path);

  /// The id of a token, added or of the vocabulary; -1: there is none. A search through all.
  std::int32_t find(std::string_view name) const;
  /// Whether a token, added or of the vocabulary, has this id.
  bool isToken(std::int32_t id) const;
  /// The largest id + 1.
  std::int32_t size() const;

private:
  Status checkTokens() const;
  Status checkMerges() const;
};

} // namespace gpt2c::rt
