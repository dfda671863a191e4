// The middle of a head's half of a layer for shares/shares.cuh: scores, softmax and values of a
// block's keys, and the parts of all blocks.
#pragma once

#include "templates/attention/score.cuh"
#include "templates/decode_step/shares/step.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

/// The head's q, rounded as keys are, zeros behind it.
template <typename C>
__device__ __forceinline__ typename Step<C>::HeadVector
Step<C>::query(const HeadRecord<Words> &head, const Constants (&ofQ)[L::pairs],
               const Moments &m) const {
  HeadVector q = {{}, t};
#pragma unroll
  for (int p = 0; p < L::pairs; p++) {
    const int pair = lane + 32 * p;
    if (pair < C::HeadDim / 2) {
      const float2 v = gather(shared.head.sum[own], 2 * pair, ofQ[p], m);
      q.word[p] = Mma<T>::pack(v.x, v.y);
    }
  }
  return q;
}

/// Scores, softmax and sums of values of the warp's tiles of a lap, added to what it has.
template <typename C>
__device__ __forceinline__ void Step<C>::attendToLap(const Keys<C> &k, int past, float scale,
                                                     const HeadVector &q, float2 (&out)[L::pairs],
                                                     float &top, float &total) {
  using P = typename L::Keys;
  const int begin = warp / C::HeadsEach;
#pragma unroll 1
  for (int tile = begin < L::headWarps ? begin : k.tiles(); tile < k.tiles();
       tile += L::headWarps) {
    TileSum sum = {};
    const int i = (unsigned)tile / P::each;
    const Slot ofKeys = slotAt<true>(i), ofValues = slotAt<true>(k.slots() + i);
    waitSlot(ofKeys);
    accumulate<P>(sum, tileIn<P>(ofKeys, tile), q);
    float2 score = rowsOf(sum);
    const int key = k.keyOf(tile * tileRows + 2 * g, place.rank);
    score.x = key < past ? score.x * scale : leastScore;
    score.y = key + 1 < past ? score.y * scale : leastScore;
    const float most = warpReduce<Max>(fmaxf(top, fmaxf(score.x, score.y)));
    const float factor = exp2Approximate(top - most);
    const float2 weight = {key < past ? exp2Approximate(score.x - most) : 0.0f,
                           key + 1 < past ? exp2Approximate(score.y - most) : 0.0f};
    top = most;
    // Lanes t have the same keys.
    total = fmaf(total, factor, warpReduce<Sum>(t == 0 ? weight.x + weight.y : 0.0f));
#pragma unroll
    for (int p = 0; p < L::pairs; p++) {
      out[p].x *= factor;
      out[p].y *= factor;
    }
    waitSlot(ofValues);
    const char *const values = tileIn<P>(ofValues, tile) + lane * 4;
#pragma unroll
    for (int j = 0; j < tileRows; j++) {
      const float w = __shfl_sync(fullWarp, j % 2 ? weight.y : weight.x, j / 2 * 4);
#pragma unroll
      for (int p = 0; p < L::pairs; p++)
        if ((p + 1) * 64 <= P::padded || lane + 32 * p < P::padded / 2) {
          const float2 v =
              Mma<T>::unpack(*reinterpret_cast<const unsigned *>(values + j * P::pitch + p * 128));
          out[p].x = fmaf(w, v.x, out[p].x);
          out[p].y = fmaf(w, v.y, out[p].y);
        }
    }
  }
}

/// The slots of a lap, which have several readers, by one warp behind all of them.
template <typename C> __device__ __forceinline__ void Step<C>::releaseKeys(const Keys<C> &k) const {
  if (warp == warps - 1)
    for (int i = lane; i < 2 * k.slots(); i += 32)
      shared.empty[slotAt<true>(i).number].arrive(arrivals);
}

/// Attention of the warp's tiles, as a part of its own. `k` is the last lap behind it, whose slots
/// are the warps' yet.
template <typename C>
__device__ __forceinline__ void Step<C>::attendToTiles(Keys<C> &k, int past, float scale,
                                                       const HeadVector &q) {
  float2 out[L::pairs] = {};
  float top = leastScore, total = 0.0f;
#pragma unroll 1
  for (;; k.next()) {
    attendToLap(k, past, scale, q, out, top, total);
    if (k.isLast())
      break;
    sync<3, warps>();
    releaseKeys(k);
    advance(2 * k.slots());
  }
#pragma unroll
  for (int p = 0; p < L::pairs; p++)
    if (lane + 32 * p < C::HeadDim / 2)
      *reinterpret_cast<float2 *>(&shared.out[warp][2 * (lane + 32 * p)]) = out[p];
  if (lane == 0)
    shared.softmax[warp] = {top, total};
}

