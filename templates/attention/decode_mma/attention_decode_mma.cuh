// cached_attention for few queries (decode) in fp16 on tensor cores: the op, the parameters and the
// grid of attention_decode.cuh, for Append.
//
// Two products by mma.m16n8k16 share one layout. For the scores A is the query in all 16 rows and B
// are eight keys, so lane 4 g + c gets the scores of keys 2c and 2c + 1. For the output A is V^T,
// 16 elements by 16 keys, and B the probabilities of keys 2c, 2c + 1, 2c + 8, 2c + 9: those which
// the lane has, without a shuffle. The order of elements within a sum is free as long as both
// operands agree, so a lane takes neighbouring elements of K and V in wide loads, and what they
// load are operands already: nothing of the state goes through shared memory. The columns of B are
// free too: even ones have the probabilities as halves, odd ones what that leaves of them, so that
// their sum is as good as fp32.
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
// Config: X (__half), Y and Kv (__half or signed char), HeadDim (a multiple of 16, of 32 for int8, at
// most 128), Heads, Warps (>= Queries), Splits, Cluster, Queries (most of a sequence), Causal,
// Mask. Heads of an int8 state begin at multiples of 16 bytes.
#pragma once

#include "templates/attention/decode/attention_decode.cuh"

namespace gpt2c {

template <typename C> struct DecodeMma {
  using Kv = typename C::Kv;
  static constexpr bool int8 = sizeof(Kv) == 1;
  static constexpr int D = C::HeadDim;
  static constexpr int round = D <= 64 ? 32 : 16; // keys
  static constexpr int steps = D / 16;            // mma along D
  // A lane has every fourth run of kWidth elements of a key, every eighth run of vWidth of a value.
  static constexpr int kWidth = vectorWidth(D / 4, elementsPer16Bytes<Kv>());
  static constexpr int kRuns = D / 4 / kWidth;
  static constexpr int vWidth = vectorWidth(D / 8, 8);
  static constexpr int vRuns = D / 8 / vWidth;
  static constexpr int perLane = ceilDiv(D, 32); // of a new key
  // Keeps products of probabilities and scales of values, which are at most 516, where halves are
  // good.
  static constexpr float valueFactor = int8 ? 64.0f : 1.0f;
  static_assert(D % (int8 ? 32 : 16) == 0 && D <= 128 && C::Warps >= C::Queries);

  /// The first of the four neighbouring elements that lane member c multiplies in step t.
  static __device__ __forceinline__ int elementOf(int t, int c) {
    constexpr int perRun = kWidth / 4;
    return (t / perRun * 4 + c) * kWidth + t % perRun * 4;
  }
  /// Makes of a lane's elements of the query, as halves, what is multiplied with int8 keys: four at
  /// a time integers 256 high + low, the high bytes in the first word. Returns their scale.
  static __device__ __forceinline__ float splitQuery(unsigned (&q)[steps][2]) {
    float largest = 0.0f;
    float2 v[steps][2];
#pragma unroll
    for (int t = 0; t < steps; t++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        v[t][i] = __half22float2(*reinterpret_cast<const __half2 *>(&q[t][i]));
        largest = fmaxf(largest, fmaxf(fabsf(v[t][i].x), fabsf(v[t][i].y)));
      }
    largest = fmaxf(warpReduce<Max, 4>(largest), 1e-30f);
    const float inverse = __fdividef(32512.0f, largest);
#pragma unroll
    for (int t = 0; t < steps; t++) {
      auto integer = [&](float x) { return __float2int_rn(x * inverse); };
      const int a = integer(v[t][0].x), b = integer(v[t][0].y), c = integer(v[t][1].x),
                d = integer(v[t][1].y);
      // The low byte is signed, so the high one takes what it lacks.
      auto bytes = [&](int shift, int round) {
        const int lo = __byte_perm((a + round) >> shift, (b + round) >> shift, 0x0040);
        const int hi = __byte_perm((c + round) >> shift, (d + round) >> shift, 0x0040);
        return __byte_perm(lo, hi, 0x5410);
      };
      q[t][0] = bytes(8, 128);
      q[t][1] = bytes(0, 0);
    }
    return largest * (1.0f / 32512.0f);
  }
  /// quantised::halves with `bias` added to each.
  static constexpr float bias = 1152.0f;
  static __device__ __forceinline__ quantised::HalfPairs biasedHalves(unsigned word) {
    const unsigned biased = word ^ 0x80808080u;
    return {__byte_perm(biased, 0x64646464u, 0x4140), __byte_perm(biased, 0x64646464u, 0x4342)};
  }
  /// Word i of what a lane loaded.
  template <typename T, int V, int N>
  static __device__ __forceinline__ unsigned word(const Pack<T, V> (&packs)[N], int i) {
    constexpr int words = V * (int)sizeof(T) / 4;
    return reinterpret_cast<const unsigned *>(&packs[i / words].raw)[i % words];
  }
};

/// A new key and its value, shared by a warp: lane l has elements l, l + 32, ...
template <typename C> struct NewKey {
  using Kv = typename C::Kv;
  using M = DecodeMma<C>;
  float query[M::perLane] = {}, row[2][M::perLane] = {}, scale[2] = {1.0f, 1.0f};

  template <typename Body> static __device__ __forceinline__ void forElements(Body &&body) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < M::perLane; i++)
      if (M::D % 32 == 0 || i * 32 + lane < M::D)
        body(i, i * 32 + lane);
  }
  __device__ __forceinline__ void load(const __half *ofQuery, const __half *key,
                                       const __half *value) {
    forElements([&](int i, int d) {
      query[i] = toFloat(ofQuery[d]);
      row[0][i] = toFloat(key[d]);
      row[1][i] = toFloat(value[d]);
    });
  }
  /// Makes the rows what their int8 form stands for, without the scales.
  __device__ __forceinline__ void quantise() {
#pragma unroll
    for (int part = 0; part < 2; part++) {
      float largest = 0.0f;
#pragma unroll
      for (int i = 0; i < M::perLane; i++)
        largest = fmaxf(largest, fabsf(row[part][i]));
      scale[part] = quantised::scale(warpReduce<Max>(largest));
      const float inverse = quantised::inverse(scale[part]);
#pragma unroll
      for (int i = 0; i < M::perLane; i++)
        row[part][i] = quantised::round(row[part][i], inverse);
    }
  }
  /// Writes key or value number `position` of a head.
  __device__ __forceinline__ void store(int part, Kv *head, int context, int position) const {
    forElements([&](int i, int d) {
      Kv &to = head[(i64)position * M::D + d];
      if constexpr (M::int8)
        to = (i8)(int)row[part][i];
      else
        to = fromFloat<__half>(row[part][i]);
    });
    if (M::int8 && threadIdx.x % 32 == 0)
      kvScales(head, context, M::D)[position] = scale[part];
  }
  __device__ __forceinline__ float score() const {
    float dot = 0.0f;
#pragma unroll
    for (int i = 0; i < M::perLane; i++)
      dot = fmaf(query[i], row[0][i], dot);
    return warpReduce<Sum>(dot) * scale[0];
  }
};

