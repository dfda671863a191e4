// Attention of a block's sequence for clusters/batch.cuh.
#pragma once

#include "templates/attention/score.cuh"
#include "templates/decode_step/clusters/rows.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// Keeps what the warp has of a group's sequence: eight rows of columns in the order of
/// attentionRows(), relative to maxima of their own, and the lane's sum.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::keepPart(int n, float (&out)[8][4], float top,
                                                      float sum) {
  const float most = largest(top), less = exp2Approximate(top - most);
  sum *= less;
  sum += __shfl_xor_sync(fullWarp, sum, 4);
  sum += __shfl_xor_sync(fullWarp, sum, 8);
  sum += __shfl_xor_sync(fullWarp, sum, 16);
  // Row g's number v is column group v ^ g: halves are exchanged, so that group g is left.
#pragma unroll
  for (int v = 0; v < 8; v++) {
    out[v][0] *= less;
    out[v][1] *= less;
  }
#pragma unroll
  for (int step = 1; step < 8; step *= 2)
#pragma unroll
    for (int v = 0; v < 8; v += 2 * step)
#pragma unroll
      for (int j = 0; j < 2; j++)
        out[v][j] += __shfl_xor_sync(fullWarp, out[v + step][j], 4 * step);
  auto &parts = shared.half.head.parts[n];
  *reinterpret_cast<float2 *>(&parts.out[warp][2 * lane]) = {out[0][0], out[0][1]};
  if (lane == 0)
    parts.softmax[warp] = {most, sum};
}

/// The block's part of attention behind `receive` and `store`: publishes its partial sums of the
/// output projection. Each warp attends to tiles of keys of its own.
///
/// Keys and values lie as in the state, in rows of 128 bytes. Of a row of keys, lanes t read
/// vectors 4 (i ^ g % 2) + t for the i-th pair of mmas, else rows would share banks: so the sum of
/// row g is that of the column of q whose vectors are in the same order, one of the lane's two. Of
/// values ldmatrix takes vector v ^ k % 8 of row k. The weights are a diagonal matrix, that row g
/// of the v-th result is the sum over keys g, g + 8 of columns 8 (v ^ g) ..; the eight rows are
/// added up in the end. So every g has a maximum of its own, too.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::attentionRows(const HeadRecord<Words> &head,
                                                           int step) {
  constexpr int roundSlots = 2 * warps / L::slotTiles;
  // A warp waits for the slots of its own tiles, and a barrier tells only one lap from the next:
  // the slot of a lap before has to be one that this warp has waited for, too.
  static_assert(C::Slots % roundSlots == 0);
  const float scale = scoreFactor(head.scale);
  uint4 key[2][2];
  const int pair = warp / L::slotTiles * 2;
  auto loadKeys = [&] {
    waitSlot(pair);
    const uint4 *keys = reinterpret_cast<const uint4 *>(shared.ring[slotAt(pair)] +
                                                        warp % L::slotTiles * L::tileBytes);
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int j = 0; j < 2; j++)
        key[h][j] = keys[(g + 8 * h) * 8 + (j ^ g % 2) * 4 + t];
  };
  if (warp < RowKeys<C>::of(shared, batch(), rank, 0, step).tiles)
    loadKeys();
  Base::template sync<5, warps + 1>();
