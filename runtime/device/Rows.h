// New tokens of any sequences in one call, over a KV state in pages: Backend::extend().
#pragma once

#include "runtime/sampling/SampledChoice.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpt2c::rt {

using Tokens = std::vector<int32_t>;

/// The KV state of a plan with @extend: pages of `pageTokens` tokens each, of all layers.
struct PagedState {
  int32_t pageTokens = 0; ///< 0: the plan has no @extend on this device
  int32_t pages = 0;      ///< how many there are, numbered from 0; 0 before allocatePages()
  int32_t maxRows = 0;    ///< the most new tokens of one call
  int32_t maxSegments = 0;
  int32_t maxSteps =
      0; ///< calls of up to so many segments of one token each are faster than others
  uint64_t pageBytes = 0; ///< of one page, all layers
  int32_t hostPages = 0;  ///< in host memory behind them: allocateHostPages()
  /// Whether calls read page h of host memory where it lies, as page `pages + h` of a segment: all
  /// of it crosses the link with each call, and nothing is written there.
  bool readsHostPages = false;
  std::string whyNotRead = {}; ///< of pages in host memory that calls do not read
  /// Of copies of pages to host memory and back, as measured then; 0: not known.
  double outBytesPerSecond = 0, inBytesPerSecond = 0;
};

/// A copy of one page between the device and host memory.
struct PageMove {
  int32_t page = 0, hostPage = 0; ///< each numbered from 0
  bool out = false;               ///< to the host; else to the device
};

/// Of all copies begun so far, those that have ended. Each way has an order of its own, in which
/// they were begun.
struct MovedPages {
  int64_t out = 0, in = 0;
  double outSeconds = 0, inSeconds = 0; ///< during which they were copied
};

/// New tokens of one sequence. The rows of a call are its segments' tokens, one behind the other.
struct Segment {
  std::span<const int32_t> tokens; ///< at least one
  int32_t past = 0;                ///< tokens of the sequence that its pages hold already
  /// Page i holds the sequence's tokens i * pageTokens to (i + 1) * pageTokens - 1: as many as
  /// past + tokens.size() need, or more. Any number of segments may have a page of tokens before
  /// `past`; one that a segment writes into no other segment of the call has, and it is on the
  /// device. Keys and values of the new tokens are written to positions past to
  /// past + tokens.size() - 1.
  std::span<const int32_t> pages;
  /// >= 0: tokens[0] is not read; the choice that the call begun before this one made for its
  /// segment of this number stands in, so that the host need not have seen it.
  int32_t carry = -1;
  bool wantLogits = false;
  /// How the choice behind the segment is made, where Backend::samples(); none: greedily. What is
  /// carried counts as a token of the answer that the adjustments do not have yet, and its mask is
  /// asked for behind that. Not together with wantLogits.
  std::optional<SampledChoice> sampled = {};
};

struct RowsOutput {
  /// The choice behind each segment's last token; -1: its logits are NaN, which a GPU sees in those
  /// alone that are wanted or sampled; -2: all sampled ones are minus infinity. What carries that
  /// choice computes something, which means nothing.
  Tokens next;
  std::vector<float> logits; ///< [segments that wanted them, vocab], in their order
  /// Of the segments whose sampled->row asks for one, in their order; without meaning where there
  /// is no choice.
  std::vector<LogprobReport> reports;
};

} // namespace gpt2c::rt