namespace tile {

template <typename C, typename Given>
__device__ __forceinline__ void
attentionDecodeMma(const __half *qkv, typename C::Kv *kv, typename C::Y *out, const int *past,
                   const int *keyMask, float *partial, unsigned *counters, int layer, int batchMax,
                   int context, int seq, int maskStride, float scale, int split, int h, i64 row,
                   const Given &given) {
  using Kv = typename C::Kv;
  using M = DecodeMma<C>;
  constexpr int D = C::HeadDim, width = C::Heads * D, round = M::round, steps = M::steps;
  constexpr bool int8 = M::int8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;

  const i64 b = row / seq;
  const int s = (int)(row % seq);
  const int begin = past != nullptr ? past[b] : 0, stored = min(begin, context);
  Kv *heads[2]; // of keys and values
#pragma unroll
  for (int part = 0; part < 2; part++)
    heads[part] = kv + kvOffset(layer, part, b, h, batchMax, C::Heads, context, kvRow<Kv>(D));
  auto scalesOf = [&](int part) { return kvScales(heads[part], context, D); };
  auto hidden = [&](int j) {
    return C::Mask && keyMask != nullptr && keyMask[b * maskStride + j] == 0;
  };

  // Rounds [firstRound, endRound) are this split's, every Warps-th of them this warp's.
  const int rounds = (stored + round - 1) / round;
  const int firstRound = split * rounds / C::Splits, endRound = (split + 1) * rounds / C::Splits;
  int number = firstRound + warp;

  Pack<Kv, M::kWidth> key[round / 8][M::kRuns];
  Pack<Kv, M::vWidth> value[round / 16][4][M::vRuns];
  float2 keyScale[round / 8], valueScale[round / 8];
  // Only the last round has rows behind the last one; they are that one again, and hidden later.
  auto whole = [&](int number) { return (number + 1) * round <= stored; };
  auto fetchKeys = [&](int number, auto place) {
    const Kv *base = heads[0] + (i64)number * round * D + c * M::kWidth;
#pragma unroll
    for (int t = 0; t < round / 8; t++) {
      const Kv *from = base + place(t * 8, g) * D;
#pragma unroll
      for (int i = 0; i < M::kRuns; i++)
        key[t][i] = loadPackStreaming<M::kWidth>(from + i * 4 * M::kWidth);
      if constexpr (int8) {
        const int pair = number * round + (place(t * 8, c * 2) & ~1);
        keyScale[t] = *reinterpret_cast<const float2 *>(scalesOf(0) + pair);
        valueScale[t] = *reinterpret_cast<const float2 *>(scalesOf(1) + pair);
      }
    }
  };
  auto fetchValues = [&](int number, auto place) {
    const Kv *base = heads[1] + (i64)number * round * D + g * M::vWidth;
#pragma unroll
    for (int t = 0; t < round / 16; t++)
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const Kv *from = base + place(t * 16 + k / 2 * 8 + k % 2, c * 2) * D;
#pragma unroll
        for (int i = 0; i < M::vRuns; i++)
          value[t][k][i] = loadPackStreaming<M::vWidth>(from + i * 8 * M::vWidth);
      }
  };
  // Row `constant + lanes` of the round.
  auto fetch = [&](int number, auto &&what) {
    if (whole(number))
      what(number, [](int constant, int lanes) { return constant + lanes; });
    else
      what(number, [&](int constant, int lanes) {
        return min(constant + lanes, stored - 1 - number * round);
      });
  };
  MergeSplits<C>::begin(split);
  if (number < endRound) {
    fetch(number, fetchKeys);
    fetch(number, fetchValues);
  }
  waitForPredecessor();
  releaseSuccessor();