#pragma unroll 1
  for (int n = 0; n < groups; n++) {
    const auto k = RowKeys<C>::of(shared, batch(), rank, n, step);
    uint4 query[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
      query[i] = reinterpret_cast<const uint4 *>(shared.query[n])[(i ^ g % 2) * 4 + t];
    float out[8][4] = {};
    float top = -1e30f, sum = 0.0f; // of keys g and g + 8 of the tiles
#pragma unroll 1
    for (int i = 0; i < k.tiles; i += warps) {
      const int tile = i + warp;
      if (tile < k.tiles) {
        if (i > 0 || n > 0)
          loadKeys();
        const char *values = shared.ring[slotAt(pair + 1)] + warp % L::slotTiles * L::tileBytes;
        float s[2][4] = {};
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const unsigned low[4] = {key[0][j].x, key[1][j].x, key[0][j].y, key[1][j].y},
                         high[4] = {key[0][j].z, key[1][j].z, key[0][j].w, key[1][j].w};
          mma16816(s[0], low, query[j].x, query[j].y);
          mma16816(s[1], high, query[j].z, query[j].w);
        }
        waitSlot(pair + 1);
        unsigned value[4][4];
#pragma unroll
        for (int v = 0; v < 4; v++)
          loadMatrix4Transposed(value[v],
                                values + lane % 16 * 128 + ((2 * v + lane / 16) ^ lane % 8) * 16);
        const int missing = k.count - tile * keyTile; // rows from here on are no keys
        float a = (g % 2 ? s[0][1] + s[1][1] : s[0][0] + s[1][0]) * scale,
              b = (g % 2 ? s[0][3] + s[1][3] : s[0][2] + s[1][2]) * scale;
        a = g < missing ? a : negativeInfinity();
        b = g + 8 < missing ? b : negativeInfinity();
        const float now = fmaxf(top, fmaxf(a, b)), less = exp2Approximate(top - now);
        a = exp2Approximate(a - now);
        b = exp2Approximate(b - now);
        top = now;
        sum = fmaf(sum, less, a + b);
        // The diagonal: column 2 t or the next is row g's.
        const unsigned weights = packHalves(a, b);
        const bool mine = t == g / 2;
        const unsigned low = g % 2 ? weights << 16 : weights & 0xffff,
                       high = g % 2 ? weights & 0xffff0000 : weights >> 16;
        const unsigned diagonal[4] = {mine ? low : 0, 0, mine ? high : 0, 0};
#pragma unroll
        for (int v = 0; v < 8; v++) {
          out[v][0] *= less;
          out[v][1] *= less;
        }
#pragma unroll
        for (int v = 0; v < 4; v++) {
          if (missing < keyTile) // what a slot held before need not be a number
#pragma unroll
            for (int j = 0; j < 4; j++) {
              const int at = 2 * t + j % 2 * 8;
              value[v][j] &= (at < missing ? 0xffff : 0) | (at + 1 < missing ? 0xffff0000 : 0);
            }
          mma16816(out[2 * v], diagonal, value[v][0], value[v][1]);
          mma16816(out[2 * v + 1], diagonal, value[v][2], value[v][3]);
        }
        __syncwarp();
        if (lane < 2) // of a slot that is not full the last warp is the absent ones, too
          this->giveBack(pair + lane, tile + 1 < k.tiles ? 1 : users - warp % L::slotTiles);
      }
      advance(min(roundSlots, 2 * (k.pairs - i / L::slotTiles)));
    }
    keepPart(n, out, top, sum);
    // The next sequence's slots may be a lap behind some of this one's that others have waited for.
    if (n + 1 < groups)
      Base::template sync<5, warps>();
  }
  Base::template sync<2, warps + 1>();
  if (const int n = warps - 1 - warp; n < groups)
    sendPart(n);
  publishAttention(head);
}

/// Joins what the warps have of group n's sequence, and sends it to the blocks of the cluster.
template <typename C> __device__ __forceinline__ void RowsStep<C>::sendPart(int n) {
  const auto &parts = shared.half.head.parts[n];
  float2 softmax[warps + 1], o[2] = {};
  float most = -1e30f, total = 0.0f;
#pragma unroll
  for (int i = 0; i <= warps; i++) {
    softmax[i] = parts.softmax[i];
    most = fmaxf(most, softmax[i].x);
  }
#pragma unroll
  for (int i = 0; i <= warps; i++) {
    const float weight = exp2Approximate(softmax[i].x - most);
    const float2 v = *reinterpret_cast<const float2 *>(&parts.out[i][2 * lane]);
    total = fmaf(weight, softmax[i].y, total);
    o[i % 2].x = fmaf(weight, v.x, o[i % 2].x);
    o[i % 2].y = fmaf(weight, v.y, o[i % 2].y);
  }
  const float inverse = total > 0.0f ? __fdividef(1.0f, total) : 0.0f;
  sendVector(packHalves((o[0].x + o[1].x) * inverse, (o[0].y + o[1].y) * inverse),
             sharedAddress(&shared.half.out[n * ranks + rank][g * 8]), AtParts);
  if (C::Sequences < ranks && lane < ranks)
    send(remote(sharedAddress(&shared.softmax[rank]), lane), most, total,
         remote(shared.arrived[AtParts].address(), lane));
}

