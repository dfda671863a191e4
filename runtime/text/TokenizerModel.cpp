#include "runtime/text/TokenizerModel.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace gpt2c::rt {
namespace {

constexpr std::string_view kMagic = "G2CT";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kKnownFlags =
    TokenizerModel::Whole | TokenizerModel::Added | TokenizerModel::Special;

void writeNumber(std::string &out, std::uint32_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(char(value | 0x80));
  out.push_back(char(value));
}

/// Reads a blob front to back. The first failure sticks: later reads return zeros.
class Reader {
public:
  explicit Reader(std::span<const std::uint8_t> blob) : blob_(blob) {}

  std::uint32_t number(const char *what) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      if (at_ == blob_.size())
        return fail("ends inside", what), 0;
      std::uint8_t byte = blob_[at_++];
      value |= std::uint64_t(byte & 0x7F) << shift;
      if (byte & 0x80)
        continue;
      if ((byte == 0 && shift > 0) ||
          value > std::uint64_t(std::numeric_limits<std::int32_t>::max()))
        break;
      return std::uint32_t(value);
    }
    return fail("holds a malformed number for", what), 0;
  }

  std::string_view bytes(std::size_t count, const char *what) {
    if (count > blob_.size() - at_)
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
  bool ok() const { return status_.ok(); }
  const Status &status() const { return status_; }

private:
  std::span<const std::uint8_t> blob_;
  std::size_t at_ = 0;
  Status status_;
};

} // namespace

Status TokenizerModel::check() const {
  auto exists = [&](std::int32_t id) {
    return id >= 0 && std::size_t(id) < tokens.size() && !tokens[id].bytes.empty();
  };
  auto fail = [](std::string message) { return Status(Code::Corrupt, std::move(message)); };
  if (tokens.size() > std::size_t(std::numeric_limits<std::int32_t>::max()))
    return fail("more tokens than ids");
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    std::uint8_t flags = tokens[id].flags;
    if ((flags & ~kKnownFlags) || ((flags & Special) && !(flags & Added)) ||
        (flags && tokens[id].bytes.empty()))
      return fail("token " + std::to_string(id) + " has contradictory flags");
  }
  for (int byte = 0; byte < 256; ++byte)
    if (!exists(byteTokens[byte]) || tokens[byteTokens[byte]].bytes != std::string(1, char(byte)))
      return fail("byte " + std::to_string(byte) + " has no token");
  std::vector<std::uint64_t> pairs;
  pairs.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge &merge = merges[rank];
    if (!exists(merge.left) || !exists(merge.right) || !exists(merge.result))
      return fail("merge " + std::to_string(rank) + " names a token that does not exist");
    std::string_view left = tokens[merge.left].bytes, right = tokens[merge.right].bytes,
                     result = tokens[merge.result].bytes;
    if (result.size() != left.size() + right.size() || !result.starts_with(left) ||
        !result.ends_with(right))
      return fail("merge " + std::to_string(rank) + " does not join its two tokens");
    pairs.push_back(std::uint64_t(merge.left) << 32 | std::uint32_t(merge.right));
  }
  std::ranges::sort(pairs);
  if (std::ranges::adjacent_find(pairs) != pairs.end())
    return fail("two merges join the same pair");
  if (eos != -1 && !exists(eos))
    return fail("the end-of-text token does not exist");
  return {};
}

std::string TokenizerModel::serialize() const {
  std::string out(kMagic);
  writeNumber(out, kVersion);
  writeNumber(out, tokens.size());
  for (const Token &token : tokens) {
    writeNumber(out, token.flags);
    writeNumber(out, token.bytes.size());
    out += token.bytes;
  }
  for (std::int32_t id : byteTokens)
    writeNumber(out, id);
  writeNumber(out, merges.size());
  for (const Merge &merge : merges) {
    writeNumber(out, merge.left);
    writeNumber(out, merge.right);
    writeNumber(out, merge.result);
  }
  writeNumber(out, eos + 1);
  return out;
}

Result<TokenizerModel> TokenizerModel::parse(std::span<const std::uint8_t> blob) {
  Reader reader(blob);
  if (reader.bytes(kMagic.size(), "the magic") != kMagic)
    return {Code::Corrupt, "tokenizer blob, byte 0: does not begin with " + std::string(kMagic)};
  std::uint32_t version = reader.number("the version");
  if (reader.ok() && version != kVersion)
    return {Code::Incompatible, "tokenizer blob has format version " + std::to_string(version) +
                                    "; this runtime reads version " + std::to_string(kVersion) +
                                    ". Compile the plan again with the matching compiler"};
  TokenizerModel model;
  // Counts are untrusted: memory grows with the bytes that are there, not with what is promised.
  std::uint32_t tokenCount = reader.number("the number of tokens");
  model.tokens.reserve(std::min<std::size_t>(tokenCount, reader.left() / 2));
  for (std::uint32_t id = 0; id < tokenCount && reader.ok(); ++id) {
    std::uint32_t flags = reader.number("a token's flags");
    if (flags > kKnownFlags)
      reader.fail("holds unknown flags of", "a token");
    std::uint32_t length = reader.number("a token's length");
    model.tokens.push_back({std::string(reader.bytes(length, "a token")), std::uint8_t(flags)});
  }
  for (std::int32_t &id : model.byteTokens)
    id = reader.number("the byte tokens");
  std::uint32_t mergeCount = reader.number("the number of merges");
  model.merges.reserve(std::min<std::size_t>(mergeCount, reader.left() / 3));
  for (std::uint32_t rank = 0; rank < mergeCount && reader.ok(); ++rank) {
    Merge merge;
    merge.left = reader.number("a merge");
    merge.right = reader.number("a merge");
    merge.result = reader.number("a merge");
    model.merges.push_back(merge);
  }
  model.eos = std::int32_t(reader.number("the end-of-text token")) - 1;
  if (reader.ok() && reader.left() > 0)
    reader.fail("has bytes after", "its end");
  if (!reader.ok())
    return reader.status();
  if (Status status = model.check(); !status.ok())
    return {status.code(), "tokenizer blob: " + status.message()};
  return model;
}

} // namespace gpt2c::rt
