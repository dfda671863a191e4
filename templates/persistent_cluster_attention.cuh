// The middle of a head's half of a layer for persistent_clusters.cuh: scores, softmax and values of
// a block's keys, and the parts of all blocks.
#pragma once

#include "persistent_cluster_step.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// The block's part of attention behind `receive` and `store`: publishes its partial sums of the
/// output projection.
template <typename C>
__device__ __forceinline__ void Step<C>::attention(const Record &half, int past,
                                                   const Constants &c, float2 outScales) {
  const Keys<C> k(past, rank);
  auto &sums = shared.head;
  u64 *const sumsArrived = &shared.arrived[AtHead], *const partsArrived = &shared.arrived[AtParts];
  const float scale = half.real(Scale) * 1.4426950408889634f;
  constexpr int outTiles = L::slice / 16;
  const int outTile = warp - (warps - outTiles);
  const bool scores = warp < k.tiles, outputs = outTile >= 0;
  // Of keys a lane has rows g and g + 8. A warp without keys has its weights ahead of the wait.
  Tile<headDim> tile;
  if (scores) {
    if (!roomy)
      waitSlot(warp / L::slotTiles);
    const uint4 *rows = reinterpret_cast<const uint4 *>(keys(0, warp));
#pragma unroll
    for (int i = 0; i < Tile<headDim>::pieces; i++)
#pragma unroll
      for (int j = 0; j < 2; j++)
        tile.w[i][j] = rows[vectorOfKey<T>(g + 8 * j, i * 4 + t)];
  } else if (outputs) {
    load<!roomy>(tile, 2 * k.slots, outTile);
  }
  waitArrival(sumsArrived, turn & 1);
  if (threadIdx.x == 0)
    persistent::barrierExpect(sumsArrived, ranks * (L::headRows * 4 + 8));
  if (scores)
    scoreTile(k, tile, gather(sums.sum, 2 * lane, c, moments(sums.statistics, half)), scale);
  if (scores && outputs)
    load<!roomy>(tile, 2 * k.slots, outTile);
  if (!roomy)
    for (int i = 0; i < k.slots; i++)
      waitSlot(k.slots + i);
  sync<2, warps + 1>();
  if (warp < headDim / 8)
    weighValues(k);
  advance(2 * k.slots + L::projectionSlots);
  if (outputs) {
    waitArrival(partsArrived, turn & 1);
    if (threadIdx.x == 32 * (warps - outTiles))
      persistent::barrierExpect(partsArrived, ranks * (headDim * 4 + 8));
    publish(half, outTile, tile.multiply(vectorOf(mergeParts())), outScales);
  }
}

/// The new token's key and value, by the helper: into the state, the value into its tile, the key's
/// score to the others.
template <typename C>
__device__ __forceinline__ void Step<C>::append(const Record &half, const Keys<C> &k, int past) {
  auto &sums = shared.head;
  const int row = cluster * headDim + 2 * lane;
  const Constants ofQ = constants(half, row), ofK = constants(half, C::D + row),
                  ofV = constants(half, 2 * C::D + row);
  if (!roomy)
    waitSlot(k.slots + k.local / L::slotTiles);
  T *const tile = reinterpret_cast<T *>(keys(k.slots, k.local));
  // Rows that are no keys yet: what the slot held before need not be a number.
  for (int r = k.row + 1; r < keyTile; r++) {
    tile[r * headDim + lane] = fromFloat<T>(0.0f);
    tile[r * headDim + lane + 32] = fromFloat<T>(0.0f);
  }
  waitArrival(&shared.arrived[AtHead], turn & 1);
  const Moments m = moments(sums.statistics, half);
  auto rounded = [](float2 v) {
    return float2{toFloat(fromFloat<T>(v.x)), toFloat(fromFloat<T>(v.y))};
  };
  const float2 q = rounded(gather(sums.sum, 2 * lane, ofQ, m)),
               key = rounded(gather(sums.sum, headDim + 2 * lane, ofK, m)),
               value = gather(sums.sum, 2 * headDim + 2 * lane, ofV, m);
  const float score = warpReduce<Sum>(fmaf(q.x, key.x, q.y * key.y));
  const float value2[2] = {value.x, value.y}, key2[2] = {key.x, key.y};
  constexpr int vector = elementsPer16Bytes<T>();
  storeFloats<2>(tile + vectorOfKey<T>(k.row, 2 * lane / vector) * vector + 2 * lane % vector,
                 value2);
  if (lane == 0)
    shared.newScore = score * half.real(Scale) * 1.4426950408889634f;
  if (past < half.integer(Context)) {
    T *const state =
        half.pointer<T>(Kv) + kvOffset(half.integer(KvLayer), 0, 0, cluster, half.integer(BatchMax),
                                       C::Heads, half.integer(Context), headDim);
    T *const at = state + (i64)past * headDim + 2 * lane;
    storeFloats<2>(at, key2);
    storeFloats<2>(at + (i64)half.integer(BatchMax) * C::Heads * half.integer(Context) * headDim,
                   value2);
  }
}