/// The output projection of the cluster's head, of all sequences: its partial sums.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::publishAttention(const HeadRecord<Words> &head) {
  constexpr int outTiles = L::slice / 16;
  const int tile = groups == 1 ? min(warp, outTiles - 1) : warp % outTiles;
  typename Base::template Tile<headDim> weights;
  this->loadStrip(weights, 0, tile);
  advance(L::projectionSlots);
  const float2 outScales = Base::secondScales(head.half, tile);
  waitArrival(shared.arrived[AtParts], turn & 1);
  if (threadIdx.x == 0)
    shared.arrived[AtParts].expect(rows *
                                   (headDim * (int)sizeof(T) + (C::Sequences < ranks ? 8 : 0)));
  if constexpr (groups > 1) {
    publishProducts(head.half, weights, shared.half.out, tile, warp / outTiles, outScales);
  } else if (warp < outTiles) {
    float result[4];
    if constexpr (C::Sequences == ranks) {
      multiply(weights, result, rowsIn(shared.half.out, 0));
    } else {
      constexpr int shares = RowKeys<C>::shares;
      const int sequence = g % C::Sequences;
      float share[shares], most = -1e30f, total = 0.0f;
#pragma unroll
      for (int i = 0; i < shares; i++)
        most = fmaxf(most, shared.softmax[sequence + i * C::Sequences].x);
#pragma unroll
      for (int i = 0; i < shares; i++) {
        const float2 v = shared.softmax[sequence + i * C::Sequences];
        share[i] = exp2Approximate(v.x - most) * v.y;
        total += share[i];
      }
      const float inverse = __fdividef(1.0f, total);
      multiply(weights, result, [&](int piece) {
        float v[8] = {};
#pragma unroll
        for (int i = 0; i < shares; i++) {
          float part[8];
          loadFloats<8>(&shared.half.out[sequence + i * C::Sequences][(piece * 4 + t) * 8], part);
#pragma unroll
          for (int j = 0; j < 8; j++)
            v[j] = fmaf(share[i] * inverse, part[j], v[j]);
        }
        return uint4{packHalves(v[0], v[1]), packHalves(v[2], v[3]), packHalves(v[4], v[5]),
                     packHalves(v[6], v[7])};
      });
    }
    publishRows(head.half, warp, 0, result, outScales);
  }
}

/// The new tokens' keys and values, by the helper: parts of attention of their own, and into the
/// state.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::newTokens(const HeadRecord<Words> &head, int step) {
  auto &sums = shared.half.head;
  const int first = cluster * headDim + 2 * lane;
  const Constants ofQ = Base::constants(head.half.first, first),
                  ofK = Base::constants(head.half.first, C::D + first),
                  ofV = Base::constants(head.half.first, 2 * C::D + first);
  waitArrival(shared.arrived[AtHead], turn & 1);
  if (lane == 0)
    shared.arrived[AtHead].expect(sums.bytes);
#pragma unroll 1
  for (int p = 0; p < groups / together; p++) {
    float2 q[together];
    gatherRows(sums, p, 2 * lane, ofQ, head.half.first, q);
#pragma unroll
    for (int j = 0; j < together; j++) {
      const float v[2] = {q[j].x, q[j].y};
      storeFloats<2>(&shared.query[p * together + j][2 * lane], v);
    }
  }
  Base::template sync<5, warps + 1>();
#pragma unroll 1
  for (int p = 0; p < groups / together; p++) {
    float2 key[together], value[together];
    gatherRows(sums, p, headDim + 2 * lane, ofK, head.half.first, key);
    gatherRows(sums, p, 2 * headDim + 2 * lane, ofV, head.half.first, value);
#pragma unroll
    for (int j = 0; j < together; j++) {
      const int n = p * together + j, sequence = n * ranks + rank,
                past = shared.past[sequence] + step;
      float q[2];
      loadFloats<2>(&shared.query[n][2 * lane], q);
      auto round = [](float2 &v) { v = {toFloat(fromFloat<T>(v.x)), toFloat(fromFloat<T>(v.y))}; };
      round(key[j]);
      round(value[j]);
      const float score = warpReduce<Sum>(fmaf(q[0], key[j].x, q[1] * key[j].y));
      const bool here = sequence < C::Sequences;
      auto &parts = shared.half.head.parts[n];
      *reinterpret_cast<float2 *>(&parts.out[warps][2 * lane]) = value[j];
      if (lane == 0)
        parts.softmax[warps] =
            here ? float2{scaledScore(score, head.scale), 1.0f} : float2{-1e30f, 0.0f};
      if (here && sequence < batch() && past < head.context) {
        const float value2[2] = {value[j].x, value[j].y}, key2[2] = {key[j].x, key[j].y};
        T *at = firstKey<C>(head, sequence, cluster) + 2 * lane;
        if constexpr (isPaged<C>)
          at += shared.pages[n].offsetOf(past);
        else
          at += (i64)past * headDim;
        storeFloats<2>(at, key2);
        storeFloats<2>(at + toValue<C>(head), value2);
        // TMA reads it next time.
        asm volatile("fence.proxy.async.global;" ::: "memory");
      }
    }
  }
  Base::template sync<2, warps + 1>();
}

#endif
} // namespace gpt2c::clusters
