#include "runtime/session/SavedState.h"

#include "runtime/plan/KvLayout.h"
#include "runtime/plan/OutputFile.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include <xxhash.h>

namespace gpt2c::rt {

namespace {

/// Behind it stand the lengths [batch], the tokens of each sequence, and for each layer keys, then
/// values [batch, heads, longest, head_dim]. Behind each of these, and the header, is its XXH3-64.
/// All numbers are little endian.
struct Header {
  char magic[8] = {'\x89', 'g', '2', 'c', '-', 'k', 'v', '1'};
  uint64_t plan = 0; ///< Plan.model_hash
  int32_t batch = 0, layers = 0, heads = 0, headDim = 0;
  int32_t longest = 0; ///< tokens of the longest sequence
  int32_t dtype = 0;
};

std::span<const std::byte> bytesOf(const Header &h) { return std::as_bytes(std::span(&h, 1)); }

class Writer {
public:
  explicit Writer(const std::string &path) : file_(path) {}
  Status open() { return file_.open(); }
  /// The bytes and their checksum.
  Status operator()(std::span<const std::byte> bytes) {
    const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
    if (Status s = file_.write(bytes); !s.ok())
      return s;
    return file_.write(std::as_bytes(std::span(&hash, 1)));
  }
  Status commit() { return file_.commit(); }

private:
  OutputFile file_;
};

class Reader {
public:
  explicit Reader(const std::string &path) : path_(path), file_(path, std::ios::binary) {}
  bool opened() const { return file_.is_open(); }
  Status operator()(std::span<std::byte> bytes) {
    uint64_t hash = 0;
    file_.read(reinterpret_cast<char *>(bytes.data()), std::streamsize(bytes.size()));
    file_.read(reinterpret_cast<char *>(&hash), sizeof hash);
    if (!file_)
      return {Code::Corrupt, "'" + path_ + "' is cut off: save the state again"};
    if (hash != XXH3_64bits(bytes.data(), bytes.size()))
      return {Code::Corrupt, "'" + path_ + "' is damaged: save the state again"};
    return {};
  }
  bool ended() { return file_.peek() == std::ifstream::traits_type::eof(); }

private:
  std::string path_;
  std::ifstream file_;
};

Status isFloating(const plan::PlanT &meta) {
  if (!meta.kv)
    return {Code::Usage, "the plan has no KV state to save or restore"};
  if (isQuantised(*meta.kv))
    return {
        Code::Unsupported,
        "a KV state in int8 or fp8 is not saved: its rows and their scales lie apart on devices"};
  return {};
}

/// Why what a file holds does not fit the plan, or Ok.
Status fits(const Header &h, const plan::PlanT &meta, const std::string &path) {
  const plan::KvPlanT &kv = *meta.kv;
  if (h.plan != meta.model_hash)
    return {Code::Incompatible, "'" + path + "' is the state of another plan"};
  if (h.layers != kv.layers || h.heads != kv.heads || h.headDim != kv.head_dim ||
      h.dtype != int32_t(kv.dtype) || h.batch < 1 || h.longest < 1)
    return {Code::Corrupt, "'" + path + "' contradicts the plan that it is of"};
  if (h.batch > kv.max_batch || h.longest > kv.max_context)
    return {Code::Incompatible, "'" + path + "' holds " + std::to_string(h.batch) +
                                    " sequences of up to " + std::to_string(h.longest) +
                                    " tokens, the plan " + std::to_string(kv.max_batch) + " of " +
                                    std::to_string(kv.max_context)};
  return {};
}

} // namespace

Status saveState(Session &session, const std::string &path) {
  const plan::PlanT &meta = session.plan().meta();
  if (Status s = isFloating(meta); !s.ok())
    return s;
  const std::span<const int32_t> lengths = session.lengths();
  if (lengths.empty())
    return {Code::Usage, "there is no state to save: no sequence is in it"};
  const plan::KvPlanT &kv = *meta.kv;
  Header h;
  h.plan = meta.model_hash;
  h.batch = int32_t(lengths.size());
  h.layers = kv.layers, h.heads = kv.heads, h.headDim = kv.head_dim;
  h.longest = *std::ranges::max_element(lengths);
  h.dtype = int32_t(kv.dtype);
  Writer write(path);
  Status s = write.open();
  if (s.ok())
    s = write(bytesOf(h));
  if (s.ok())
    s = write(std::as_bytes(lengths));
  for (size_t b = 0; b < lengths.size() && s.ok(); ++b)
    s = write(std::as_bytes(session.held(b)));
  for (int layer = 0; layer < kv.layers; ++layer)
    for (const plan::KvPart part : {plan::KvPart::Key, plan::KvPart::Value}) {
      if (!s.ok())
        return s;
      const Result<HostTensor> values = session.backend().readKv(layer, part, h.batch, h.longest);
      s = values ? write(values->data) : values.status();
    }
  return s.ok() ? write.commit() : s;
}

Status restoreState(Session &session, const std::string &path) {
  const plan::PlanT &meta = session.plan().meta();
  if (Status s = isFloating(meta); !s.ok())
    return s;
  Reader read(path);
  if (!read.opened())
    return {Code::Io, "'" + path + "' cannot be read"};
  Header h;
  const Header expected;
  Status s = read(std::as_writable_bytes(std::span(&h, 1)));
  if (std::memcmp(h.magic, expected.magic, sizeof h.magic) != 0)
    return {Code::Corrupt, "'" + path + "' is no saved state"};
  if (s.ok())
    s = fits(h, meta, path);
  if (!s.ok())
    return s;
  session.endBatch();
  Tokens lengths(size_t(h.batch));
  std::vector<Tokens> held(size_t(h.batch));
  if (s = read(std::as_writable_bytes(std::span(lengths))); !s.ok())
    return s;
  for (size_t b = 0; b < held.size(); ++b) {
    if (lengths[b] < 1 || lengths[b] > h.longest)
      return {Code::Corrupt, "'" + path + "' has a sequence of no length"};
    held[b].resize(size_t(lengths[b]));
    if (s = read(std::as_writable_bytes(std::span(held[b]))); !s.ok())
      return s;
  }
  HostTensor values(meta.kv->dtype, {h.batch, h.heads, h.longest, h.headDim});
  for (int layer = 0; layer < h.layers; ++layer)
    for (const plan::KvPart part : {plan::KvPart::Key, plan::KvPart::Value}) {
      if (s = read(values.data); s.ok())
        s = session.backend().writeKv(layer, part, values);
      if (!s.ok())
        return s;
    }
  if (!read.ended())
    return {Code::Corrupt, "'" + path + "' goes on behind its end"};
  return session.adoptBatch(std::move(held));
}

} // namespace gpt2c::rt