  const __half *token = qkv + row * 3 * width + h * D;
  unsigned q[steps][2];
  float queryScale = scale * 1.4426950408889634f;
#pragma unroll
  for (int t = 0; t < steps; t++) {
    const Pack<__half, 4> part = loadPack<4>(token + M::elementOf(t, c));
    q[t][0] = part.raw.x;
    q[t][1] = part.raw.y;
  }
  // The last split has the new keys, number `warp` is this warp's: they are done while those of the
  // state are on their way.
  const int fresh = split == C::Splits - 1 ? (C::Causal ? s + 1 : seq) : 0;
  NewKey<C> newKey;
  if (warp < fresh) {
    const __half *from = qkv + (b * seq + warp) * 3 * width + width + h * D;
    newKey.load(token, from, from + width);
  }

  const float scale2 = scale * 1.4426950408889634f;
  constexpr int parts = C::Warps + C::Queries; // of warps, then of new keys
  __shared__ float partMax[parts], partSum[parts], partOut[parts][D];
  if (warp < C::Queries) {
    if constexpr (int8)
      newKey.quantise();
    const int position = begin + warp;
    if (warp == s && warp < fresh && position < context)
#pragma unroll
      for (int part = 0; part < 2; part++)
        newKey.store(part, heads[part], context, position);
    const float score = newKey.score() * scale2;
    if (lane == 0) {
      const bool visible = warp < fresh && !hidden(position);
      partMax[C::Warps + warp] = visible ? score : negativeInfinity();
      partSum[C::Warps + warp] = visible ? 1.0f : 0.0f;
    }
    newKey.forElements(
        [&](int i, int d) { partOut[C::Warps + warp][d] = newKey.row[1][i] * newKey.scale[1]; });
  }
  if constexpr (int8)
    queryScale *= M::splitQuery(q);
  float top = negativeInfinity(), sum = 0.0f, acc[steps][4] = {};
  float weights[4] = {}; // int8: the sums of what acc adds up of the probabilities
#pragma unroll 1
  for (; number < endRound; number += C::Warps) {
    const bool more = number + C::Warps < endRound;
    float score[round / 8][2], largest = top;
    float2 ofValues[round / 8];
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
          mma16816(sums, a, M::word(key[t], 2 * i), M::word(key[t], 2 * i + 1));
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
    if (more)
      fetch(number + C::Warps, fetchKeys);

    largest = warpReduce<Max, 4>(largest); // of the warp: all g have the same scores
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
    // Without a visible key so far all probabilities are zero.
    const float against = top == negativeInfinity() ? 0.0f : top;
#pragma unroll
    for (int t = 0; t < round / 16; t++) {
      unsigned p[2];
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
        __half2 mine = __floats2half2_rn(p0, p1);
        if constexpr (!int8) {
          const float2 back = __half22float2(mine);
          const __half2 low = __floats2half2_rn(p0 - back.x, p1 - back.y);
          mine = g % 2 == 0 ? mine : low;
        }
        p[half] = *reinterpret_cast<const unsigned *>(&mine);
      }
      if constexpr (int8) {
        constexpr unsigned one = 0x3c003c00;
        const unsigned ones[4] = {one, one, one, one};
        mma16816(weights, ones, p[0], p[1]);
      }
#pragma unroll
      for (int w = 0; w < D * (int)sizeof(Kv) / 32; w++) {
        unsigned a[2][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const unsigned k0 = M::word(value[t][half * 2], w),
                         k1 = M::word(value[t][half * 2 + 1], w);
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
          mma16816(acc[2 * w], a[0], p[0], p[1]);
          mma16816(acc[2 * w + 1], a[1], p[0], p[1]);
        } else {
          mma16816(acc[w], a[0], p[0], p[1]);
        }
      }
    }
    if (more)
      fetch(number + C::Warps, fetchValues);
  }
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
  MergeSplits<C>::end(out + row * width + h * D,
                      partial + ((row * C::Heads + h) * C::Splits) * (D + 2),
                      counters + row * C::Heads + h, split, blockTop, blockSum, given, [&](int d) {
                        float o = 0.0f;
#pragma unroll
                        for (int w = 0; w < parts; w++)
                          o += partOut[w][d] * weight[w];
                        return o;
                      });
}

} // namespace tile
} // namespace gpt2c