/// The new token as a part of its own, and into the state, by the helper.
template <typename C>
__device__ __forceinline__ void Step<C>::attendToNew(const HeadRecord<Words> &head,
                                                     const Keys<C> &k, int past) {
  constexpr int at = warps;
  if (!k.appends) {
    for (int d = lane; d < C::HeadDim; d += 32)
      shared.out[at][d] = 0.0f;
    if (lane == 0)
      shared.softmax[at] = {leastScore, 0.0f};
    return;
  }
  Constants of[3][L::pairs];
#pragma unroll
  for (int part = 0; part < 3; part++)
#pragma unroll
    for (int p = 0; p < L::pairs; p++)
      of[part][p] = constants(head.half.first, part * L::attended + place.cluster * C::HeadDim +
                                                   min(2 * (lane + 32 * p), C::HeadDim - 2));
  persistent::barrierWait(shared.arrived[AtHead], turn & 1);
  __syncwarp();
  const Moments m = moments(shared.head.statistics[own], head.half.first);
  const State<C> state(head, 0, place.cluster, shared.pages);
  T *const key = state.keys + state.offsetOf(past);
  float score = 0.0f;
#pragma unroll
  for (int p = 0; p < L::pairs; p++) {
    const int d = 2 * (lane + 32 * p);
    if (d >= C::HeadDim)
      continue;
    unsigned word[3];
    float2 v[3];
#pragma unroll
    for (int i = 0; i < 3; i++) {
      v[i] = gather(shared.head.sum[own], i * C::HeadDim + d, of[i][p], m);
      word[i] = Mma<T>::pack(v[i].x, v[i].y);
      v[i] = Mma<T>::unpack(word[i]);
    }
    score = fmaf(v[0].x, v[1].x, fmaf(v[0].y, v[1].y, score));
    *reinterpret_cast<float2 *>(&shared.out[at][d]) = v[2];
    if (state.has(head, past)) {
      *reinterpret_cast<unsigned *>(key + d) = word[1];
      *reinterpret_cast<unsigned *>(key + state.toValue + d) = word[2];
    }
  }
  score = scaledScore(warpReduce<Sum>(score), head.scale);
  if (lane == 0)
    shared.softmax[at] = {score, 1.0f};
}

/// The parts of the warps as one, to all blocks: a thread has a pair of columns for a block.
template <typename C> __device__ __forceinline__ void Step<C>::sendParts() {
  constexpr int pairs = C::HeadDim / 2;
  for (int i = threadIdx.x; i < pairs * ranks; i += warps * 32) {
    const int pair = i % pairs, block = i / pairs;
    float top = leastScore, total = 0.0f;
    float2 out = {}, softmax[warps + 1];
#pragma unroll
    for (int w = 0; w <= warps; w++) {
      softmax[w] = shared.softmax[w];
      top = fmaxf(top, softmax[w].x);
    }
#pragma unroll
    for (int w = 0; w <= warps; w++) {
      const float weight = exp2Approximate(softmax[w].x - top);
      const float2 v = *reinterpret_cast<const float2 *>(&shared.out[w][2 * pair]);
      total = fmaf(weight, softmax[w].y, total);
      out.x = fmaf(weight, v.x, out.x);
      out.y = fmaf(weight, v.y, out.y);
    }
    const unsigned done = remote(shared.arrived[AtParts].address(), block);
    send(remote(sharedAddress(&shared.parts.out[place.rank][2 * pair]), block), out.x, out.y, done);
    if (pair == 0)
      send(remote(sharedAddress(&shared.parts.softmax[place.rank]), block), top, total, done);
  }
}

/// What the head's attention is.
template <typename C>
__device__ __forceinline__ typename Step<C>::HeadVector Step<C>::mergedParts() const {
  float2 softmax[ranks];
  float top = leastScore, total = 0.0f;
#pragma unroll
  for (int i = 0; i < ranks; i++) {
    softmax[i] = shared.parts.softmax[i];
    top = fmaxf(top, softmax[i].x);
  }
#pragma unroll
  for (int i = 0; i < ranks; i++) {
    softmax[i].x = exp2Approximate(softmax[i].x - top);
    total = fmaf(softmax[i].x, softmax[i].y, total);
  }
  const float scale = __fdividef(1.0f, total);
  HeadVector o = {{}, t};
#pragma unroll
  for (int p = 0; p < L::pairs; p++) {
    const int pair = lane + 32 * p;
    if (pair < C::HeadDim / 2) {
      float2 v = {};
#pragma unroll
      for (int i = 0; i < ranks; i++) {
        const float2 part = *reinterpret_cast<const float2 *>(&shared.parts.out[i][2 * pair]);
        v.x = fmaf(softmax[i].x, part.x, v.x);
        v.y = fmaf(softmax[i].x, part.y, v.y);
      }
      o.word[p] = Mma<T>::pack(v.x * scale, v.y * scale);
    }
  }
  return o;
}

/// The block's part of attention behind `receive`, `store` and the first product: publishes its
/// partial sums of the output projection.
template <typename C>
__device__ __forceinline__ void Step<C>::attention(const HeadRecord<Words> &head, Keys<C> k,
                                                   int past, const Constants (&ofQ)[L::pairs]) {
  waitArrival(AtHead, turn);
  note(Mark::heads_sums_came);
  HeadVector q = {{}, t};
  if (warp < k.tiles())
    q = query(head, ofQ, moments(shared.head.statistics[own], head.half.first));
  note(Mark::queries_made);
  attendToTiles(k, past, scoreFactor(head.scale), q);
  sync<2, warps + 1>();
  note(Mark::keys_attended, Mark::keys_attended_waited);
  sendParts();
  releaseKeys(k);
  advance(2 * k.slots());
  note(Mark::attended_sent);
  waitArrival(AtParts, turn);
  note(Mark::attended_came);
  second<typename L::Projection>(head.half, C::Heads, [o = mergedParts()](int) { return o; });
  note(Mark::projection_published, Mark::projection_published_waited);
}
#endif
} // namespace gpt2c::shares
