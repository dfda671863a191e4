// A tokenizer's model as bytes.
#include "runtime/text/tokenizer/PreTokenizer.h"
#include "runtime/text/tokenizer/TokenizerModel.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>

namespace gpt2c::rt {
namespace {

constexpr std::string_view kMagic = "G2CT";
constexpr std::uint32_t kVersion = 2;

class Writer {
public:
  explicit Writer(std::string &out) : out_(out) {}

  void number(std::uint32_t value, const char * = "") {
    for (; value >= 0x80; value >>= 7)
      out_.push_back(char(value | 0x80));
    out_.push_back(char(value));
  }
  void id(std::int32_t id, const char *what) { number(std::uint32_t(id + 1), what); }
  void flag(bool value, const char *what) { number(value, what); }
  void text(const std::string &text, const char *what) {
    number(std::uint32_t(text.size()), what);
    out_ += text;
  }
  void score(double score, const char *) {
    char bytes[sizeof(score)];
    std::memcpy(bytes, &score, sizeof(score));
    out_.append(bytes, sizeof(score));
  }
  template <typename List, typename Each> void list(List &items, const char *what, Each each) {
    number(std::uint32_t(items.size()), what);
    for (auto &item : items)
      each(item);
  }

  template <typename Value, typename Each>
  void optional(const std::optional<Value> &value, const char *what, Each each) {
    flag(value.has_value(), what);
    if (value)
      each(*value);
  }

private:
  std::string &out_;
};

/// Reads a blob front to back. The first failure sticks: later reads return zeros.
class Reader {
public:
  explicit Reader(std::span<const std::uint8_t> blob) : blob_(blob) {}

  void number(std::uint32_t &value, const char *what, std::uint32_t most = INT32_MAX) {
    value = 0;
    std::uint64_t read = 0;
    for (int shift = 0; shift < 35 && status_.ok(); shift += 7) {
      if (at_ == blob_.size())
        return fail("ends inside", what);
      const std::uint8_t byte = blob_[at_++];
      read |= std::uint64_t(byte & 0x7F) << shift;
      if (byte & 0x80)
        continue;
      if ((byte == 0 && shift > 0) || read > most)
        break;
      value = std::uint32_t(read);
      return;
    }
    fail("holds a malformed number for", what);
  }
  void number(std::uint8_t &value, const char *what) {
    std::uint32_t wide;
    number(wide, what, 255);
    value = std::uint8_t(wide);
  }
  void id(std::int32_t &id, const char *what) {
    std::uint32_t wide;
    number(wide, what);
    id = std::int32_t(wide) - 1;
  }
  void flag(bool &value, const char *what) {
    std::uint32_t wide;
    number(wide, what, 1);
    value = wide != 0;
  }
  void text(std::string &text, const char *what) {
    std::uint32_t size;
    number(size, what);
    text = bytes(size, what);
  }
  void score(double &score, const char *what) {
    score = 0;
    if (std::string_view read = bytes(sizeof(score), what); read.size() == sizeof(score))
      std::memcpy(&score, read.data(), sizeof(score));
  }
  template <typename Item, typename Each>
  void list(std::vector<Item> &items, const char *what, Each each) {
    std::uint32_t count;
    number(count, what);
    // Counts are untrusted: memory grows with the bytes that are there, not with what is promised.
    items.reserve(std::min<std::size_t>(count, left()));
    for (std::uint32_t i = 0; i < count && status_.ok(); ++i)
      each(items.emplace_back());
  }

  template <typename Value, typename Each>
  void optional(std::optional<Value> &value, const char *what, Each each) {
    bool has;
    flag(has, what);
    if (has)
      each(value.emplace());
  }

