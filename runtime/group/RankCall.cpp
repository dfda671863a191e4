#include "runtime/group/RankCall.h"

#include <cstring>
#include <type_traits>

namespace gpt2c::rt {

namespace {

Result<RankReply> performExtend(Backend &backend, const RankCall &call) {
  std::vector<Segment> segments(call.sequences.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    segments[i].tokens = call.sequences[i];
    segments[i].past = call.past[i];
    segments[i].pages = call.pages[i];
    segments[i].wantLogits = call.wantLogits;
  }
  if (Status s = backend.extend(segments); !s.ok())
    return s;
  Result<RowsOutput> rows = backend.extended();
  if (!rows)
    return rows.status();
  RankReply reply;
  reply.rows = rows.take();
  return reply;
}

Result<RankReply> performRun(Backend &backend, const RankCall &call) {
  const auto functions = backend.functions();
  if (call.numbers[0] < 0 || size_t(call.numbers[0]) >= functions.size())
    return {Code::Corrupt, "there is no function " + std::to_string(call.numbers[0])};
  Result<std::vector<HostTensor>> out =
      backend.run(*functions[size_t(call.numbers[0])], call.tensors, call.symbols);
  if (!out)
    return out.status();
  RankReply reply;
  reply.tensors = out.take();
  return reply;
}

/// How many numbers a call has.
size_t numbersOf(const RankCall &call) {
  switch (call.kind) {
  case RankCall::MovePages:
    return (call.numbers.size() + 2) / 3 * 3;
  case RankCall::Decode:
  case RankCall::AllocatePages:
  case RankCall::Run:
    return 1;
  case RankCall::WriteKv:
  case RankCall::AllocateHostPages:
    return 2;
  case RankCall::ReadKv:
    return 4;
  default:
    return 0;
  }
}

template <typename T> Result<RankReply> replyWith(Result<T> result, T RankReply::*member) {
  if (!result)
    return result.status();
  RankReply reply;
  reply.*member = result.take();
  return reply;
}

Result<RankReply> replyTo(const Status &s) { return s.ok() ? Result<RankReply>(RankReply()) : s; }

} // namespace

Status moveNow(Backend &backend, std::span<const PageMove> moves) {
  Result<MovedPages> now = backend.movedPages(false);
  if (!now)
    return now.status();
  const auto wanted = now->out + now->in + int64_t(moves.size());
  if (Status s = backend.movePages(moves); !s.ok())
    return s;
  do
    now = backend.movedPages(true);
  while (now && now->out + now->in < wanted);
  return now.status();
}

Result<RankReply> perform(Backend &backend, const RankCall &call) {
  const auto &n = call.numbers;
  if (n.size() != numbersOf(call))
    return {Code::Corrupt, "a call of ranks lacks its numbers"};
  switch (call.kind) {
  case RankCall::Prefill:
    return replyWith(backend.prefill(call.sequences, call.past, call.wantLogits), &RankReply::step);
  case RankCall::Decode:
    return replyWith(backend.decode(int(n[0])), &RankReply::decoded);
  case RankCall::Step:
    return replyWith(backend.step(call.past, call.wantLogits), &RankReply::step);
  case RankCall::AllocatePages:
    return replyTo(backend.allocatePages(uint64_t(n[0])));
  case RankCall::Extend:
    return performExtend(backend, call);
  case RankCall::Run:
    return performRun(backend, call);
  case RankCall::WriteKv:
    return replyTo(backend.writeKv(int(n[0]), plan::KvPart(n[1]), call.tensors.at(0)));
  case RankCall::ReadKv: {
    Result<HostTensor> values = backend.readKv(int(n[0]), plan::KvPart(n[1]), n[2], n[3]);
    if (!values)
      return values.status();
    RankReply reply;
    reply.tensors.push_back(values.take());
    return reply;
  }
  case RankCall::AllocateHostPages:
    return replyTo(backend.allocateHostPages(int32_t(n[0]), n[1] != 0));
  case RankCall::MovePages: {
    const PagedState state = backend.pagedState();
    std::vector<PageMove> moves;
    for (size_t i = 0; i < n.size(); i += 3) {
      if (n[i] < 0 || n[i] >= state.pages || n[i + 1] < 0 || n[i + 1] >= state.hostPages)
        return {Code::Corrupt, "a rank is to copy a page that is not there"};
      moves.push_back({int32_t(n[i]), int32_t(n[i + 1]), n[i + 2] != 0});
    }
    return replyTo(moveNow(backend, moves));
  }
  case RankCall::End:
    break;
  }
  return RankReply();
}

//===-- Bytes ----------------------------------------------------------------------------===//

namespace {

/// Writes and reads the same fields in the same order. Lists begin with their length.
class Writer {
public:
  template <typename T> void operator()(const T &value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto *from = reinterpret_cast<const std::byte *>(&value);
    bytes.insert(bytes.end(), from, from + sizeof(T));
  }
  template <typename T> void operator()(const std::vector<T> &list) {
    (*this)(uint64_t(list.size()));
    if constexpr (std::is_trivially_copyable_v<T>) {
      const auto *from = reinterpret_cast<const std::byte *>(list.data());
      bytes.insert(bytes.end(), from, from + list.size() * sizeof(T));
    } else {
      for (const T &value : list)
        (*this)(value);
    }
  }
  void operator()(const std::string &text) { (*this)(std::vector<char>(text.begin(), text.end())); }
  void operator()(const HostTensor &t) {
    (*this)(t.dtype);
    (*this)(t.shape);
    (*this)(t.data);
  }

