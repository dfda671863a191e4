// Attention of heads that share keys, or whose q and k turn with the position, for
// shares/shares.cuh: the cluster's heads have the same keys, each has some of the warps.
//
// Where fewer heads are a cluster's than share keys, several clusters make the same k and v and
// each stores them: a block reads only what it has stored itself, or what is equal to it.
#pragma once

#include "templates/decode_step/shares/attention.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

/// Cosines and sines of position `past` into shared memory, ahead of a step.
template <typename C>
__device__ __forceinline__ void Step<C>::noteAngles(const ClusterEmbedRecord<Words> &r,
                                                    int past) const {
  const int i = threadIdx.x, position = max(0, min(past, r.angleCount - 1));
  if (place.hasHead && i < C::Rotary)
    shared.angle[i] = {__ldg(r.cosines + (i64)position * C::Rotary + i),
                       __ldg(r.sines + (i64)position * C::Rotary + i)};
}

/// Elements d and d + 1 of a head, which is row `at` and following of the sums and row `row` of the
/// weights; turned, if it `turns`.
template <typename C>
__device__ __forceinline__ float2 Step<C>::turned(const FirstProduct<Words> &product, int at,
                                                  int row, int d, const Moments &m,
                                                  bool turns) const {
  auto of = [&](int d) { return gather(shared.head.sum, at + d, constants(product, row + d), m); };
  const float2 v = of(d);
  if (!turns || d >= 2 * C::Rotary)
    return v;
  if constexpr (C::Neighbours) {
    const float2 a = shared.angle[d / 2];
    return {fmaf(v.x, a.x, -v.y * a.y), fmaf(v.y, a.x, v.x * a.y)};
  }
  const bool low = d < C::Rotary;
  const float2 other = of(low ? d + C::Rotary : d - C::Rotary);
  const float4 a =
      *reinterpret_cast<const float4 *>(&shared.angle[low ? d : d - C::Rotary]); // of two pairs
  const float sign = low ? -1.0f : 1.0f;
  return {fmaf(v.x, a.x, sign * other.x * a.y), fmaf(v.y, a.z, sign * other.y * a.w)};
}
/// Of q of head `ofCluster` of the cluster's.
template <typename C>
__device__ __forceinline__ float2 Step<C>::queryPair(const FirstProduct<Words> &product,
                                                     int ofCluster, int d, const Moments &m) const {
  return turned(product, ofCluster * C::HeadDim, place.queryRow(ofCluster), d, m, true);
}

/// The new token as a part of its own for each head, and into the state, by the helper.
template <typename C>
__device__ __forceinline__ void Step<C>::groupToNew(const HeadRecord<Words> &head, const Keys<C> &k,
                                                    int past) {
  constexpr int at = warps, each = C::HeadsEach, dim = C::HeadDim;
  if (!k.appends) {
    for (int d = lane; d < dim; d += 32)
      shared.out[at][d] = 0.0f;
    if (lane < each)
      shared.softmax[at + lane] = {leastScore, 0.0f};
    return;
  }
  persistent::barrierWait(shared.arrived[AtHead], turn & 1);
  __syncwarp();
  const FirstProduct<Words> &product = head.half.first;
  const Moments m = moments(shared.head.statistics, product);
  const State<C> state(head, 0, place.keyHead, shared.pages);
  T *const to = state.keys + state.offsetOf(past);
  float2 key[L::pairs] = {};
#pragma unroll
  for (int p = 0; p < L::pairs; p++) {
    const int d = 2 * (lane + 32 * p);
    if (d >= dim)
      continue;
    unsigned word[2];
    float2 v[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int row = (each + i) * dim;
      const float2 made = turned(product, row, place.keyRow(row), d, m, i == 0);
      word[i] = Mma<T>::pack(made.x, made.y);
      v[i] = Mma<T>::unpack(word[i]);
    }
    key[p] = v[0];
    *reinterpret_cast<float2 *>(&shared.out[at][d]) = v[1];
    if (state.has(head, past)) {
      *reinterpret_cast<unsigned *>(to + d) = word[0];
      *reinterpret_cast<unsigned *>(to + state.toValue + d) = word[1];
    }
  }
#pragma unroll 1
  for (int h = 0; h < each; h++) {
    float score = 0.0f;
#pragma unroll
    for (int p = 0; p < L::pairs; p++) {
      const int d = 2 * (lane + 32 * p);
      if (d >= dim)
        continue;
      const float2 made = queryPair(product, h, d, m);
      const unsigned word = Mma<T>::pack(made.x, made.y);
      const float2 q = Mma<T>::unpack(word);
      score = fmaf(q.x, key[p].x, fmaf(q.y, key[p].y, score));
    }
    score = scaledScore(warpReduce<Sum>(score), head.scale);
    if (lane == 0)
      shared.softmax[at + h] = {score, 1.0f};
  }
}

