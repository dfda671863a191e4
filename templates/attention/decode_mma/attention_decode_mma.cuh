// cached_attention for few queries (decode) in fp16 or bf16 on tensor cores: the op, the parameters
// and the grid of attention_decode.cuh, for Append.
//
// Two products by mma.m16n8k16 share one layout. For the scores A is the query in all 16 rows and B
// are eight keys, so lane 4 g + c gets the scores of keys 2c and 2c + 1. For the output A is V^T,
// 16 elements by 16 keys, and B the probabilities of keys 2c, 2c + 1, 2c + 8, 2c + 9: those which
// the lane has, without a shuffle. The order of elements within a sum is free as long as both
// operands agree, so a lane takes neighbouring elements of K and V in wide loads, and what they
// load are operands already: nothing of the state goes through shared memory. The columns of B are
// free too: even ones have the probabilities in X, odd ones what that leaves of them, so that their
// sum is off by 2^-22 of them, in bf16 by 2^-16.
//
// A round is as many keys as a warp has registers for. The first one of each warp is on its way
// before the kernel waits for its predecessor, which only computes qkv; afterwards a round's keys
// are fetched as soon as those before are multiplied. New keys are a warp's each and join the
// warps' parts at the end.
//
// An int8 state (kv_append.cuh) is multiplied as it is with a query of two bytes for each element,
// and its scales are multiplied to the scores. Its values become halves plus 1152, which takes a
// permutation of bytes; 1152 times the sum of the probabilities, with the scales of values in them,
// comes off at the end.
//
// With pages (state_rows.cuh) a round lies in one, and with Parts > 0 keys of a prefix are left out
// as in attention_decode.cuh.
//
// Config: X (__half or __nv_bfloat16), Y (X's type or signed char), Kv (X's type, or signed char
// beside __half), HeadDim (a multiple of 16, of 32 for int8, at most 128), Heads, Warps (>=
// Queries), Splits, Cluster, Queries (most of a sequence), Causal, Mask, PageTokens (a multiple of
// 32; without Mask), Parts. Heads of an int8 state begin at multiples of 16 bytes.
#pragma once

#include "templates/attention/decode_mma/decode_mma_keys.cuh"
#include "templates/attention/parts/merge_splits.cuh"
#include "templates/attention/parts/prefix_parts.cuh"
#include "templates/attention/parts/state_rows.cuh"

