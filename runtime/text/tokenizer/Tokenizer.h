// Text to token ids and back, as Hugging Face's `tokenizers` does it.
//
// Texts are byte strings. Valid UTF-8 encodes as the `tokenizers` crate encodes it. Invalid UTF-8
// is cut into words where it would be cut if every byte that belongs to no well-formed sequence
// were a symbol (as U+FFFD is), and then the words' own bytes are encoded. So a byte-level
// tokenizer without normalizers loses nothing: decode(encode(x)) == x holds for every byte string
// x.
#pragma once

#include "runtime/Status.h"
#include "runtime/text/ModelTexts.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// What goes before a text, and behind it.
enum class AddBos : std::uint8_t {
  Auto, ///< what the tokenizer adds, which may be nothing
  Yes,  ///< what the tokenizer adds; where that is nothing, the token that begins a text
  No,
};

struct EncodeOptions {
  /// Special tokens such as <|endoftext|> in the text become their one id. Otherwise they are text
  /// like any other, which is right for text from strangers.
  bool allowSpecial = true;
  AddBos addBos = AddBos::No;
};

/// All const methods are thread-safe.
class Tokenizer {
public:
  /// Reads the tokenizer of the folder `path`: tokenizer.json (Hugging Face), or vocab.json and
  /// merges.txt, or tokenizer.model (SentencePiece, or tiktoken's ranks), or a file *.tiktoken;
  /// together with added_tokens.json, special_tokens_map.json and tokenizer_config.json, where they
  /// are. Or one such file by its own path. Errors: Io for files that cannot be read or are broken,
  /// Unsupported for what is not known, by name.
  static Result<Tokenizer> fromFiles(const std::string &path);

  /// Whether `folder` has a file that fromFiles would begin with.
  static bool isIn(const std::string &folder);

  /// Reads what serialize() wrote. The blob is untrusted input: checked, never believed.
  static Result<Tokenizer> fromBytes(std::span<const std::uint8_t> blob);

  Tokenizer(Tokenizer &&) noexcept;
  Tokenizer &operator=(Tokenizer &&) noexcept;
  ~Tokenizer();

  /// A compact blob; equal tokenizers give equal bytes.
  std::string serialize() const;

  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The text of tokens, a text of its own: a tokenizer that marks a text's beginning by a space
  /// takes it away. Ids that no token has (a model's vocabulary may be padded) add nothing. Bytes
  /// that form no character stay as they are.
  std::string decode(std::span<const std::int32_t> tokens) const;

  /// What a token adds to a text that goes on before and behind it; empty when no token has this
  /// id.
  std::string_view tokenBytes(std::int32_t token) const;

  /// Tokens that texts have on request alone, by id: those that mark, and are no text.
  std::vector<std::int32_t> specialTokens() const;

  /// The id of the token with this name, added or of the vocabulary, -1: there is none.
  std::int32_t find(std::string_view name) const;

  /// The largest id + 1.
  std::int32_t vocabSize() const;

  /// The token that begins a text, -1 when none is known.
  std::int32_t bosToken() const;

  /// The token that ends a text, the first of texts().ends; -1 when none is known.
  std::int32_t eosToken() const;

  /// What the model's folder says of its texts: from files only which token ends one.
  const ModelTexts &texts() const;
  void setTexts(ModelTexts texts);

  /// Whether decode(encode(x)) == x for all byte strings x, by the kind of tokenizer.
  bool isLossless() const;

private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

/// Decodes token by token for display: a character whose bytes are spread over several tokens comes
/// out when it is complete. All pieces together are the tokens' bytes; bytes that cannot become
/// UTF-8 come out as they are. The tokenizer must outlive the decoder.
class StreamDecoder {
public:
  explicit StreamDecoder(const Tokenizer &tokenizer) : tokenizer_(&tokenizer) {}

  /// What can be shown after this token, possibly nothing.
  std::string push(std::int32_t token);

  /// The bytes still held back (at most 3), and a fresh start.
  std::string finish();

private:
  const Tokenizer *tokenizer_;
  std::string held_;
};

} // namespace gpt2c::rt
