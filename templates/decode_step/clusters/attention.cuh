// The middle of a head's half of a layer for clusters/clusters.cuh: scores, softmax and values of
// a block's keys, and the parts of all blocks.
#pragma once

#include "templates/attention/score.cuh"
#include "templates/decode_step/clusters/step.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// From the slots that begin `first` behind the next one.
template <typename C>
__device__ __forceinline__ void Step<C>::loadHead(const Keys<C> &k, int first,
                                                  HeadTiles &to) const {
  // Of keys a lane has rows g and g + 8.
  if (warp < k.tiles) {
    waitSlot(first + warp / L::slotTiles);
    const uint4 *rows = reinterpret_cast<const uint4 *>(keys(first, warp));
#pragma unroll
    for (int i = 0; i < Tile<headDim>::pieces; i++)
#pragma unroll
      for (int j = 0; j < 2; j++)
        if constexpr (halves) {
          unsigned v[4];
          loadMatrix4(v, rows + vectorOfKey<T>(lane % 16, (i * 2 + j) * 2 + lane / 16));
          to.keys.w[i][j] = {v[0], v[1], v[2], v[3]};
        } else {
          to.keys.w[i][j] = rows[vectorOfKey<T>(g + 8 * j, i * 4 + t)];
        }
  }
  if (halves && weighs())
    loadValues(k, first + k.slots, 0, to.values);
}

/// The block's part of attention behind `receive` and `store`: publishes its partial sums of the
/// output projection.
template <typename C>
__device__ __forceinline__ void Step<C>::attention(const HeadRecord<Words> &head, int past,
                                                   const Keys<C> &k, const Constants &c,
                                                   float2 outScales, HeadTiles &tiles) {
  auto &sums = shared.head;
  Barrier &sumsArrived = shared.arrived[AtHead], &partsArrived = shared.arrived[AtParts];
  const float scale = scoreFactor(head.scale);
  const bool scores = warp < k.tiles, appends = k.appends && warp >= warps - 2;
  if (!roomy)
    loadHead(k, 0, tiles);
  Constants ofNew = {};
  if (appends)
    ofNew = constants(head.half.first,
                      (warp == warps - 1 ? 1 : 2) * C::D + cluster * headDim + 2 * lane);
  // Of the new token's value the lane's first column of a warp's 16: the other one is 16 bytes from
  // it.
  const char *newValue = nullptr;
  if (halves && k.appends)
    newValue = keys(k.slots, k.local) +
               vectorOfKey<T>(k.row, 2 * min(max(weigher(), 0), headDim / 16 - 1)) * 16 +
               g * (int)sizeof(T);
  waitArrival(sumsArrived, turn & 1);
  if (threadIdx.x == 0)
    sumsArrived.expect(ranks * (L::headRows * 4 + 8));
  if (scores)
    scoreTile(k, tiles.keys,
              gather(sums.sum, 2 * lane, c, moments(sums.statistics, head.half.first)), scale);
  float2 kept = {};
  if (appends)
    kept = append(head, k, c, ofNew);
  if (!halves)
    for (int i = 0; i < k.slots; i++)
      waitSlot(k.slots + i);
  sync<2, warps + 1>();
  if (weighs())
    weighValues(k, tiles.values, newValue);
  if (appends)
    keep(head, past, kept);
  if (outTile() < outTiles) {
    Tile<headDim> weights;
    load<true>(weights, 2 * k.slots, outTile());
    char *const to = published(head.half, outTile() * 16 + 2 * g);
    waitArrival(partsArrived, turn & 1);
    if (outTile() == 0 && lane == 0)
      partsArrived.expect(L::partBytes);
    const float2 sum = projectParts(weights);
    if (t == 0)
      persistent::contributePair(to, (u64)persistent::channelWord(sum.y * outScales.y) << 32 |
                                         persistent::channelWord(sum.x * outScales.x));
  }
  advance(2 * k.slots + L::projectionSlots);
}

/// The new token's key, by the last warp, and value, by the one before it: the value goes into its
/// tile, the key's score to the others.
template <typename C>
__device__ __forceinline__ float2 Step<C>::append(const HeadRecord<Words> &head, const Keys<C> &k,
                                                  const Constants &ofQ, const Constants &ofNew) {
  auto &sums = shared.head;
  const bool isKey = warp == warps - 1;
  const Moments m = moments(sums.statistics, head.half.first);
  auto rounded = [](float2 v) {
    return float2{toFloat(fromFloat<T>(v.x)), toFloat(fromFloat<T>(v.y))};
  };
  const float2 q = rounded(gather(sums.sum, 2 * lane, ofQ, m)),
               value = rounded(gather(sums.sum, (isKey ? 1 : 2) * headDim + 2 * lane, ofNew, m));
  if (isKey) {
    const float score = warpReduce<Sum>(fmaf(q.x, value.x, q.y * value.y));
    if (lane == 0)
      shared.newScore = scaledScore(score, head.scale);
  } else {
    constexpr int vector = elementsPer16Bytes<T>();
    waitSlot(k.slots + k.local / L::slotTiles);
    const float two[2] = {value.x, value.y};
    storeFloats<2>(reinterpret_cast<T *>(keys(k.slots, k.local)) +
                       vectorOfKey<T>(k.row, 2 * lane / vector) * vector + 2 * lane % vector,
                   two);
  }
  return value;
}