namespace gpt2c::tile {

/// The parameters of the kernel and of the tile: query `row` of head h, one of Splits ranges of
/// keys.
template <typename C, typename Given> struct AttentionDecodeMmaParams {
  const typename C::X *qkv;
  typename C::Kv *kv;
  typename C::Y *out;
  const int *past, *keyMask; // with pages the mask is `tables`
  float *partial;
  unsigned *counters;
  const int *prefixes;
  const float *prefixParts;
  AttentionSizes sizes;
  int split, h;
  i64 row;
  const Given &given;
};

/// One query of one head and the keys of one split, in phases; `run` has their order.
template <typename C, typename Given> struct AttentionDecodeMmaTile {
  using X = typename C::X;
  using Kv = typename C::Kv;
  using M = DecodeMma<C>;
  static constexpr int D = C::HeadDim, width = C::Heads * D, round = M::round, steps = M::steps;
  static constexpr bool int8 = M::int8;
  static constexpr int ofPrefix = C::Warps + C::Queries;
  static constexpr int parts = ofPrefix + (C::Parts > 0); // of warps, new keys, the prefix

  const AttentionDecodeMmaParams<C, Given> p;
  // Shared memory, of each part: maximum, sum and output.
  float (&partMax)[parts], (&partSum)[parts], (&partOut)[parts][D];

  int warp, lane, g, c;
  i64 b;
  int s, begin, stored; // the query's number; tokens of the state, and those it has room for
  StateRows<C> rows;
  PagesAhead<C, round * C::Warps> pages; // of this warp's rounds
  int newPage;                           // of the query's own token
  int number, endRound;                  // this warp's next round, the end of this split's
  Pack<Kv, M::kWidth> key[round / 8][M::kRuns];
  Pack<Kv, M::vWidth> value[round / 16][4][M::vRuns];
  float2 keyScale[round / 8], valueScale[round / 8];
  unsigned q[steps][2];
  float queryScale;
  float top = negativeInfinity(), sum = 0.0f, acc[steps][4] = {};
  float weights[4] = {}; // int8: the sums of what acc adds up of the probabilities

  __device__ __forceinline__ AttentionDecodeMmaTile(const AttentionDecodeMmaParams<C, Given> &p,
                                                    float (&partMax)[parts],
                                                    float (&partSum)[parts],
                                                    float (&partOut)[parts][D])
      : p(p), partMax(partMax), partSum(partSum), partOut(partOut) {}

  __device__ __forceinline__ void run() {
    locate();
    MergeSplits<C>::begin(p.split);
    if (number < endRound) {
      fetchKeys(number);
      fetchValues(number);
    }
    waitForPredecessor();
    releaseSuccessor();
    loadQuery();
    if constexpr (C::Parts > 0)
      if (warp == C::Warps - 1)
        PrefixParts<C>::take(p.split, p.prefixParts, p.prefixes, b, p.row * C::Heads + p.h,
                             partMax[ofPrefix], partSum[ofPrefix], partOut[ofPrefix]);
    attendNewKey();
    if constexpr (int8)
      queryScale *= M::splitQuery(q);
#pragma unroll 1
    for (; number < endRound; number += C::Warps)
      attendRound();
    finish();
  }

  __device__ __forceinline__ void locate() {
    warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    b = p.row / p.sizes.seq;
    s = (int)(p.row % p.sizes.seq);
    begin = p.past != nullptr ? p.past[b] : 0;
    stored = min(begin, p.sizes.context);
    rows.locate(p.kv, p.keyMask, p.sizes, b, p.h);
    // Rounds from firstRound to endRound are this split's, every Warps-th of them this warp's.
    const int from = PrefixParts<C>::beginOf(p.prefixes, b) / round;
    const int rounds = (stored + round - 1) / round - from;
    const int firstRound = from + p.split * rounds / C::Splits;
    endRound = from + (p.split + 1) * rounds / C::Splits;
    number = firstRound + warp;
    pages.start(rows, p.sizes, number * round);
    newPage = rows.pageOf(min(begin + s, p.sizes.context - 1));
  }
  __device__ __forceinline__ bool hidden(int j) const {
    return C::Mask && p.keyMask != nullptr && p.keyMask[b * p.sizes.maskStride + j] == 0;
  }

  // Loads of a round
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void fetchKeys(int number) {
    fetch(number, [&](auto place) { loadKeys(number, place); });
  }
  __device__ __forceinline__ void fetchValues(int number) {
    fetch(number, [&](auto place) { loadValues(number, place); });
  }
  /// place(constant, lanes) is row `constant + lanes` of the round. Only the last round has rows
  /// behind the last one; they are that one again, and hidden later.
  template <typename Load> __device__ __forceinline__ void fetch(int number, Load &&load) {
    if ((number + 1) * round <= stored)
      load([](int constant, int lanes) { return constant + lanes; });
    else
      load([&](int constant, int lanes) {
        return min(constant + lanes, stored - 1 - number * round);
      });
  }
  __device__ __forceinline__ const Kv *rowsOf(int part, int number) {
    return rows.row(part, pages.of(number * round), number * round);
  }
  template <typename Place> __device__ __forceinline__ void loadKeys(int number, Place place) {
    const Kv *base = rowsOf(0, number) + c * M::kWidth;
    const float *scales[2] = {};
    if constexpr (int8)
#pragma unroll
      for (int part = 0; part < 2; part++)
        scales[part] = rows.scale(part, pages.of(number * round), number * round);
#pragma unroll
    for (int t = 0; t < round / 8; t++) {
      const Kv *from = base + place(t * 8, g) * D;
#pragma unroll
      for (int i = 0; i < M::kRuns; i++)
        key[t][i] = loadPackStreaming<M::kWidth>(from + i * 4 * M::kWidth);
      if constexpr (int8) {
        const int pair = place(t * 8, c * 2) & ~1;
        keyScale[t] = *reinterpret_cast<const float2 *>(scales[0] + pair);
        valueScale[t] = *reinterpret_cast<const float2 *>(scales[1] + pair);
      }
    }
  }
  template <typename Place> __device__ __forceinline__ void loadValues(int number, Place place) {
    const Kv *base = rowsOf(1, number) + g * M::vWidth;
#pragma unroll
    for (int t = 0; t < round / 16; t++)
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const Kv *from = base + place(t * 16 + k / 2 * 8 + k % 2, c * 2) * D;
#pragma unroll
        for (int i = 0; i < M::vRuns; i++)
          value[t][k][i] = loadPackStreaming<M::vWidth>(from + i * 8 * M::vWidth);
      }
  }

