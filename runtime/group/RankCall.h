// A call of a backend as one thing that can be handed to other ranks, and sent.
#pragma once

#include "runtime/device/Backend.h"

#include <string>
#include <vector>

namespace gpt2c::rt {

/// What a call has no use for is empty.
struct RankCall {
  enum Kind : uint8_t {
    Prefill,
    Decode,
    Step,
    AllocatePages,
    Extend,
    Run,
    WriteKv,
    ReadKv,
    AllocateHostPages,
    MovePages,
    End ///< no further call comes
  } kind = End;
  std::vector<Tokens> sequences = {}; ///< of Extend: the tokens of each segment
  Tokens past = {};                   ///< of Extend: of each segment
  std::vector<Tokens> pages = {};     ///< of Extend: of each segment
  bool wantLogits = false;
  /// Decode: steps. AllocatePages: bytes. Run: the number of the function. WriteKv and ReadKv:
  /// layer, part; ReadKv besides: sequences, tokens. AllocateHostPages: pages, whether they are
  /// checked. MovePages: page, host page and whether it goes out, of each.
  std::vector<int64_t> numbers = {};
  std::vector<HostTensor> tensors = {};
  std::vector<int64_t> symbols = {};
};

struct RankReply {
  StepOutput step;
  std::vector<Tokens> decoded;
  RowsOutput rows;
  std::vector<HostTensor> tensors;
};

/// Makes the call; that of extend() is collected at once, and copies of pages have ended.
Result<RankReply> perform(Backend &backend, const RankCall &call);

/// Backend::movePages(), and the copies have ended. None may be under way.
Status moveNow(Backend &backend, std::span<const PageMove> moves);

/// Bytes of a call, and a call of bytes: Corrupt where they are none.
std::vector<std::byte> encode(const RankCall &call);
Result<RankCall> decodeCall(std::span<const std::byte> bytes);
/// The same of what other ranks answer: an error, or tensors.
std::vector<std::byte> encode(const Result<RankReply> &reply);
Result<RankReply> decodeReply(std::span<const std::byte> bytes);

} // namespace gpt2c::rt