/// Stores what append() made in the state.
template <typename C>
__device__ __forceinline__ void Step<C>::keep(const HeadRecord<Words> &head, int past,
                                              float2 value) const {
  if (past >= head.context)
    return;
  const float two[2] = {value.x, value.y};
  if constexpr (isPaged<C>) {
    T *const key = firstKey<C>(head, 0, cluster) + shared.pages.offsetOf(past) + 2 * lane;
    storeFloats<2>(warp == warps - 1 ? key : key + toValue<C>(head), two);
    return;
  }
  T *const state =
      head.kv.template as<T>() + kvOffset(head.layer, warp == warps - 1 ? 0 : 1, 0, cluster,
                                          head.batchMax, C::Heads, head.context, headDim);
  storeFloats<2>(state + (i64)past * headDim + 2 * lane, two);
}

/// Scores of the warp's tile of keys, base 2 exponents.
template <typename C>
__device__ __forceinline__ void Step<C>::scoreTile(const Keys<C> &k, const Tile<headDim> &key,
                                                   float2 q, float scale) {
  float2 score;
  if constexpr (halves)
    score = key.multiply(operandOf(q));
  else
    score = key.multiply(vectorOf(q));
  // Of the tile that ends with the new key those before it.
  const int rows = k.appends && warp == k.local ? k.row : keyTile, row = g + 8 * t;
  const float s = t < 2 && row < rows ? (t == 0 ? score.x : score.y) * scale : -1e30f;
  const float top = largest(s);
  if (t < 2)
    shared.weights[warp * keyTile + (halves ? g / 2 * 4 + t * 2 + g % 2 : row)] =
        fromFloat<T>(row < rows ? exp2Approximate(s - top) : 0.0f);
  if (lane == 0)
    shared.tops[warp] = top;
}

/// The warp's columns of some tiles of values, from number `first` on, whose slots begin `slots`
/// behind the next one. There are zeros where no token has been, and where the new one's value may
/// be stored meanwhile: its weight there is zero. One more warp has ones.
template <typename C>
__device__ __forceinline__ void Step<C>::loadValues(const Keys<C> &k, int slots, int first,
                                                    Values &to) const {
  constexpr unsigned ones = 0x3c003c00;
#pragma unroll
  for (int i = 0; i < valueTiles; i++) {
    unsigned(&v)[4] = to.of[i];
    v[0] = v[1] = v[2] = v[3] = weigher() == weighing - 1 ? ones : 0;
    if (weigher() < weighing - 1 && first + i < k.tiles) {
      if (i == 0 || i % L::slotTiles == 0)
        waitSlot(slots + (first + i) / L::slotTiles);
      loadMatrix4Transposed(
          v, keys(slots, first + i) +
                 vectorOfKey<T>(lane / 16 * 8 + lane % 8, 2 * weigher() + lane / 8 % 2) * 16);
    }
  }
}

