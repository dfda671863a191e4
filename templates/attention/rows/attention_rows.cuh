// Attention of graphs that keep queries, keys and values apart: one warp per query, online softmax,
// 32 keys at a time (a lane takes the product with one key, then the lanes share the elements of
// each value). Any head_dim.
//   out[b,s,h,:] = sum over visible j of softmax_j(scale * q . k_j + bias[b,h,s,j]) v_j, zeros
//   where none is visible
// Keys are a first run and a second run of rows:
//   Cached: rows of the KV state [layers,2,slots,keyHeads,context,HeadDim] up to past[b] + seq, no
//     second run; query s sees j <= past[b] + s.
//   else: firstKeys, firstValues [batch,keyHeads,firstCount,HeadDim], then keys, values
//     [batch,keyCount,keyHeads*HeadDim]; with Causal query s sees j <= firstCount + s.
// With Window > 0, Cached or Causal, a query sees the last so many of them.
// A key whose mask is 0 or whose bias is -inf is not visible. Head h of the queries reads head
// h / (heads / keyHeads) of the keys. With Last each sequence has one query, number length[b] - 1
// of its qTokens.
//
// Config: X (q, keys, values, out), Kv (first run), P (past), L (length), M (mask), B (bias):
// storage; HeadDim, Warps (static); Cached; Causal; Window; Last; Mask; Bias.
// Kernel: q X[batch,qTokens,qRow], of which the first heads*HeadDim elements of a row are read,
//   first (keys of the first run, or the state), firstValues, keys, values, past P[batch], length
//   L[batch], mask M[batch,maskStride], bias B with strides biasBatch, biasHead, biasRow, biasKey,
//   out, batch, seq, qTokens, qRow, heads, keyHeads, firstCount, keyCount, layer, slots, context,
//   maskStride, scale.
// Grid: any, batch * seq * heads / Warps is one round; block: 32 * Warps.
// Flops: 4 batch seq heads HeadDim keys.
#pragma once

#include "templates/device/elementwise.cuh"
#include "templates/device/strided.cuh"

namespace gpt2c::tile {

template <typename C>
__device__ __forceinline__ void
attentionRows(const typename C::X *q, const typename C::Kv *first,
              const typename C::Kv *firstValues, const typename C::X *keys,
              const typename C::X *values, const typename C::P *past, const typename C::L *length,
              const typename C::M *mask, const typename C::B *bias, typename C::X *out, i64 batch,
              i64 seq, i64 qTokens, i64 qRow, i64 heads, i64 keyHeads, i64 firstCount, i64 keyCount,
              i64 layer, i64 slots, i64 context, i64 maskStride, i64 biasBatch, i64 biasHead,
              i64 biasRow, i64 biasKey, float scale, float softCap, i64 block, i64 blocks) {
  using T = Compute<typename C::X>;
  constexpr int D = C::HeadDim, chunks = ceilDiv(D, 32);
  __shared__ T queries[C::Warps][D];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  T *query = queries[warp];
  waitForPredecessor();
  for (i64 row = block * C::Warps + warp; row < batch * seq * heads; row += blocks * C::Warps) {
    // Neighbouring warps take queries of one head, which share keys.
    const i64 to = row % seq, h = row / seq % heads, b = row / seq / heads;
    const i64 at = (b * seq + to) * heads * D + h * D, keyHead = h / (heads / keyHeads);
    i64 s = to;
    if constexpr (C::Last) {
      s = (i64)load(length + b) - 1;
      s = s < 0 ? 0 : s < qTokens ? s : qTokens - 1;
    }
    const i64 from = (b * qTokens + s) * qRow + h * D, width = keyHeads * D;
    const typename C::Kv *runKeys, *runValues;
    i64 run, limit; // rows of the first run; visible keys are below `limit`
    if constexpr (C::Cached) {
      const i64 p = (i64)load(past + b);
      runKeys = first + ((layer * 2 * slots + b) * keyHeads + keyHead) * context * D;
      runValues = runKeys + slots * keyHeads * context * D;
      run = limit = p + s + 1 < context ? p + s + 1 : context;
    } else {
      runKeys = first + (b * keyHeads + keyHead) * firstCount * D;
      runValues = firstValues + (b * keyHeads + keyHead) * firstCount * D;
      run = firstCount;
      limit = firstCount + keyCount;
      if (C::Causal && firstCount + s + 1 < limit)
        limit = firstCount + s + 1;
    }
    const i64 tail = b * keyCount * width + keyHead * D;

    __syncwarp();
    for (int d = lane; d < D; d += 32)
      query[d] = load(q + from + d);
    __syncwarp();
    T top = lowest<T>(), sum = 0, acc[chunks] = {};
    const i64 oldest = C::Window > 0 && limit > C::Window ? limit - C::Window : 0;
    for (i64 base = oldest; base < limit; base += 32) {
      const i64 j = base + lane;
      bool visible = j < limit;
      if constexpr (C::Mask)
        visible = visible && j < maskStride && load(mask + b * maskStride + j) != 0;
      T score = lowest<T>();
      if (visible) {
        T dot = 0;
        if (j < run) {
          for (int d = 0; d < D; d++)
            dot += query[d] * (T)load(runKeys + j * D + d);
        } else {
          for (int d = 0; d < D; d++)
            dot += query[d] * (T)load(keys + tail + (j - run) * width + d);
        }
        score = dot * (T)scale;
        if (softCap != 0.0f)
          score = (T)softCap * ::tanh(score / (T)softCap);
        if constexpr (C::Bias) {
          score += (T)load(bias + b * biasBatch + h * biasHead + s * biasRow + j * biasKey);
          visible = score != lowest<T>();
        }
      }
      T best = score;
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        T other = __shfl_xor_sync(fullWarp, best, offset);
        best = other > best ? other : best;
      }
      best = best > top ? best : top;
      const T correction = top == best ? (T)1 : ::exp(top - best);
      top = best;
      const T weight = visible ? ::exp(score - top) : (T)0;
      T total = weight;
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2)
        total += __shfl_xor_sync(fullWarp, total, offset);
      sum = sum * correction + total;
#pragma unroll
      for (int c = 0; c < chunks; c++)
        acc[c] *= correction;
      const int rows = limit - base < 32 ? (int)(limit - base) : 32;
      for (int r = 0; r < rows; r++) {
        const T w = __shfl_sync(fullWarp, weight, r);
        if (w == (T)0)
          continue;
        const i64 key = base + r;
#pragma unroll
        for (int c = 0; c < chunks; c++) {
          const int d = c * 32 + lane;
          if (d < D)
            acc[c] += w * (key < run ? (T)load(runValues + key * D + d)
                                     : (T)load(values + tail + (key - run) * width + d));
        }
      }
    }
#pragma unroll
    for (int c = 0; c < chunks; c++)
      if (c * 32 + lane < D)
        store(out + at + c * 32 + lane, sum == (T)0 ? (T)0 : acc[c] / sum);
  }
}

} // namespace gpt2c::tile