  // The query and the new keys
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ const X *token() const { return p.qkv + p.row * 3 * width + p.h * D; }
  __device__ __forceinline__ void loadQuery() {
    queryScale = p.sizes.base2();
#pragma unroll
    for (int t = 0; t < steps; t++) {
      const Pack<X, 4> part = loadPack<4>(token() + M::elementOf(t, c));
      q[t][0] = part.raw.x;
      q[t][1] = part.raw.y;
    }
  }
  /// The last split has the new keys, number `warp` is this warp's: they are done while those of
  /// the state are on their way.
  __device__ __forceinline__ void attendNewKey() {
    const int fresh = p.split == C::Splits - 1 ? (C::Causal ? s + 1 : p.sizes.seq) : 0;
    NewKey<C> newKey;
    if (warp < fresh) {
      const X *from = p.qkv + (b * p.sizes.seq + warp) * 3 * width + width + p.h * D;
      newKey.load(token(), from, from + width);
    }
    if (warp >= C::Queries)
      return;
    if constexpr (int8)
      newKey.quantise();
    const int position = begin + warp;
    if (warp == s && warp < fresh && position < p.sizes.context && newPage >= 0)
#pragma unroll
      for (int part = 0; part < 2; part++)
        newKey.store(part, rows.row(part, newPage, position),
                     int8 ? rows.scale(part, newPage, position) : nullptr);
    const float score = newKey.score() * p.sizes.base2();
    if (lane == 0) {
      const bool visible = warp < fresh && !hidden(position);
      partMax[C::Warps + warp] = visible ? score : negativeInfinity();
      partSum[C::Warps + warp] = visible ? 1.0f : 0.0f;
    }
    newKey.forElements(
        [&](int i, int d) { partOut[C::Warps + warp][d] = newKey.row[1][i] * newKey.scale[1]; });
  }

  // A round of keys
  // -----------------------------------------------------------------------------------------------