/// Scores of the warp's tile of keys, base 2 exponents.
template <typename C>
__device__ __forceinline__ void Step<C>::scoreTile(const Keys<C> &k, const Tile<headDim> &key,
                                                   float2 q, float scale) {
  const float2 score = key.multiply(vectorOf(q));
  // Of the tile that ends with the new key those before it.
  const int rows = k.appends && warp == k.local ? k.row : keyTile, row = g + 8 * t;
  const float s = t < 2 && row < rows ? (t == 0 ? score.x : score.y) * scale : -1e30f;
  const float top = largest(s);
  if (t < 2)
    shared.weights[warp * keyTile + row] = row < rows ? persistent::powerOf2(s - top) : 0.0f;
  if (lane == 0)
    shared.tops[warp] = top;
}

/// Softmax of the block's scores and its sum of values, of which the warp has 8 columns; sent to
/// all blocks.
template <typename C> __device__ __forceinline__ void Step<C>::weighValues(const Keys<C> &k) {
  const unsigned toG = distance(g), done = sharedAddress(&shared.arrived[AtParts]);
  // A lane has the maximum of a tile, the last one that of the new key.
  float own = -1e30f, sum = 0.0f;
  if (lane < k.tiles)
    own = shared.tops[lane];
  else if (lane == 31 && k.appends)
    own = shared.newScore;
  const float top = largest(own), factor = persistent::powerOf2(own - top),
              ofNew = k.appends ? __shfl_sync(fullWarp, factor, 31) : 0.0f;
  if constexpr (halves) {
    constexpr int together = 6; // tiles
    float out[together][4] = {};
#pragma unroll 1
    for (int i = 0; i < k.tiles; i += together) {
      unsigned v[together / 2][4], p[together][4];
#pragma unroll
      for (int j = 0; j < together; j += 2)
        loadMatrix4Transposed(v[j / 2], keys(k.slots, min(i + j + lane / 16, k.tiles - 1)) +
                                            vectorOfKey<T>(lane % 16, warp) * 16);
#pragma unroll
      for (int j = 0; j < together; j++) {
        const int at = min(i + j, k.tiles - 1) * keyTile + 2 * t;
        const float2 a = *reinterpret_cast<const float2 *>(&shared.weights[at]);
        const float2 b = *reinterpret_cast<const float2 *>(&shared.weights[at + 8]);
        float f = __shfl_sync(fullWarp, factor, i + j);
        if (i + j >= k.tiles)
          f = 0.0f;
        const float e[4] = {a.x * f, a.y * f, b.x * f, b.y * f};
        sum += (e[0] + e[1]) + (e[2] + e[3]);
        p[j][0] = p[j][1] = packHalves(e[0], e[1]);
        p[j][2] = p[j][3] = packHalves(e[2], e[3]);
      }
#pragma unroll
      for (int j = 0; j < together; j++)
        mma16816(out[j], p[j], v[j / 2][j % 2 * 2], v[j / 2][j % 2 * 2 + 1]);
    }
    sum = warpReduce<Sum, 4>(sum) + ofNew;
    float2 total = {};
    if (k.appends) {
      constexpr int vector = elementsPer16Bytes<T>();
      float v[2];
      loadFloats<2>(reinterpret_cast<const T *>(keys(k.slots, k.local)) +
                        vectorOfKey<T>(k.row, warp) * vector + 2 * t,
                    v);
      total = {ofNew * v[0], ofNew * v[1]};
    }
#pragma unroll
    for (int j = 0; j < together; j += 2) {
      total.x += out[j][0] + out[j + 1][0];
      total.y += out[j][1] + out[j + 1][1];
    }
    send(sharedAddress(&shared.parts.out[rank][warp * 8 + 2 * t]) + toG,
         total.x, total.y, done + toG);
  } else {
    // Lane (i, d) has column d of keys i, i + 4, ..
    const int d = lane % 8;
    float out = 0.0f;
#pragma unroll 4
    for (int i = lane / 8; i < k.tiles * keyTile; i += 4) {
      const float e = shared.weights[i] * __shfl_sync(fullWarp, factor, i / keyTile);
      sum += e;
      const T *tile = reinterpret_cast<const T *>(keys(k.slots, i / keyTile));
      constexpr int vector = elementsPer16Bytes<T>();
      const int column = warp * 8 + d;
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
      constexpr int vector = elementsPer16Bytes<T>();
      const int column = warp * 8 + d;
      out = fmaf(ofNew,
                 toFloat(reinterpret_cast<const T *>(keys(
                     k.slots, k.local))[vectorOfKey<T>(k.row, column / vector) * vector +
                                        column % vector]),
                 out);
    }
    const float a = __shfl_sync(fullWarp, out, 2 * t), b = __shfl_sync(fullWarp, out, 2 * t + 1);
    send(sharedAddress(&shared.parts.out[rank][warp * 8 + 2 * t]) + toG, a, b, done + toG);
  }
  if (warp == 0 && t == 0)
    send(sharedAddress(&shared.parts.softmax[rank]) + toG, top, sum, done + toG);
}

/// Dimensions 2 lane and the next of what the head's attention is.
template <typename C> __device__ __forceinline__ float2 Step<C>::mergeParts() const {
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
    const float weight = persistent::powerOf2(softmax[i].x - top);
    sum = fmaf(weight, softmax[i].y, sum);
    out.x = fmaf(weight, part[i].x, out.x);
    out.y = fmaf(weight, part[i].y, out.y);
  }
  const float scale = __fdividef(1.0f, sum);
  return {out.x * scale, out.y * scale};
}
#endif
} // namespace gpt2c::clusters
