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
    shared.angle[own * C::Rotary + i] = {__ldg(r.cosines + (i64)position * C::Rotary + i),
                                         __ldg(r.sines + (i64)position * C::Rotary + i)};
}

/// Elements d and d + 1 of a head, which is row `at` and following of the sums and row `row` of the
/// weights; turned, if it `turns`. Where heads are normed a head that turns is without its factor
/// yet, and squares of what it was go to `squares`.
template <typename C>
__device__ __forceinline__ float2 Step<C>::turned(const HeadRecord<Words> &head, int at, int row,
                                                  int d, const Moments &m, bool turns,
                                                  float &squares) const {
  const float *const gains =
      C::HeadNorm ? shared.embedding().gains +
                        (i64)head.layer * ((C::Heads + C::KeyHeads) * C::HeadDim) + row
                  : nullptr;
  auto sum = [&](int d) {
    return gather(shared.head.sum[own], at + d, constants(head.half.first, row + d), m);
  };
  auto gained = [&](float2 v, int d) {
    if constexpr (C::HeadNorm) {
      const float2 gain = __ldg(reinterpret_cast<const float2 *>(gains + d));
      return float2{v.x * gain.x, v.y * gain.y};
    } else {
      return v;
    }
  };
  float2 v = sum(d);
  if (!turns)
    return v;
  if constexpr (C::HeadNorm)
    squares = fmaf(v.x, v.x, fmaf(v.y, v.y, squares));
  v = gained(v, d);
  if (d >= 2 * C::Rotary)
    return v;
  const float2 *const angles = shared.angle + own * C::Rotary;
  if constexpr (C::Neighbours) {
    const float2 a = angles[d / 2];
    return {fmaf(v.x, a.x, -v.y * a.y), fmaf(v.y, a.x, v.x * a.y)};
  }
  const bool low = d < C::Rotary;
  const int apart = low ? d + C::Rotary : d - C::Rotary;
  const float2 other = gained(sum(apart), apart);
  const float4 a =
      *reinterpret_cast<const float4 *>(angles + (low ? d : d - C::Rotary)); // of two pairs
  const float sign = low ? -1.0f : 1.0f;
  return {fmaf(v.x, a.x, sign * other.x * a.y), fmaf(v.y, a.z, sign * other.y * a.w)};
}
/// Of q of head `ofCluster` of the cluster's.
template <typename C>
__device__ __forceinline__ float2 Step<C>::queryPair(const HeadRecord<Words> &head, int ofCluster,
                                                     int d, const Moments &m,
                                                     float &squares) const {
  return turned(head, ofCluster * C::HeadDim, place.queryRow(ofCluster), d, m, true, squares);
}
/// What a head is divided by, of whose elements the lanes have the squares; 1 where heads are not
/// normed.
template <typename C> __device__ __forceinline__ float Step<C>::headFactor(float squares) const {
  if constexpr (C::HeadNorm)
    return persistent::inverseRoot(
        fmaf(warpReduce<Sum>(squares), 1.0f / C::HeadDim, shared.embedding().gainEpsilon));
  else
    return 1.0f;
}
/// q of head `ofCluster`, of which the lane has pairs lane + 32 p, rounded as keys are.
template <typename C>
__device__ __forceinline__ void Step<C>::queryWords(unsigned (&word)[L::pairs],
                                                    const HeadRecord<Words> &head, int ofCluster,
                                                    const Moments &m) const {
  float2 v[L::pairs] = {};
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < L::pairs; p++)
    if (const int d = 2 * (lane + 32 * p); d < C::HeadDim)
      v[p] = queryPair(head, ofCluster, d, m, squares);
  const float factor = headFactor(squares);
#pragma unroll
  for (int p = 0; p < L::pairs; p++)
    word[p] = Mma<T>::pack(v[p].x * factor, v[p].y * factor);
}
/// The new key of head `ofCluster` of those of the cluster's keys, and its value; as queryWords().
template <typename C>
__device__ __forceinline__ void
Step<C>::keyWords(unsigned (&key)[L::pairs], unsigned (&value)[L::pairs],
                  const HeadRecord<Words> &head, int ofCluster, const Moments &m) const {
  const int atKey = (C::HeadsEach + ofCluster) * C::HeadDim,
            atValue = atKey + C::KeysEach * C::HeadDim;
  float2 v[L::pairs] = {};
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < L::pairs; p++)
    if (const int d = 2 * (lane + 32 * p); d < C::HeadDim) {
      v[p] = turned(head, atKey, place.keyRow(atKey), d, m, true, squares);
      float unused = 0.0f;
      const float2 made = turned(head, atValue, place.keyRow(atValue), d, m, false, unused);
      value[p] = Mma<T>::pack(made.x, made.y);
    }
  const float factor = headFactor(squares);
