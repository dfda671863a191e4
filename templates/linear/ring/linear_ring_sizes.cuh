// What linear_ring.cuh has of its configuration: how K, columns and shared memory are divided.
#pragma once

#include "templates/linear/rows/linear_rows.cuh"

namespace gpt2c {

template <typename C> struct LinearRing {
  using W = typename C::W;
  static constexpr int computing = 32 * C::Warps, threads = computing + 32;
  static constexpr bool grouped = C::WGroup > 0;
  /// Of eight k in a load, and k of a quad's loads; where weights are in groups of loads of one
  /// group or of 128 columns of it, each of eight k.
  static constexpr int unit = grouped ? 8 : elementsPer16Bytes<W>(),
                       piece = grouped ? minInt(C::WGroup, 128) : 4 * unit, packs = piece / 32;
  static constexpr int ofBlock = C::K / C::Splits, chunk = ofBlock / C::Chunks;
  static constexpr int inChunk = chunk / piece, pieces = ceilDiv(inChunk, C::Warps); // of a warp
  static constexpr int groups = C::Rows / 8, pairs = ceilDiv(groups, 2); // of eight rows
  static constexpr int chains = pairs > 1 ? 2 : 4; // of mmas, none of which waits for another's
  static constexpr int tiles = ceilDiv(C::Columns, 8);
  static constexpr int own = ceilDiv(C::Columns, C::Splits); // columns that a block ends
  // In bytes, from one row of a slot to the next: an odd multiple of what a quad reads of it.
  static constexpr int ofQuad = 4 * unit * Operand<W>::bits / 8,
                       rowBytes = chunk * Operand<W>::bits / 8,
                       pitch = rowBytes + (rowBytes % (2 * ofQuad) == 0 ? ofQuad : 0);
  static constexpr int slotBytes = 8 * pitch;
  static constexpr bool norm = C::Norm != NormKind::None;
  // In shared memory, in floats: accumulators, what other blocks send, moments of the norm.
  static constexpr int sums = C::Warps * tiles * C::Rows * 8;
  static constexpr int received = C::Splits > 1 ? C::Splits *C::Rows *own : 0;
  static constexpr int ofNorm = norm ? C::Warps * 2 * C::Rows : 0;
  static constexpr int barriers = 8 * (2 * C::Slots + 2); // bytes, at the end
  static constexpr int sharedBytes =
      C::Slots * slotBytes + 4 * (sums + received + ofNorm) + barriers;
  static_assert(C::K % (C::Splits * C::Chunks * piece) == 0 && (C::Splits == 1 || !norm));
  static_assert(C::Rows == 8 || C::Rows % 16 == 0);
  static_assert(grouped == (Operand<W>::bits < 8) && (!grouped || C::WGroup % piece == 0));
};

} // namespace gpt2c