  std::string_view bytes(std::size_t count, const char *what) {
    if (!status_.ok())
      return {};
    if (count > left())
      return fail("ends inside", what), std::string_view();
    std::string_view result(reinterpret_cast<const char *>(blob_.data()) + at_, count);
    at_ += count;
    return result;
  }
  void fail(const char *problem, const char *what) {
    if (status_.ok())
      status_ = Status(Code::Corrupt,
                       "tokenizer blob, byte " + std::to_string(at_) + ": " + problem + " " + what);
  }
  std::size_t left() const { return blob_.size() - at_; }
  const Status &status() const { return status_; }

private:
  std::span<const std::uint8_t> blob_;
  std::size_t at_ = 0;
  Status status_;
};

template <typename Enum> void enumeration(const Enum &value, Writer &a, const char *what) {
  a.number(std::uint8_t(value), what);
}
template <typename Enum> void enumeration(Enum &value, Reader &a, const char *what) {
  std::uint8_t byte;
  a.number(byte, what);
  value = Enum(byte);
}

template <typename Texts, typename Archive> void transferTexts(Texts &t, Archive &a) {
  a.list(t.ends, "the tokens that end a text",
         [&](auto &id) { a.id(id, "a token that ends a text"); });
  a.optional(t.sampling, "the advice how to sample", [&](auto &advice) {
    a.flag(advice.sample, "the advice how to sample");
    for (auto *value : {&advice.temperature, &advice.topP, &advice.minP, &advice.repetitionPenalty})
      a.score(*value, "the advice how to sample");
    a.id(advice.topK, "the advice how to sample");
  });
  for (auto *texts : {&t.chatTemplates, &t.specialTokens})
    a.list(*texts, "the number of texts", [&](auto &named) {
      a.text(named.name, "the name of a text");
      a.text(named.text, "a text");
    });
}

/// One order for both directions.
template <typename Model, typename Archive> void transfer(Model &m, Archive &a) {
  enumeration(m.kind, a, "the kind of model");
  a.flag(m.bytes, "whether words are bytes");
  a.flag(m.byteFallback, "the fallback to bytes");
  a.flag(m.fuseUnknown, "how unknown characters are joined");
  a.flag(m.ignoreMerges, "whether merges are ignored");
  a.id(m.unknown, "the unknown token");
  a.text(m.continuingPrefix, "the prefix");
  a.text(m.endSuffix, "the suffix");
  a.list(m.tokens, "the number of tokens", [&](auto &token) {
    a.number(token.flags, "a token's flags");
    a.text(token.text, "a token");
  });
  a.list(m.merges, "the number of merges", [&](auto &merge) {
    a.id(merge.left, "a merge");
    a.id(merge.right, "a merge");
    a.id(merge.result, "a merge");
  });
  a.list(m.scores, "the number of scores", [&](auto &score) { a.score(score, "a score"); });
  a.list(m.added, "the number of added tokens", [&](auto &token) {
    a.id(token.id, "an added token's id");
    a.text(token.content, "an added token");
    a.number(token.flags, "an added token's flags");
  });
  for (auto *steps : {&m.normalizers, &m.preTokenizers, &m.decoders})
    a.list(*steps, "the number of steps", [&](auto &step) {
      enumeration(step.kind, a, "a step's kind");
      a.number(step.option, "a step's option");
      a.text(step.text, "a step's text");
      a.text(step.content, "a step's content");
    });
  for (auto *ids : {&m.before, &m.behind})
    a.list(*ids, "the tokens around a text", [&](auto &id) { a.id(id, "a token around a text"); });
  a.id(m.bos, "the token that begins a text");
  transferTexts(m.texts, a);
}

/// Version 1: GPT-2's byte-level BPE. For each token its flags (1: a whole word, 2: added, 4:
/// special), length and bytes; 256 tokens of single bytes; merges; the token that ends a text + 1.
TokenizerModel readVersion1(Reader &reader) {
  TokenizerModel model;
  model.bytes = true;
  model.preTokenizers = {
      {TokenizerStep::Kind::SplitRegex, TokenizerStep::Isolated, std::string(kGpt2Pattern), {}}};
  reader.list(model.tokens, "the number of tokens", [&](auto &token) {
    std::uint32_t flags;
    reader.number(flags, "a token's flags", 7);
    reader.text(token.text, "a token");
    token.flags = flags & 1 ? TokenizerModel::Token::Whole : 0;
    if (flags & 2)
      model.added.push_back({std::int32_t(&token - model.tokens.data()), token.text,
                             std::uint8_t(flags & 4 ? TokenizerModel::AddedToken::Special : 0)});
  });
  for (int byte = 0; byte < 256; ++byte) {
    std::uint32_t id;
    reader.number(id, "the byte tokens");
    if (reader.status().ok() &&
        (id >= model.tokens.size() || model.tokens[id].text != std::string(1, char(byte))))
      reader.fail("holds another token for", "a byte");
  }
  reader.list(model.merges, "the number of merges", [&](auto &merge) {
    for (std::int32_t *id : {&merge.left, &merge.right, &merge.result}) {
      std::uint32_t value;
      reader.number(value, "a merge");
      *id = std::int32_t(value);
    }
  });
  std::int32_t end;
  reader.id(end, "the end-of-text token");
  if (end >= 0)
    model.texts.ends = {end};
  return model;
}

} // namespace

std::string TokenizerModel::serialize() const {
  std::string out(kMagic);
  Writer writer(out);
  writer.number(kVersion);
  transfer(*this, writer);
  return out;
}

Result<TokenizerModel> TokenizerModel::parse(std::span<const std::uint8_t> blob) {
  Reader reader(blob);
  if (reader.bytes(kMagic.size(), "the magic") != kMagic)
    return {Code::Corrupt, "tokenizer blob, byte 0: does not begin with " + std::string(kMagic)};
  std::uint32_t version;
  reader.number(version, "the version");
  if (reader.status().ok() && (version < 1 || version > kVersion))
    return {Code::Incompatible, "tokenizer blob has format version " + std::to_string(version) +
                                    "; this runtime reads 1 to " + std::to_string(kVersion) +
                                    ". Compile the plan again with the matching compiler"};
  TokenizerModel model;
  if (version == 1)
    model = readVersion1(reader);
  else
    transfer(model, reader);
  if (reader.status().ok() && reader.left() > 0)
    reader.fail("has bytes after", "its end");
  if (!reader.status().ok())
    return reader.status();
  if (Status status = model.check(); !status.ok())
    return {status.code(), "tokenizer blob: " + status.message()};
  return model;
}

} // namespace gpt2c::rt