/// The parts of the warps of each head as one, to all blocks: a thread has a pair of columns of a
/// head for a block.
template <typename C> __device__ __forceinline__ void Step<C>::sendGroupParts() {
  constexpr int pairs = C::HeadDim / 2, each = C::HeadsEach, ofHead = L::headWarps;
#pragma unroll 1
  for (int i = threadIdx.x; i < pairs * each * ranks; i += warps * 32) {
    const int pair = i % pairs, head = i / pairs % each, block = i / (pairs * each);
    float top = leastScore, total = 0.0f;
    float2 out = {}, softmax[ofHead + 1];
#pragma unroll
    for (int w = 0; w <= ofHead; w++) {
      softmax[w] = shared.softmax[w < ofHead ? head + w * each : warps + head];
      top = fmaxf(top, softmax[w].x);
    }
#pragma unroll
    for (int w = 0; w <= ofHead; w++) {
      const float weight = exp2Approximate(softmax[w].x - top);
      const float2 v = *reinterpret_cast<const float2 *>(
          &shared.out[w < ofHead ? head + w * each : warps][2 * pair]);
      total = fmaf(weight, softmax[w].y, total);
      out.x = fmaf(weight, v.x, out.x);
      out.y = fmaf(weight, v.y, out.y);
    }
    const unsigned done = remote(shared.arrived[AtParts].address(), block);
    send(remote(sharedAddress(&shared.parts.out[place.rank][head * C::HeadDim + 2 * pair]), block),
         out.x, out.y, done);
    if (pair == 0)
      send(remote(sharedAddress(&shared.parts.softmax[place.rank * each + head]), block), top,
           total, done);
  }
}

/// What attention is of all heads of the cluster, into shared memory.
template <typename C> __device__ __forceinline__ void Step<C>::mergeGroupParts() {
  constexpr int each = C::HeadsEach;
#pragma unroll 1
  for (int i = threadIdx.x; i < each * C::HeadDim / 2; i += warps * 32) {
    const int head = i / (C::HeadDim / 2);
    float2 softmax[ranks], v = {};
    float top = leastScore, total = 0.0f;
#pragma unroll
    for (int r = 0; r < ranks; r++) {
      softmax[r] = shared.parts.softmax[r * each + head];
      top = fmaxf(top, softmax[r].x);
    }
#pragma unroll
    for (int r = 0; r < ranks; r++) {
      const float weight = exp2Approximate(softmax[r].x - top);
      const float2 part = *reinterpret_cast<const float2 *>(&shared.parts.out[r][2 * i]);
      total = fmaf(weight, softmax[r].y, total);
      v.x = fmaf(weight, part.x, v.x);
      v.y = fmaf(weight, part.y, v.y);
    }
    const float scale = __fdividef(1.0f, total);
    *reinterpret_cast<unsigned *>(shared.attended + 2 * i) = Mma<T>::pack(v.x * scale, v.y * scale);
  }
}

/// As attention().
template <typename C>
__device__ __forceinline__ void Step<C>::attentionOfGroup(const HeadRecord<Words> &head, Keys<C> k,
                                                          int past) {
  waitArrival(AtHead, turn);
  const int ofHead = warp / C::HeadsEach;
  HeadVector q = {{}, t};
  if (ofHead < L::headWarps && ofHead < k.tiles()) {
    const Moments m = moments(shared.head.statistics, head.half.first);
#pragma unroll
    for (int p = 0; p < L::pairs; p++) {
      const int d = 2 * (lane + 32 * p);
      if (d < C::HeadDim) {
        const float2 v = queryPair(head.half.first, warp % C::HeadsEach, d, m);
        q.word[p] = Mma<T>::pack(v.x, v.y);
      }
    }
  }
  attendToTiles(k, past, scoreFactor(head.scale), q);
  sync<2, warps + 1>();
  sendGroupParts();
  releaseKeys(k);
  waitArrival(AtParts, turn);
  mergeGroupParts();
  sync<3, warps>();
  second<typename L::Projection>(head.half, L::busy, 2 * k.slots(), [&](int chunk) {
    return vectorIn(shared.attended + chunk * L::Projection::columns);
  });
  advance(2 * k.slots() + L::Projection::slots);
}
#endif
} // namespace gpt2c::shares
