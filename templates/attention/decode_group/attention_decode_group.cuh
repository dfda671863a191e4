// append_attention for one query of each sequence (decode) in fp16 or bf16 on tensor cores, where
// up to 8 heads of queries share those of the state: a block reads the keys and values of a head of
// the state once for all of them. Meaning, mask and Window as in attention_decode.cuh with Append.
//
// The two products are those of attention_decode_mma.cuh, with its layout of keys and values. A has
// head g of the group in row g, so lane 4 g + c gets the scores of keys 2c and 2c + 1 for that
// head, which are its operand B of the second product: 16 elements of V^T by 16 keys, times the
// probabilities of keys in columns of heads. Groups of up to 4 heads have two columns for each: the
// probabilities in 16 bits, and what that leaves of them.
//
// The first round of each warp is on its way before the kernel waits for its predecessor, which
// only computes qkv; a round's keys are fetched as soon as those before are multiplied. Meanwhile
// queries and the new key go to shared memory, turned by their position with RopePairs > 0
// (rotated_rows.cuh). The last split stores the new key, which joins the warps' parts at the end.
//
// A state of bytes (kv_append.cuh) becomes X in registers, exactly, as steps of scales: those of
// keys are multiplied to scores, those of values to probabilities.
//
// X is the type of qkv, __half or __nv_bfloat16. Config: Kv (X, or signed char or Fp8), Y (X or
// signed char: quantised with a scale that is given), HeadDim (a multiple of 16, of 32 for bytes,
// <= 128), Heads, KvHeads, Warps,
// Splits, Cluster, Keys (of a round, 16 or 32), Mask, Window, RopePairs, RopeInterleaved, Table,
// HeadNorm (rotated_rows.cuh), Queries (1), PageTokens (state_rows.cuh: a multiple of 32; without
// Mask), Parts (of prefixes, prefix_parts.cuh: whose keys are left out here, and join at the end;
// without Window). Kernel: qkv X[batch,1,Heads+2*KvHeads,HeadDim], kv
// Kv[layers,2,batchMax,KvHeads,context,HeadDim], out
// Y[batch,1,Heads,HeadDim], past i32[batch] or null, keyMask i32[batch,maskStride] or null, cosines
// and sines Table[places,RopePairs] (null without), gains f32[Heads+KvHeads,HeadDim] (null without
// HeadNorm), gainEpsilon, partial f32[batch,Heads,Splits,HeadDim+2], counters u32[batch,KvHeads]
// (both as in attention_decode.cuh), prefixes and prefixParts (null without Parts), layer,
// batchMax, context, seq (1), maskStride, scale, places.
// Grid: (Splits, KvHeads, batch); block: 32 * Warps.
// Bytes: 2 keys HeadDim KvHeads sizeof(Kv) per sequence; flops: 4 keys HeadDim Heads.
#pragma once

#include "templates/attention/decode_group/merge_group.cuh"
#include "templates/attention/decode_mma/decode_mma_keys.cuh"
#include "templates/attention/parts/prefix_parts.cuh"
#include "templates/attention/parts/rotated_rows.cuh"
#include "templates/attention/parts/softmax_state.cuh"
#include "templates/attention/parts/state_rows.cuh"
#include "templates/device/mma.cuh"