/// Softmax of the block's scores and its sum of values, of which a warp has 16 columns (of fp32 8),
/// sent to all blocks; one more warp has the sum of the weights.
template <typename C>
__device__ __forceinline__ void Step<C>::weighValues(const Keys<C> &k, Values &values,
                                                     const char *newValue) {
  constexpr int vector = elementsPer16Bytes<T>();
  const unsigned done = shared.arrived[AtParts].address();
  float top = k.appends ? shared.newScore : -1e30f, tops[warps];
#pragma unroll
  for (int i = 0; i < warps; i += 4)
    loadFloats<4>(&shared.tops[i], reinterpret_cast<float(&)[4]>(tops[i]));
#pragma unroll
  for (int i = 0; i < warps; i += 4)
    top = fmaxf(top, fmaxf(fmaxf(tops[i], tops[i + 1]), fmaxf(tops[i + 2], tops[i + 3])));
  const float ofNew = k.appends ? exp2Approximate(shared.newScore - top) : 0.0f;
  if constexpr (halves) {
    const bool sums = weigher() == weighing - 1;
    float out[2] = {};
#pragma unroll
    for (int i = 0; i < warps; i += valueTiles) {
      if (i >= k.tiles)
        break;
      if (i > 0)
        loadValues(k, k.slots, i, values);
      float part[valueTiles][4] = {};
#pragma unroll
      for (int j = 0; j < valueTiles; j++) {
        const uint2 p = reinterpret_cast<const uint2 *>(shared.weights)[(i + j) * 4 + t];
        mma16816(part[j], values.of[j], p.x, p.y);
      }
#pragma unroll
      for (int j = 0; j < valueTiles; j++) {
        const float factor = exp2Approximate(tops[i + j] - top);
        out[0] = fmaf(factor, part[j][0], out[0]);
        out[1] = fmaf(factor, part[j][2], out[1]);
      }
    }
    if (sums) {
      if (lane < ranks)
        send(remote(sharedAddress(&shared.parts.softmax[rank]), lane), top, out[0] + ofNew,
             remote(done, lane));
    } else {
      // Columns g and g + 8 become neighbours.
      const bool odd = g % 2;
      if (k.appends) {
        out[0] = fmaf(ofNew, toFloat(*reinterpret_cast<const T *>(newValue)), out[0]);
        out[1] = fmaf(ofNew, toFloat(*reinterpret_cast<const T *>(newValue + 16 - k.row % 2 * 32)),
                      out[1]);
      }
      const float other = __shfl_xor_sync(fullWarp, odd ? out[0] : out[1], 4);
      const float two[2] = {odd ? other : out[0], odd ? out[1] : other};
      const unsigned at =
          sharedAddress(&shared.parts.out[rank][16 * weigher() + g / 2 * 2 + odd * 8]);
#pragma unroll
      for (int i = 0; i < ranks; i += 4)
        send(at + distance(t + i), packHalves(two[0] * partScale, two[1] * partScale),
             done + distance(t + i));
    }
  } else {
    // Lane (i, d) has column d of keys i, i + 4, ..
    const int d = lane % 8;
    float out = 0.0f, sum = 0.0f;
    const unsigned toG = distance(g);
#pragma unroll 4
    for (int i = lane / 8; i < k.tiles * keyTile; i += 4) {
      const float e = shared.weights[i] * exp2Approximate(shared.tops[i / keyTile] - top);
      sum += e;
      const T *tile = reinterpret_cast<const T *>(keys(k.slots, i / keyTile));
      const int column = weigher() * 8 + d;
      out = fmaf(
          e, toFloat(tile[vectorOfKey<T>(i % keyTile, column / vector) * vector + column % vector]),
          out);
    }
    sum += __shfl_xor_sync(fullWarp, sum, 8);
    sum += __shfl_xor_sync(fullWarp, sum, 16);
    out += __shfl_xor_sync(fullWarp, out, 8);
    out += __shfl_xor_sync(fullWarp, out, 16);
    sum += ofNew;
    if (k.appends) {
      const int column = weigher() * 8 + d;
      out = fmaf(ofNew,
                 toFloat(reinterpret_cast<const T *>(keys(
                     k.slots,
                     k.local))[vectorOfKey<T>(k.row, column / vector) * vector + column % vector]),
                 out);
    }
    const float a = __shfl_sync(fullWarp, out, 2 * t), b = __shfl_sync(fullWarp, out, 2 * t + 1);
    send(sharedAddress(&shared.parts.out[rank][weigher() * 8 + 2 * t]) + toG, a, b, done + toG);
    if (weigher() == 0 && t == 0)
      send(sharedAddress(&shared.parts.softmax[rank]) + toG, top, sum, done + toG);
  }
}

/// The sums of the lane's rows of the output projection. Of fp16 the parts of the eight blocks are
/// the columns of an operand, whose products are weighed.
template <typename C>
__device__ __forceinline__ float2 Step<C>::projectParts(const Tile<headDim> &weights) const {
  if constexpr (halves) {
    const float4 two = *reinterpret_cast<const float4 *>(&shared.parts.softmax[2 * t]);
    float sum[Tile<headDim>::chains][4] = {};
    weights.mma(sum, vectorIn(shared.parts.out[g]));
    float top = fmaxf(two.x, two.z);
    top = fmaxf(top, __shfl_xor_sync(fullWarp, top, 1));
    top = fmaxf(top, __shfl_xor_sync(fullWarp, top, 2));
    const float a = exp2Approximate(two.x - top), b = exp2Approximate(two.z - top);
    const float all = warpReduce<Sum, 4>(fmaf(a, two.y, b * two.w));
    float v[4] = {};
#pragma unroll
    for (int c = 0; c < Tile<headDim>::chains; c++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        v[i] += sum[c][i];
    const float scale = __fdividef(1.0f / partScale, all);
    return {warpReduce<Sum, 4>(fmaf(a, v[0], b * v[1])) * scale,
            warpReduce<Sum, 4>(fmaf(a, v[2], b * v[3])) * scale};
  } else {
    // Dimensions 2 lane and the next of what the head's attention is.
    float2 softmax[ranks], part[ranks];
#pragma unroll
    for (int i = 0; i < ranks; i++) {
      softmax[i] = shared.parts.softmax[i];
      part[i] = *reinterpret_cast<const float2 *>(&shared.parts.out[i][2 * lane]);
    }
    float top = softmax[0].x, sum = 0.0f;
    float2 out = {};
#pragma unroll
    for (int i = 1; i < ranks; i++)
      top = fmaxf(top, softmax[i].x);
#pragma unroll
    for (int i = 0; i < ranks; i++) {
      const float weight = exp2Approximate(softmax[i].x - top);
      sum = fmaf(weight, softmax[i].y, sum);
      out.x = fmaf(weight, part[i].x, out.x);
      out.y = fmaf(weight, part[i].y, out.y);
    }
    const float scale = __fdividef(1.0f, sum);
    return weights.multiply(vectorOf({out.x * scale, out.y * scale}));
  }
}
#endif
} // namespace gpt2c::clusters
