// Two inputs in one: the first byte says which.
// - A blob: whatever parse() accepts is what serialize() writes, and a tokenizer whose encode and
//   decode round-trip.
// - A text for a tokenizer with merges: encode and decode round-trip, whole and streamed.
#include "runtime/text/Tokenizer.h"
#include "runtime/text/TokenizerModel.h"

#include <cstdio>
#include <cstdlib>

using namespace gpt2c::rt;

namespace {

void require(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "property violated: %s\n", what);
    std::abort();
  }
}

std::span<const std::uint8_t> bytesOf(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t *>(text.data()), text.size()};
}

/// The 256 bytes, merges of ASCII pairs and of the pieces of é, and an end-of-text token.
TokenizerModel sampleModel() {
  TokenizerModel model;
  for (int byte = 0; byte < 256; ++byte) {
    model.tokens.push_back({std::string(1, char(byte)), 0});
    model.byteTokens[byte] = byte;
  }
  auto merge = [&](std::int32_t left, std::int32_t right) {
    std::int32_t result = std::int32_t(model.tokens.size());
    model.tokens.push_back({model.tokens[left].bytes + model.tokens[right].bytes, 0});
    model.merges.push_back({left, right, result});
    return result;
  };
  std::int32_t th = merge('t', 'h'), the = merge(th, 'e');
  merge(' ', the);
  merge('a', 'a');
  merge(0xC3, 0xA9);
  merge(' ', ' ');
  merge('\'', 's');
  model.eos = std::int32_t(model.tokens.size());
  model.tokens.push_back({"<|endoftext|>", TokenizerModel::Added | TokenizerModel::Special});
  return model;
}

const Tokenizer &sampleTokenizer() {
  static const Tokenizer tokenizer = [] {
    Result<Tokenizer> result = Tokenizer::fromBytes(bytesOf(sampleModel().serialize()));
    require(result.ok(), "the sample model is valid");
    return result.take();
  }();
  return tokenizer;
}

void checkRoundTrip(const Tokenizer &tokenizer, std::string_view text) {
  for (bool special : {false, true}) {
    std::vector<std::int32_t> ids = tokenizer.encode(text, {special});
    require(tokenizer.decode(ids) == text, "decode(encode(x)) == x");
    StreamDecoder stream(tokenizer);
    std::string streamed;
    for (std::int32_t id : ids)
      streamed += stream.push(id);
    require(streamed + stream.finish() == text, "streamed pieces join to the text");
  }
}

void checkBlob(std::string_view blob) {
  Result<Tokenizer> tokenizer = Tokenizer::fromBytes(bytesOf(blob));
  if (!tokenizer)
    return;
  require(tokenizer->serialize() == blob, "serialize(parse(b)) == b");
  checkRoundTrip(*tokenizer, blob);
  checkRoundTrip(*tokenizer, "the \xC3\xA9 aa<|endoftext|>\xFF  's");
}

} // namespace

/// The sample model's blob is the one seed: mutations start from a valid file.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size, std::size_t maxSize);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size,
                                               std::size_t maxSize, unsigned seed) {
  static const std::string blob = std::string(1, '\0') + sampleModel().serialize();
  if (seed % 16 == 0 && maxSize >= blob.size())
    size = blob.copy(reinterpret_cast<char *>(data), blob.size());
  return LLVMFuzzerMutate(data, size, maxSize);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  if (size == 0)
    return 0;
  std::string_view rest(reinterpret_cast<const char *>(data) + 1, size - 1);
  if (data[0] % 2 == 0)
    checkBlob(rest);
  else
    checkRoundTrip(sampleTokenizer(), rest);
  return 0;
}