  /// The loads of the warp's next round start as soon as the registers of this one are free.
  __device__ __forceinline__ void attendRound() {
    const bool more = number + C::Warps < endRound;
    float score[round / 8][2], largest = top;
    float2 ofValues[round / 8];
    multiplyKeys(score, ofValues, largest);
    if (more)
      fetchKeys(number + C::Warps);
    raise(warpReduce<Max, 4>(largest)); // of the warp: all g have the same scores
    // Without a visible key so far all probabilities are zero.
    const float against = top == negativeInfinity() ? 0.0f : top;
#pragma unroll
    for (int t = 0; t < round / 16; t++) {
      unsigned operand[2];
      probabilities(operand, t, score, ofValues, against);
      multiplyValues(t, operand);
    }
    if (more)
      fetchValues(number + C::Warps);
  }
  __device__ __forceinline__ void multiplyKeys(float (&score)[round / 8][2],
                                               float2 (&ofValues)[round / 8], float &largest) {
#pragma unroll
    for (int t = 0; t < round / 8; t++) {
      float product[2];
      if constexpr (int8) {
        int sums[4] = {};
#pragma unroll
        for (int i = 0; i < steps; i += 2) {
          const unsigned a[4] = {q[i][0], q[i][1], q[i + 1][0], q[i + 1][1]};
          mma16832(sums, a, M::word(key[t], i), M::word(key[t], i + 1));
        }
        product[0] = (float)(sums[0] * 256 + sums[2]) * keyScale[t].x;
        product[1] = (float)(sums[1] * 256 + sums[3]) * keyScale[t].y;
      } else {
        float sums[4] = {};
#pragma unroll
        for (int i = 0; i < steps; i++) {
          const unsigned a[4] = {q[i][0], q[i][0], q[i][1], q[i][1]};
          Mma<X>::multiply(sums, a, M::word(key[t], 2 * i), M::word(key[t], 2 * i + 1));
        }
        product[0] = sums[0];
        product[1] = sums[1];
      }
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int j = number * round + t * 8 + c * 2 + e;
        score[t][e] = j < stored && !hidden(j) ? product[e] * queryScale : negativeInfinity();
        largest = fmaxf(largest, score[t][e]);
      }
      if constexpr (int8)
        ofValues[t] = valueScale[t];
    }
  }
  /// Makes `largest` the maximum where it is larger.
  __device__ __forceinline__ void raise(float largest) {
    if (largest > top) {
      const float keep = exp2Approximate(top - largest);
      top = largest;
      sum *= keep;
#pragma unroll
      for (int m = 0; m < steps; m++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          acc[m][e] *= keep;
      weights[0] *= keep;
    }
  }
  /// Operand B of step t; the row sum and, for int8, `weights` follow.
  __device__ __forceinline__ void probabilities(unsigned (&operand)[2], int t,
                                                const float (&score)[round / 8][2],
                                                const float2 (&ofValues)[round / 8],
                                                float against) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float(&of)[2] = score[2 * t + half];
      float p0 = exp2Approximate(of[0] - against), p1 = exp2Approximate(of[1] - against);
      sum += p0 + p1;
      if constexpr (int8) { // hidden keys may have no scale
        const float2 by = ofValues[2 * t + half];
        p0 = p0 > 0.0f ? p0 * (by.x * M::valueFactor) : 0.0f;
        p1 = p1 > 0.0f ? p1 * (by.y * M::valueFactor) : 0.0f;
      }
      unsigned mine = Mma<X>::pack(p0, p1);
      if constexpr (!int8) {
        const float2 back = Mma<X>::unpack(mine);
        const unsigned low = Mma<X>::pack(p0 - back.x, p1 - back.y);
        mine = g % 2 == 0 ? mine : low;
      }
      operand[half] = mine;
    }
    if constexpr (int8) {
      constexpr unsigned one = 0x3c003c00;
      const unsigned ones[4] = {one, one, one, one};
      mma16816(weights, ones, operand[0], operand[1]);
    }
  }
  __device__ __forceinline__ void multiplyValues(int t, const unsigned (&operand)[2]) {
#pragma unroll
    for (int w = 0; w < D * (int)sizeof(Kv) / 32; w++) {
      unsigned a[2][4];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const unsigned k0 = M::word(value[t][half * 2], w), k1 = M::word(value[t][half * 2 + 1], w);
        if constexpr (int8) {
          const auto first = M::biasedHalves(__byte_perm(k0, k1, 0x5140));
          const auto second = M::biasedHalves(__byte_perm(k0, k1, 0x7362));
          a[0][half * 2] = first.low;
          a[0][half * 2 + 1] = first.high;
          a[1][half * 2] = second.low;
          a[1][half * 2 + 1] = second.high;
        } else {
          a[0][half * 2] = __byte_perm(k0, k1, 0x5410);
          a[0][half * 2 + 1] = __byte_perm(k0, k1, 0x7632);
        }
      }
      if constexpr (int8) {
        mma16816(acc[2 * w], a[0], operand[0], operand[1]);
        mma16816(acc[2 * w + 1], a[1], operand[0], operand[1]);
      } else {
        Mma<X>::multiply(acc[w], a[0], operand[0], operand[1]);
      }
    }
  }

  // The end
  // -----------------------------------------------------------------------------------------------

  /// Merges the warps, the new keys and the splits, and stores.
  __device__ __forceinline__ void finish() {
    sum = warpReduce<Sum, 4>(sum);
    if (lane == 0) {
      partMax[warp] = top;
      partSum[warp] = sum;
    }
    if (c == 0)
#pragma unroll
      for (int x = 0; x < D / 8; x++)
        partOut[warp][(x / M::vWidth * 8 + g) * M::vWidth + x % M::vWidth] =
            int8 ? (acc[x / 2][x % 2 * 2] - M::bias * weights[0]) * (1.0f / M::valueFactor)
                 : acc[x / 2][x % 2 * 2] + acc[x / 2][x % 2 * 2 + 1];
    __syncthreads();

    float weight[parts], blockTop = negativeInfinity(), blockSum = 0.0f;
#pragma unroll
    for (int w = 0; w < parts; w++) {
      weight[w] = partMax[w];
      blockTop = fmaxf(blockTop, weight[w]);
    }
#pragma unroll
    for (int w = 0; w < parts; w++) {
      weight[w] = SoftmaxState<1>::rescale(weight[w], blockTop);
      blockSum += partSum[w] * weight[w];
    }
    MergeSplits<C>::end(p.out + p.row * width + p.h * D,
                        p.partial + ((p.row * C::Heads + p.h) * C::Splits) * (D + 2),
                        p.counters + p.row * C::Heads + p.h, p.split, blockTop, blockSum, p.given,
                        [&](int d) {
                          float o = 0.0f;
#pragma unroll
                          for (int w = 0; w < parts; w++)
                            o += partOut[w][d] * weight[w];
                          return o;
                        });
  }
};

template <typename C, typename Given>
__device__ __forceinline__ void
attentionDecodeMma(const typename C::X *qkv, typename C::Kv *kv, typename C::Y *out,
                   const int *past, const int *keyMask, float *partial, unsigned *counters,
                   const int *prefixes, const float *prefixParts, int layer, int batchMax,
                   int context, int seq, int maskStride, float scale, int split, int h, i64 row,
                   const Given &given) {
  using Tile = AttentionDecodeMmaTile<C, Given>;
  __shared__ float partMax[Tile::parts], partSum[Tile::parts], partOut[Tile::parts][Tile::D];
  const AttentionSizes sizes = {layer, batchMax, context, seq, maskStride, scale};
  Tile tile({qkv, kv, out, past, keyMask, partial, counters, prefixes, prefixParts, sizes, split, h,
             row, given},
            partMax, partSum, partOut);
  tile.run();
}

} // namespace gpt2c::tile