  std::vector<std::byte> bytes;
};

class Reader {
public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T> void operator()(T &value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes_.size() < sizeof(T))
      return fail();
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
  }
  template <typename T> void operator()(std::vector<T> &list) {
    uint64_t count = 0;
    (*this)(count);
    if constexpr (std::is_trivially_copyable_v<T>) {
      if (count > bytes_.size() / sizeof(T))
        return fail();
      list.resize(count);
      if (count)
        std::memcpy(list.data(), bytes_.data(), count * sizeof(T));
      bytes_ = bytes_.subspan(count * sizeof(T));
    } else {
      if (count > bytes_.size() / sizeof(uint64_t)) // each begins with a length at least
        return fail();
      list.resize(count);
      for (T &value : list)
        (*this)(value);
    }
  }
  void operator()(std::string &text) {
    std::vector<char> chars;
    (*this)(chars);
    text.assign(chars.begin(), chars.end());
  }
  void operator()(HostTensor &t) {
    (*this)(t.dtype);
    (*this)(t.shape);
    (*this)(t.data);
    uint64_t bytes = t.dtype <= plan::DType::MAX ? dtypeBytes(t.dtype) : 0;
    for (int64_t d : t.shape)
      if (d < 0 || __builtin_mul_overflow(bytes, uint64_t(d), &bytes))
        return fail();
    if (!t.shape.empty() && bytes != t.data.size())
      fail();
  }

  bool done() const { return ok_ && bytes_.empty(); }

private:
  void fail() {
    ok_ = false;
    bytes_ = {};
  }
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

template <typename Fields, typename Call> void forFields(Fields &f, Call &call) {
  f(call.kind);
  f(call.sequences);
  f(call.past);
  f(call.pages);
  f(call.wantLogits);
  f(call.numbers);
  f(call.tensors);
  f(call.symbols);
}

} // namespace

std::vector<std::byte> encode(const RankCall &call) {
  Writer w;
  forFields(w, call);
  return std::move(w.bytes);
}

Result<RankCall> decodeCall(std::span<const std::byte> bytes) {
  RankCall call;
  Reader r(bytes);
  forFields(r, call);
  const size_t n = call.sequences.size();
  const bool fits =
      call.kind != RankCall::Extend || (call.past.size() == n && call.pages.size() == n);
  const bool has = call.kind != RankCall::WriteKv || call.tensors.size() == 1;
  if (!r.done() || call.kind > RankCall::End || !fits || !has ||
      call.numbers.size() != numbersOf(call))
    return {Code::Corrupt, "what came from another rank is no call"};
  return call;
}

std::vector<std::byte> encode(const Result<RankReply> &reply) {
  Writer w;
  w(reply.status().code());
  w(reply.status().message());
  w(reply ? reply->tensors : std::vector<HostTensor>());
  return std::move(w.bytes);
}

Result<RankReply> decodeReply(std::span<const std::byte> bytes) {
  Code code = Code::Ok;
  std::string message;
  RankReply reply;
  Reader r(bytes);
  r(code);
  r(message);
  r(reply.tensors);
  if (!r.done() || code > Code::OutOfMemory)
    return {Code::Corrupt, "what came from another rank is no answer"};
  if (code != Code::Ok)
    return {code, std::move(message)};
  return reply;
}

} // namespace gpt2c::rt