namespace gpt2c::tile {

/// The parameters of the kernel and of the tile: head h of the state of sequence b, one of Splits
/// ranges of keys.
template <typename C, typename Given, typename X> struct AttentionGroupParams {
  const X *qkv;
  typename C::Kv *kv;
  typename C::Y *out;
  const int *past, *keyMask; // with pages the mask is `tables`
  const typename C::Table *cosines, *sines;
  float *partial;
  unsigned *counters;
  const int *prefixes;
  const float *prefixParts;
  AttentionSizes sizes;
  const float *gains;
  float gainEpsilon;
  int places, split, h;
  i64 b;
  const Given &given;
};

/// What a block has in shared memory.
template <typename C, typename X> struct AttentionGroupShared {
  static constexpr int group = C::Heads / C::KvHeads, D = C::HeadDim;
  alignas(16) X rows[group + 2][D]; // the queries, the new key and its value, of bytes their steps
  float newScale[2];                // and these then
  float factor[C::HeadNorm ? group + 1 : 1]; // of norms of the queries and the new key
  // Of each warp, of the prefix where there are some, then, without a row of `out`, the new key.
  static constexpr int outs = C::Warps + (C::Parts > 0);
  float max[outs + 1][group], sum[outs + 1][group];
  float out[outs][group][D + 2];
};

/// The queries of a head of the state and the keys of one split, in phases; `run` has their order.
template <typename C, typename Given, typename X> struct AttentionGroupTile {
  using M = DecodeMma<C>;
  using Shared = AttentionGroupShared<C, X>;
  using Merge = MergeGroup<C>;
  static constexpr int D = C::HeadDim, group = Shared::group, threads = 32 * C::Warps;
  static constexpr int round = C::Keys, steps = M::steps;
  static constexpr int queryRow = (C::Heads + 2 * C::KvHeads) * D;
  static constexpr int columns = group <= 4 ? 4 : 8; // of probabilities as they are rounded
  static constexpr bool rope = C::RopePairs > 0;
  using Kv = typename C::Kv;
  static constexpr bool bytes = Operand<Kv>::scaled;
  // Keeps products of probabilities and scales of values, which are at most 65504 in 127 or 448
  // steps, where halves are good.
  static constexpr float valueFactor = bytes ? 32768.0f / (65504.0f / quantised::steps<Kv>) : 1.0f;
  static constexpr int outs = Shared::outs;
  static_assert(C::Heads % C::KvHeads == 0 && group <= 8 && round % 16 == 0);
  static_assert(C::Parts == 0 || (C::Window == 0 && C::PageTokens > 0));

  const AttentionGroupParams<C, Given, X> p;
  Shared &shared;
  int warp, lane, g, c;
  int begin, stored, oldest; // tokens of the state, those it has room for, the first that is seen
  StateRows<C> rows;
  PagesAhead<C, round * C::Warps> pages; // of this warp's rounds
  int newPage;
  int number, endRound; // this warp's next round, the end of this split's
  Pack<Kv, M::kWidth> key[round / 8][M::kRuns];
  Pack<Kv, M::vWidth> value[round / 16][4][M::vRuns];
  float2 keyScale[bytes ? round / 8 : 1], valueScale[bytes ? round / 8 : 1];
  unsigned q[steps][2];
  float top = negativeInfinity(), sum = 0.0f; // of head g
  float acc[steps][4] = {};                   // of columns 2c and 2c + 1

  __device__ __forceinline__ AttentionGroupTile(const AttentionGroupParams<C, Given, X> &p,
                                                Shared &shared)
      : p(p), shared(shared) {}

  __device__ __forceinline__ void run() {
    locate();
    Merge::begin(p.split);
    if (number < endRound) {
      fetchKeys(number);
      fetchValues(number);
    }
    takeToken();
    if constexpr (bytes)
      quantiseNewKey();
    loadQueries();
    takePrefix();
    attendNewKey();
#pragma unroll 1
    for (; number < endRound; number += C::Warps)
      attendRound();
    finish();
  }

  __device__ __forceinline__ void locate() {
    warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    begin = p.past != nullptr ? p.past[p.b] : 0;
    stored = min(begin, p.sizes.context);
    oldest = C::Window > 0 ? max(begin + 1 - C::Window, 0) : 0;
    rows.locate(p.kv, p.keyMask, p.sizes, p.b, p.h);
    // Rounds from firstRound to endRound are this split's, every Warps-th of them this warp's.
    const int from = max(oldest, PrefixParts<C>::beginOf(p.prefixes, p.b)) / round;
    const int rounds = max((stored + round - 1) / round - from, 0);
    number = from + p.split * rounds / C::Splits + warp;
    endRound = from + (p.split + 1) * rounds / C::Splits;
    pages.start(rows, p.sizes, number * round);
    newPage = rows.pageOf(min(begin, p.sizes.context - 1));
  }
  __device__ __forceinline__ bool hidden(int j) const {
    return C::Mask && p.keyMask != nullptr && p.keyMask[p.b * p.sizes.maskStride + j] == 0;
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
    if constexpr (bytes)
#pragma unroll
      for (int part = 0; part < 2; part++)
        scales[part] = rows.scale(part, pages.of(number * round), number * round);
#pragma unroll
    for (int t = 0; t < round / 8; t++) {
      const Kv *from = base + place(t * 8, g) * D;
#pragma unroll
      for (int i = 0; i < M::kRuns; i++)
        key[t][i] = loadPackStreaming<M::kWidth>(from + i * 4 * M::kWidth);
      if constexpr (bytes) {
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

  // The queries and the new key
  // -----------------------------------------------------------------------------------------------

  /// Waits for the predecessor; then rows of its token are in shared memory.
  __device__ __forceinline__ void takeToken() {
    const X *token = p.qkv + p.b * queryRow;
    auto from = [&](int row) {
      return token +
             (row < group ? p.h * group + row : C::Heads + p.h + (row - group) * C::KvHeads) * D;
    };
    if constexpr (rope) {
      RotatedRows<C, group + 1, threads> rotated;
      rotated.loadAngles(p.cosines, p.sines, p.places, [&](int) { return begin; });
      waitForPredecessor();
      releaseSuccessor();
      const int d = min((int)threadIdx.x, D - 1);
      const X ofValue = from(group + 1)[d];
      if constexpr (C::HeadNorm) {
        rotated.factors(shared.factor, group + 1, p.gainEpsilon, from);
        __syncthreads();
      }
      rotated.rotate(shared.rows, group + 1, from, [&](int row, int d) {
        const int head = row < group ? p.h * group + row : C::Heads + p.h;
        return shared.factor[row] * p.gains[head * D + d];
      });
      if (threadIdx.x < D)
        shared.rows[group + 1][d] = ofValue;
    } else {
      waitForPredecessor();
      releaseSuccessor();
      for (int i = threadIdx.x; i < (group + 2) * D / 8; i += threads)
        storePack(&shared.rows[i / (D / 8)][i % (D / 8) * 8],
                  loadPack<8>(from(i / (D / 8)) + i % (D / 8) * 8));
    }
    __syncthreads();
  }
  /// The new key and its value become steps of scales; the last split stores them.
  __device__ __forceinline__ void quantiseNewKey() {
    const bool stores = p.split == C::Splits - 1 && begin < p.sizes.context && newPage >= 0;
    for (int part = warp; part < 2; part += C::Warps) {
      X *row = shared.rows[group + part];
      float v[D / 32], largest = 0.0f;
#pragma unroll
      for (int i = 0; i < D / 32; i++) {
        v[i] = toFloat(row[i * 32 + lane]);
        largest = fmaxf(largest, fabsf(v[i]));
      }
      const float scale = quantised::scale<Kv>(warpReduce<Max>(largest));
      const float inverse = quantised::inverse(scale);
#pragma unroll
      for (int i = 0; i < D / 32; i++) {
        const Kv step = fromFloat<Kv>(__fmul_rn(v[i], inverse));
        row[i * 32 + lane] = fromFloat<X>(toFloat(step));
        if (stores)
          rows.row(part, newPage, begin)[i * 32 + lane] = step;
      }
      if (lane == 0) {
        shared.newScale[part] = scale;
        if (stores)
          *rows.scale(part, newPage, begin) = scale;
      }
    }
    __syncthreads();
  }
  __device__ __forceinline__ void loadQueries() {
    const X *row = shared.rows[min(g % columns, group - 1)];
#pragma unroll
    for (int t = 0; t < steps; t++) {
      const Pack<X, 4> part = loadPack<4>(row + M::elementOf(t, c));
      q[t][0] = part.raw.x;
      q[t][1] = part.raw.y;
    }
  }
  __device__ __forceinline__ float newScale(int part) const {
    return bytes ? shared.newScale[part] : 1.0f;
  }
  __device__ __forceinline__ void takePrefix() {
    if constexpr (C::Parts > 0)
      for (int head = warp; head < group; head += C::Warps)
        PrefixParts<C>::take(p.split, p.prefixParts, p.prefixes, p.b,
                             p.b * C::Heads + p.h * group + head, shared.max[C::Warps][head],
                             shared.sum[C::Warps][head], shared.out[C::Warps][head]);
  }
  /// By the last split, while the keys of the state are on their way.
  __device__ __forceinline__ void attendNewKey() {
    const bool mine = p.split == C::Splits - 1;
    const X *newKey = shared.rows[group];
    if constexpr (!bytes)
      for (int i = threadIdx.x; mine && begin < p.sizes.context && newPage >= 0 && i < 2 * D / 8;
           i += threads) {
        const int part = i / (D / 8), d = i % (D / 8) * 8;
        storePack(rows.row(part, newPage, begin) + d, loadPack<8>(newKey + part * D + d));
      }
    for (int head = warp; head < group; head += C::Warps) {
      float dot = 0.0f;
#pragma unroll
      for (int d = 0; d < D; d += 32)
        if (D % 32 == 0 || d + lane < D)
          dot = fmaf(toFloat(shared.rows[head][d + lane]), toFloat(newKey[d + lane]), dot);
      dot = warpReduce<Sum>(dot) * p.sizes.base2() * newScale(0);
      if (lane == 0) {
        const bool visible = mine && !hidden(begin);
        shared.max[outs][head] = visible ? dot : negativeInfinity();
        shared.sum[outs][head] = visible ? 1.0f : 0.0f;
      }
    }
  }

  // A round of keys
  // -----------------------------------------------------------------------------------------------

  /// The loads of the warp's next round start as soon as the registers of this one are free.
  __device__ __forceinline__ void attendRound() {
    const bool more = number + C::Warps < endRound;
    float score[round / 8][2], largest = top;
    float2 ofValues[bytes ? round / 8 : 1];
    multiplyKeys(score, largest);
    if constexpr (bytes)
#pragma unroll
      for (int t = 0; t < round / 8; t++)
        ofValues[t] = valueScale[t];
    if (more)
      fetchKeys(number + C::Warps);
    raise(warpReduce<Max, 4>(largest));
    // Without a visible key so far all probabilities are zero.
    const float against = top == negativeInfinity() ? 0.0f : top;
#pragma unroll
    for (int t = 0; t < round / 16; t++) {
      const unsigned b0 = probabilities(score[2 * t], against, ofValues[bytes ? 2 * t : 0]),
                     b1 = probabilities(score[2 * t + 1], against, ofValues[bytes ? 2 * t + 1 : 0]);
      multiplyValues(t, b0, b1);
    }
    if (more)
      fetchValues(number + C::Warps);
  }
  __device__ __forceinline__ void multiplyKeys(float (&score)[round / 8][2], float &largest) {
    const float factor = p.sizes.base2();
#pragma unroll
    for (int t = 0; t < round / 8; t++) {
      float sums[4] = {};
#pragma unroll
      for (int i = 0; i < steps; i++) {
        const unsigned a[4] = {q[i][0], q[i][0], q[i][1], q[i][1]};
        if constexpr (bytes) {
          const HalfPairs of = stepsAs<X, Kv>(M::word(key[t], i));
          Mma<X>::multiply(sums, a, of.low, of.high);
        } else {
          Mma<X>::multiply(sums, a, M::word(key[t], 2 * i), M::word(key[t], 2 * i + 1));
        }
      }
      if constexpr (bytes) {
        sums[0] *= keyScale[t].x;
        sums[1] *= keyScale[t].y;
      }
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int j = number * round + t * 8 + c * 2 + e;
        const bool seen = j < stored && (C::Window == 0 || j >= oldest) && !hidden(j);
        score[t][e] = seen ? sums[e] * factor : negativeInfinity();
        largest = fmaxf(largest, score[t][e]);
      }
    }
  }
  /// Makes `largest`, which is no smaller, the maximum of head g.
  __device__ __forceinline__ void raise(float largest) {
    if (!__any_sync(fullWarp, largest > top))
      return;
    const float keep = SoftmaxState<1>::rescale(top, largest);
    top = largest;
    sum *= keep;
    float ofColumn[2]; // lanes 4 h and on have what head h is multiplied by
#pragma unroll
    for (int e = 0; e < 2; e++)
      ofColumn[e] = __shfl_sync(fullWarp, keep, (2 * c + e) * 4);
#pragma unroll
    for (int m = 0; m < steps; m++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        acc[m][e] *= ofColumn[e % 2];
  }
  /// A word of operand B: of head g, or what rounding left of it; the row sum follows. In a state
  /// of bytes it is times the values' scales.
  __device__ __forceinline__ unsigned probabilities(const float (&score)[2], float against,
                                                    float2 ofValues) {
    float p0 = exp2Approximate(score[0] - against), p1 = exp2Approximate(score[1] - against);
    sum += p0 + p1;
    if constexpr (bytes) { // hidden keys may have no scale
      p0 = p0 > 0.0f ? p0 * (ofValues.x * valueFactor) : 0.0f;
      p1 = p1 > 0.0f ? p1 * (ofValues.y * valueFactor) : 0.0f;
    }
    const unsigned rounded = Mma<X>::pack(p0, p1);
    if constexpr (columns == 8)
      return rounded;
    const Pack<X, 2> back = {rounded};
    const unsigned rest = Mma<X>::pack(p0 - back.get(0), p1 - back.get(1));
    return g < columns ? rounded : rest;
  }
  /// Word w of values has elements 4 w to 4 w + 3 in bytes.
  __device__ __forceinline__ void multiplyBytes(int t, unsigned b0, unsigned b1) {
#pragma unroll
    for (int w = 0; w < D / 32; w++) {
      unsigned a[2][4];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const unsigned k0 = M::word(value[t][half * 2], w), k1 = M::word(value[t][half * 2 + 1], w);
        const HalfPairs first = stepsAs<X, Kv>(__byte_perm(k0, k1, 0x5140)),
                        second = stepsAs<X, Kv>(__byte_perm(k0, k1, 0x7362));
        a[0][half * 2] = first.low;
        a[0][half * 2 + 1] = first.high;
        a[1][half * 2] = second.low;
        a[1][half * 2 + 1] = second.high;
      }
      Mma<X>::multiply(acc[2 * w], a[0], b0, b1);
      Mma<X>::multiply(acc[2 * w + 1], a[1], b0, b1);
    }
  }
  __device__ __forceinline__ void multiplyValues(int t, unsigned b0, unsigned b1) {
    if constexpr (bytes)
      return multiplyBytes(t, b0, b1);
#pragma unroll
    for (int w = 0; w < (bytes ? 0 : D / 16); w++) {
      unsigned a[4];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const unsigned k0 = M::word(value[t][half * 2], w), k1 = M::word(value[t][half * 2 + 1], w);
        a[half * 2] = __byte_perm(k0, k1, 0x5410);
        a[half * 2 + 1] = __byte_perm(k0, k1, 0x7632);
      }
      Mma<X>::multiply(acc[w], a, b0, b1);
    }
  }

  // The end
  // -----------------------------------------------------------------------------------------------

  /// Merges the warps, the new key and the splits, and stores.
  __device__ __forceinline__ void finish() {
    sum = warpReduce<Sum, 4>(sum);
    if (c == 0 && g < group) {
      shared.max[warp][g] = top;
      shared.sum[warp][g] = sum;
    }
#pragma unroll
    for (int x = 0; x < D / 8; x++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float o = acc[x / 2][x % 2 * 2 + e];
        if constexpr (columns == 4)
          o += __shfl_xor_sync(fullWarp, o, 2); // the columns of what rounding left
        if (const int head = 2 * c + e; head < group)
          shared.out[warp][head][(x / M::vWidth * 8 + g) * M::vWidth + x % M::vWidth] =
              o * (1.0f / valueFactor);
      }
    __syncthreads();
    auto largest = [&](int head) {
      float most = negativeInfinity();
#pragma unroll
      for (int w = 0; w <= outs; w++)
        most = fmaxf(most, shared.max[w][head]);
      return most;
    };
    // fromPart(w) of all parts, each as much as its maximum lets it count.
    auto merged = [&](int head, auto &&fromPart) {
      const float most = largest(head);
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w <= outs; w++)
        total += fromPart(w) * SoftmaxState<1>::rescale(shared.max[w][head], most);
      return total;
    };
    Merge::end(
        p.out + (p.b * C::Heads + p.h * group) * D,
        p.partial + ((p.b * C::Heads + p.h * group) * C::Splits) * (D + 2),
        p.counters + p.b * C::KvHeads + p.h, p.split, p.given, largest,
        [&](int head) { return merged(head, [&](int w) { return shared.sum[w][head]; }); },
        [&](int head, int d) {
          return merged(head, [&](int w) {
            return w < outs ? shared.out[w][head][d]
                            : toFloat(shared.rows[group + 1][d]) * newScale(1);
          });
        });
  }
};

template <typename C, typename Given, typename X>
__device__ __forceinline__ void
attentionDecodeGroup(const X *qkv, typename C::Kv *kv, typename C::Y *out, const int *past,
                     const int *keyMask, const typename C::Table *cosines,
                     const typename C::Table *sines, int places, const float *gains,
                     float gainEpsilon, float *partial, unsigned *counters, const int *prefixes,
                     const float *prefixParts, int layer, int batchMax, int context, int seq,
                     int maskStride, float scale, int split, int h, i64 b, const Given &given) {
  using Tile = AttentionGroupTile<C, Given, X>;
  __shared__ typename Tile::Shared shared;
  const AttentionSizes sizes = {layer, batchMax, context, seq, maskStride, scale};
  Tile tile({qkv, kv, out, past, keyMask, cosines, sines, partial, counters, prefixes, prefixParts,
             sizes, gains, gainEpsilon, places, split, h, b, given},
            shared);
  tile.run();
}

} // namespace gpt2c::tile
