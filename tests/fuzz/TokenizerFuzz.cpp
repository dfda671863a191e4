// Two inputs in one: the first byte says which.
// - A blob: whatever parse() accepts is what serialize() writes, and a tokenizer whose encode and
//   decode round-trip.
// - A text for a tokenizer with merges: encode and decode round-trip, whole and streamed.
#include "runtime/text/tokenizer/PreTokenizer.h"
#include "runtime/text/tokenizer/Tokenizer.h"
#include "runtime/text/tokenizer/TokenizerModel.h"

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

using Kind = TokenizerStep::Kind;

/// The 256 bytes, merges of ASCII pairs and of the pieces of é, and an end-of-text token.
TokenizerModel sampleModel() {
  TokenizerModel model;
  model.bytes = true;
  for (int byte = 0; byte < 256; ++byte)
    model.tokens.push_back({std::string(1, char(byte)), 0});
  auto merge = [&](std::int32_t left, std::int32_t right) {
    std::int32_t result = std::int32_t(model.tokens.size());
    model.tokens.push_back({model.tokens[left].text + model.tokens[right].text, 0});
    model.merges.push_back({left, right, result});
    return result;
  };
  std::int32_t th = merge('t', 'h'), the = merge(th, 'e');
  merge(' ', the);
  merge('a', 'a');
  merge(0xC3, 0xA9);
  merge(' ', ' ');
  merge('\'', 's');
  model.texts.ends = {std::int32_t(model.tokens.size())};
  model.added.push_back(
      {model.texts.ends[0], "<|endoftext|>", TokenizerModel::AddedToken::Special});
  model.preTokenizers.push_back(
      {Kind::SplitRegex, TokenizerStep::Isolated, std::string(kGpt2Pattern), {}});
  return model;
}

/// A step of each kind, tokens that are characters, scores: for mutations to begin from.
TokenizerModel modelOfAllSteps() {
  TokenizerModel model;
  model.kind = TokenizerModel::Kind::Unigram;
  for (const char *text : {"<unk>", "a", "th", "the", "\xE2\x96\x81", "<0x41>", "\xC3\xA9"}) {
    model.tokens.push_back({text, 0});
    model.scores.push_back(-double(model.scores.size()));
  }
  model.unknown = 0;
  model.added.push_back({7, "<x>", 30});
  for (Kind kind : {Kind::Nfc, Kind::Nfkd, Kind::Lowercase, Kind::StripAccents, Kind::Nmt})
    model.normalizers.push_back({kind, 0, {}, {}});
  model.normalizers.push_back({Kind::StripSpace, 3, {}, {}});
  model.normalizers.push_back({Kind::ReplaceRegex, 0, "[a-c&&[^b]]{2,}+|\\bx", "y"});
  model.preTokenizers = {{Kind::PrefixReplacement, 1, "\xE2\x96\x81", {}},
                         {Kind::SplitDigits, TokenizerStep::Contiguous, {}, {}},
                         {Kind::SplitText, TokenizerStep::MergedWithNext, "e", {}}};
  model.decoders = {{Kind::ReplacementToSpace, 1, "\xE2\x96\x81", {}},
                    {Kind::ByteFallback, 0, {}, {}},
                    {Kind::Fuse, 0, {}, {}},
                    {Kind::Strip, 1, {}, " "}};
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
    const std::string decoded = tokenizer.decode(ids);
    require(!tokenizer.isLossless() || decoded == text, "decode(encode(x)) == x");
    StreamDecoder stream(tokenizer);
    std::string streamed, bytes;
    for (std::int32_t id : ids) {
      require(id >= 0 && id < tokenizer.vocabSize(), "ids are in range");
      streamed += stream.push(id);
      bytes += tokenizer.tokenBytes(id);
    }
    require(streamed + stream.finish() == bytes, "streamed pieces join to the tokens' bytes");
  }
}

void checkBlob(std::string_view blob) {
  Result<Tokenizer> tokenizer = Tokenizer::fromBytes(bytesOf(blob));
  if (!tokenizer)
    return;
  require(blob[4] == 1 || tokenizer->serialize() == blob, "serialize(parse(b)) == b");
  checkRoundTrip(*tokenizer, blob);
  checkRoundTrip(*tokenizer, "the \xC3\xA9 aa<|endoftext|>\xFF  's");
}

} // namespace

/// The models' blobs are the seeds: mutations start from a valid file.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size, std::size_t maxSize);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size,
                                               std::size_t maxSize, unsigned seed) {
  static const std::string blobs[] = {std::string(1, '\0') + sampleModel().serialize(),
                                      std::string(1, '\0') + modelOfAllSteps().serialize()};
  const std::string &blob = blobs[seed / 16 % 2];
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
