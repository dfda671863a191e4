// GPT-2's byte-level BPE tokenizer: text to token ids and back.
//
// Texts are byte strings. Valid UTF-8 encodes as the `tokenizers` crate (Hugging Face) and tiktoken
// encode it. Invalid UTF-8 loses nothing: words are cut where they would be cut if every byte that
// belongs to no well-formed sequence were a symbol (as U+FFFD is), and then the words' own bytes
// are encoded. So decode(encode(x)) == x holds for every byte string x.
#pragma once

#include "runtime/Status.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

struct EncodeOptions {
  /// Special tokens such as <|endoftext|> in the text become their one id. Otherwise they are text
  /// like any other, which is right for text from strangers.
  bool allowSpecial = true;
};

/// All const methods are thread-safe.
class Tokenizer {
public:
  /// Reads tokenizer.json (Hugging Face), or vocab.json and merges.txt, from the folder `path`, or
  /// `path` itself as a tokenizer.json. A tokenizer that is not GPT-2's byte-level BPE is refused.
  static Result<Tokenizer> fromFiles(const std::string &path);

  /// Reads what serialize() wrote. The blob is untrusted input: checked, never believed.
  static Result<Tokenizer> fromBytes(std::span<const std::uint8_t> blob);

  Tokenizer(Tokenizer &&) noexcept;
  Tokenizer &operator=(Tokenizer &&) noexcept;
  ~Tokenizer();

  /// A compact blob; equal tokenizers give equal bytes.
  std::string serialize() const;

  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The tokens' bytes one after the other. Ids that no token has (a model's vocabulary may be
  /// padded) add nothing.
  std::string decode(std::span<const std::int32_t> tokens) const;

  /// The bytes of one token, empty when no token has this id.
  std::string_view tokenBytes(std::int32_t token) const;

  /// The largest id + 1.
  std::int32_t vocabSize() const;

  /// The id of <|endoftext|>, -1 when there is none.
  std::int32_t eosToken() const;

private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

/// Decodes token by token for display: a character whose bytes are spread over several tokens comes
/// out when it is complete. All pieces together are exactly what decode() gives; bytes that cannot
/// become UTF-8 come out as they are. The tokenizer must outlive the decoder.
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
