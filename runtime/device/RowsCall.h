// What @extend takes, from segments.
#pragma once

#include "runtime/Status.h"
#include "runtime/device/Rows.h"

namespace gpt2c::rt {

/// The arguments of a call of @extend, i32 in row-major order.
struct RowsCall {
  int32_t rows = 0, pieces = 0;
  int32_t pagesOfSequence = 0;         ///< columns of `tables`
  std::vector<int32_t> ids, positions; ///< [1, rows]
  std::vector<int32_t> pieceWords;     ///< [pieces, 4]: row, count, position, table
  std::vector<int32_t> tables;         ///< [segments, pagesOfSequence]; unused entries are 0
  std::vector<int32_t> last;           ///< [segments]: the row of the segment's last token
  std::vector<int32_t> carry;          ///< [segments]: Segment::carry
};

/// The most tokens of a piece on a GPU, those that a block of attention computes together.
inline constexpr int32_t pieceTokens = 64;

/// What calls of @extend keep to.
struct RowsLimits {
  PagedState state;
  int32_t context = 0;                   ///< most tokens of a sequence
  int32_t vocabulary = 0;                ///< token ids are below; 0: not known
  int32_t pieceTokens = rt::pieceTokens; ///< most tokens of a piece
};

/// Usage, naming the segment, where segments do not keep to the limits: no or too many tokens, too
/// few pages, one that is not there or one in host memory that is written, a position beyond the
/// context, an id beyond the vocabulary, a carry without a call before of `carried` segments,
/// logits beside a sampled choice or too many adjustments or log probabilities of it, or a page
/// that one segment writes into and another has too, which may read it before or after that.
Status checkSegments(std::span<const Segment> segments, const RowsLimits &limits, int32_t carried);

/// Of segments that checkSegments() accepts. The id of a carried token is 0.
RowsCall makeRowsCall(std::span<const Segment> segments, const RowsLimits &limits);

} // namespace gpt2c::rt
