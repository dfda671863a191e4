// rope: turns pairs of elements of heads by position, x c - y s and x s + y c, in units of as many
// pairs as 16 bytes have elements.
//
// Config: X (storage of x and y), Table (of cosines and sines), Position (an integer), Heads,
// Turned (the first of them, whose pairs are turned; the others are copied), Size (elements of a
// head, all of them in pairs, a multiple of 2 Unit), Unit, Interleaved (pairs are neighbours, else
// an element of either half), ToHalves (interleaved pairs are stored in halves), OfFirst and
// Shared: positions of each sequence's first token, or of each token of all sequences, else of each
// token.
// Kernel: y, x [rows, Heads, Size], positions, cosines and sines [places, Size / 2], places, rows,
// seq (rows of a sequence).
// Grid: any, ceil(rows * Heads * Size / 2 / Unit / threads) is one round; block: threads.
// Bytes: those of x and y; flops: 3 per element, 7 of one that is normed.
#pragma once

#include "templates/device/turn_pair.cuh"

namespace gpt2c::tile {

/// One over the root mean square of a head, of which each of Size / 2 / Unit lanes has a unit of
/// either half: they are neighbours in a warp, where they are a power of two. Else a thread reads
/// the whole head, whose other parts come out of L1.
template <typename C>
__device__ __forceinline__ float headFactor(const float (&a)[C::Unit], const float (&b)[C::Unit],
                                            const typename C::X *head, float epsilon) {
  constexpr int lanes = C::Size / 2 / C::Unit;
  float squares = 0.0f;
  if constexpr (lanes <= 32 && (lanes & (lanes - 1)) == 0) {
#pragma unroll
    for (int k = 0; k < C::Unit; k++)
      squares = fmaf(a[k], a[k], fmaf(b[k], b[k], squares));
    // Heads of a warp need not all be normed.
    const unsigned all = lanes == 32 ? fullWarp : (1u << lanes % 32) - 1,
                   mine = all << (threadIdx.x % 32 / lanes * lanes);
    squares = warpReduce<Sum, lanes>(squares, mine);
  } else {
#pragma unroll 4
    for (int i = 0; i < C::Size; i += C::Unit) {
      float v[C::Unit];
      loadFloats<C::Unit>(head + i, v);
#pragma unroll
      for (int k = 0; k < C::Unit; k++)
        squares = fmaf(v[k], v[k], squares);
    }
  }
  return rsqrtf(squares / C::Size + epsilon);
}
template <int Unit>
__device__ __forceinline__ void scaleBy(float (&v)[Unit], float factor, const float *scale) {
  float gain[Unit];
  loadFloats<Unit>(scale, gain);
#pragma unroll
  for (int k = 0; k < Unit; k++)
    v[k] *= factor * gain[k];
}

template <typename C>
__device__ __forceinline__ void
rope(typename C::X *y, const typename C::X *x, const typename C::Position *positions,
     const typename C::Table *cosines, const typename C::Table *sines, const float *scale,
     float epsilon, i64 places, i64 rows, i64 seq, i64 block, i64 blocks) {
  constexpr int unit = C::Unit, half = C::Size / 2, unitsOfRow = C::Heads * (half / unit);
  static_assert(half % unit == 0);
  waitForPredecessor();
  for (i64 i = block * blockDim.x + threadIdx.x; i < rows * unitsOfRow; i += blocks * blockDim.x) {
    const i64 row = i / unitsOfRow;
    const int inRow = int(i - row * unitsOfRow), head = inRow / (half / unit),
              first = inRow % (half / unit) * unit; // pair
    const i64 ofHead = (row * C::Heads + head) * C::Size;
    const int inHead = (C::Interleaved ? 2 : 1) * first;
    const i64 at = ofHead + inHead;
    constexpr int apart = C::Interleaved ? unit : half;
    float a[unit], b[unit];
    loadFloats<unit>(x + at, a);
    loadFloats<unit>(x + at + apart, b);
    if (head < C::Turned) {
      if constexpr (C::Normed) {
        const float factor = headFactor<C>(a, b, x + ofHead, epsilon);
        scaleBy(a, factor, scale + head * C::Size + inHead);
        scaleBy(b, factor, scale + head * C::Size + inHead + apart);
      }
      const unsigned sequence = (unsigned)row / (unsigned)seq,
                     token = (unsigned)row - sequence * (unsigned)seq;
      const i64 position = C::OfFirst  ? (i64)positions[sequence] + token
                           : C::Shared ? (i64)positions[token]
                                       : (i64)positions[row];
      const i64 place = min(position < 0 ? -position : position, places - 1) * half + first;
      float c[unit], s[unit];
      loadFloats<unit>(cosines + place, c);
      loadFloats<unit>(sines + place, s);
      auto turn = [&](float &low, float &high, int pair) {
        turnPair(low, high, c[pair], position < 0 ? -s[pair] : s[pair]);
      };
      if constexpr (C::Interleaved) {
#pragma unroll
        for (int k = 0; k < unit / 2; k++) {
          turn(a[2 * k], a[2 * k + 1], k);
          turn(b[2 * k], b[2 * k + 1], unit / 2 + k);
        }
      } else {
#pragma unroll
        for (int k = 0; k < unit; k++)
          turn(a[k], b[k], k);
      }
      if constexpr (C::ToHalves) {
        float low[unit], high[unit];
#pragma unroll
        for (int k = 0; k < unit; k++) {
          const float(&of)[unit] = k < unit / 2 ? a : b;
          low[k] = of[2 * k % unit];
          high[k] = of[2 * k % unit + 1];
        }
        storeFloats<unit>(y + at - first, low);
        storeFloats<unit>(y + at - first + half, high);
        continue;
      }
    }
    storeFloats<unit>(y + at, a);
    storeFloats<unit>(y + at + apart, b);
  }
}

} // namespace gpt2c::tile