#pragma unroll
  for (int p = 0; p < L::pairs; p++)
    key[p] = Mma<T>::pack(v[p].x * factor, v[p].y * factor);
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
  const Moments m = moments(shared.head.statistics[own], head.half.first);
  const State<C> state(head, 0, place.keyHead, shared.pages);
  T *const to = state.keys + state.offsetOf(past);
  unsigned key[L::pairs] = {}, value[L::pairs] = {};
  keyWords(key, value, head, 0, m);
#pragma unroll
  for (int p = 0; p < L::pairs; p++) {
    const int d = 2 * (lane + 32 * p);
    if (d >= dim)
      continue;
    *reinterpret_cast<float2 *>(&shared.out[at][d]) = Mma<T>::unpack(value[p]);
    if (state.has(head, past)) {
      *reinterpret_cast<unsigned *>(to + d) = key[p];
      *reinterpret_cast<unsigned *>(to + state.toValue + d) = value[p];
    }
  }
#pragma unroll 1
  for (int h = 0; h < each; h++) {
    unsigned query[L::pairs];
    queryWords(query, head, h, m);
    float score = 0.0f;
#pragma unroll
    for (int p = 0; p < L::pairs; p++) {
      if (2 * (lane + 32 * p) >= dim)
        continue;
      const float2 q = Mma<T>::unpack(query[p]), k = Mma<T>::unpack(key[p]);
      score = fmaf(q.x, k.x, fmaf(q.y, k.y, score));
    }
    score = scaledScore(warpReduce<Sum>(score), head.scale);
    if (lane == 0)
      shared.softmax[at + h] = {score, 1.0f};
  }
}

/// The parts of the warps of each head as one, to all blocks: a thread has a pair of columns of a
/// head for some of the blocks, for as few as there are threads.
template <typename C> __device__ __forceinline__ void Step<C>::sendGroupParts() {
  constexpr int pairs = C::HeadDim / 2, each = C::HeadsEach, ofHead = L::headWarps,
                columns = pairs * each, fit = warps * 32 / columns,
                apart = fit < 1 ? 1 : least(fit, ranks); // from a block of a thread to its next one
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < columns * apart; i += warps * 32) {
    const int pair = i % pairs, head = i / pairs % each;
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
    const unsigned to = sharedAddress(&shared.parts.out[place.rank][head * C::HeadDim + 2 * pair]),
                   softmaxTo = sharedAddress(&shared.parts.softmax[place.rank * each + head]);
    for (int block = i / columns; block < ranks; block += apart) {
      const unsigned done = remote(shared.arrived[AtParts].address(), block);
      send(remote(to, block), out.x, out.y, done);
      if (pair == 0)
        send(remote(softmaxTo, block), top, total, done);
    }
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
  note(Mark::heads_sums_came);
  const int ofHead = warp / C::HeadsEach;
  HeadVector q = {{}, t};
  if (ofHead < L::headWarps && ofHead < k.tiles()) {
    const Moments m = moments(shared.head.statistics[own], head.half.first);
    queryWords(q.word, head, warp % C::HeadsEach, m);
  }
  note(Mark::queries_made);
  attendToTiles(k, past, scoreFactor(head.scale), q);
  sync<2, warps + 1>();
  note(Mark::keys_attended, Mark::keys_attended_waited);
  sendGroupParts();
  releaseKeys(k);
  advance(2 * k.slots());
  note(Mark::attended_sent);
  waitArrival(AtParts, turn);
  mergeGroupParts();
  sync<3, warps>();
  note(Mark::attended_came);
  second<typename L::Projection>(head.half, L::busy, [&](int chunk) {
    return vectorIn(shared.attended + chunk * L::Projection::columns);
  });
  note(Mark::projection_published, Mark::projection_published_waited);
}
#endif
} // namespace gpt2c::shares
