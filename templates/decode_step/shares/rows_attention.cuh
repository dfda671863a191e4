// Attention of the block's sequences for shares/rows.cuh, with all heads of the cluster: to all of
// their keys, or to a part of those of one, which the blocks that share it merge.
#pragma once

#include "templates/attention/score.cuh"
#include "templates/decode_step/shares/rows_step.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

/// A matrix of 8 x 8 two-byte floats, of which lane (g, t) has 2 t and 2 t + 1 of row g.
__device__ __forceinline__ unsigned transposed(unsigned pair) {
  unsigned v;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(v) : "r"(pair));
  return v;
}

/// q of all heads, rounded as keys are. ofQ: the constants of the thread's pair, if it has one
/// only.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::queries(const HeadRecord<Words> &head,
                                                     const Constants &ofQ) {
  constexpr int pairs = C::HeadDim / 2;
  ofOwnRows([&](int) {
    const Moments m = moments(shared.head.statistics[own], head.half.first);
    auto *const to = shared.q + own * C::HeadsEach;
    if constexpr (C::HeadNorm) {
      for (int h = warp; h < C::HeadsEach; h += warps) {
        unsigned word[L::pairs];
        Base::queryWords(word, head, h, m);
#pragma unroll
        for (int p = 0; p < L::pairs; p++)
          if (lane + 32 * p < pairs)
            *reinterpret_cast<unsigned *>(&to[h][2 * (lane + 32 * p)]) = word[p];
      }
      return;
    }
    for (unsigned i = threadIdx.x; i < C::HeadsEach * pairs; i += consumers) {
      const int h = i / pairs, d = i % pairs * 2;
      float2 v;
      if constexpr (early) {
        v = Base::gather(shared.head.sum[0], h * C::HeadDim + d, ofQ, m);
      } else {
        float unused = 0.0f;
        v = Base::queryPair(head, h, d, m, unused);
      }
      *reinterpret_cast<unsigned *>(&to[h][d]) = Mma<T>::pack(v.x, v.y);
    }
  });
}

/// The new token of a sequence into the state, and its scores and values, by the helper: where
/// several blocks share its keys, of that which has it. Its key is made while others make q.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::newToken(const HeadRecord<Words> &head, int sequence,
                                                      int past) {
  constexpr int dim = C::HeadDim;
  auto *const values = shared.head.newValue + own * C::KeysEach;
  float *const scores = shared.head.newScore + own * C::HeadsEach;
  auto waitForQ = [&] {
    if (own == 0)
      Base::template sync<4, warps + 1>();
  };
  if (!RowKeys<C>::appends(past, place.keyPart())) {
    for (int i = lane; i < C::KeysEach * dim; i += 32)
      values[i / dim][i % dim] = 0.0f;
    if (lane < C::HeadsEach)
      scores[lane] = leastScore;
    waitForQ();
    return;
  }
  const Moments m = moments(shared.head.statistics[own], head.half.first);
  const bool stores = sequence < batch() && State<C>::has(head, past);
  unsigned key[C::KeysEach][L::pairs] = {};
#pragma unroll
  for (int h = 0; h < C::KeysEach; h++) {
    if (h >= place.keys)
      continue;
    unsigned value[L::pairs] = {};
    Base::keyWords(key[h], value, head, h, m);
#pragma unroll
    for (int p = 0; p < L::pairs; p++) {
      const int d = 2 * (lane + 32 * p);
      if (d >= dim)
        continue;
      *reinterpret_cast<float2 *>(&values[h][d]) = Mma<T>::unpack(value[p]);
      if (stores) {
        const State<C> state(head, sequence, place.keyHead + h, shared.pages[own]);
        T *const to = state.keys + state.offsetOf(past) + d;
        *reinterpret_cast<unsigned *>(to) = key[h][p];
        *reinterpret_cast<unsigned *>(to + state.toValue) = value[p];
      }
    }
  }
  waitForQ();
#pragma unroll
  for (int h = 0; h < C::HeadsEach; h++) {
    float score = 0.0f;
#pragma unroll
    for (int p = 0; p < L::pairs; p++) {
      const int d = 2 * (lane + 32 * p);
      if (d >= dim)
        continue;
      const float2 q = Mma<T>::unpack(
                       *reinterpret_cast<const unsigned *>(&shared.q[own * C::HeadsEach + h][d])),
                   k = Mma<T>::unpack(key[h / M::group][p]);
      score = fmaf(q.x, k.x, fmaf(q.y, k.y, score));
    }
    score = scaledScore(warpReduce<Sum>(score), head.scale);
    if (lane == 0)
      scores[h] = score;
  }
}

/// Scores, softmax and sums of values of the warp's tiles of head `keyHead` of the cluster's keys,
/// of the block's sequence `own`, whose slots begin `first` behind the next, for the heads that
/// share them: a part of its own.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::attendToKeys(int keyHead, int first,
                                                          const RowKeys<C> &keys, float scale) {
  using P = KeyPairs<C>;
  if (warp >= P::readers)
    return;
  constexpr int group = M::group, tilesOf = C::HeadDim / 16;
  const int ofKeys = own * C::HeadsEach + keyHead * group, past = keys.past;
  const auto q = vectorIn(shared.q[ofKeys + min(g, group - 1)]);
  float out[tilesOf][4] = {}, top[2] = {leastScore, leastScore}, sums[2] = {};
  const int ahead = warp - (int)((unsigned)first % P::readers);
#pragma unroll 1
  for (int s = ahead < 0 ? ahead + P::readers : ahead; s < keys.slots; s += P::readers) {
    const auto slot = slotAt(first + s);
    waitSlot(slot);
#pragma unroll 1
    for (int p = 0; p < P::pairs && s * P::pairs + p < keys.tiles; p++) {
      const char *const tile = shared.ring[slot.number] + 2 * p * P::tileBytes, *const values =
                                                                                    tile +
                                                                                    P::tileBytes;
      TileSum sum = {};
      Base::template accumulate<typename L::Keys>(sum, tile, q);
      const int key = keys.positionOf(s * P::pairs + p) + 2 * g;
      float weight[2][2]; // of a key and of two heads
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float a = key < past ? total(sum, 0, e) * scale : leastScore,
                    b = key + 1 < past ? total(sum, 0, 2 + e) * scale : leastScore;
        float most = fmaxf(top[e], fmaxf(a, b));
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2)
          most = fmaxf(most, __shfl_xor_sync(fullWarp, most, lanes));
        const float factor = exp2Approximate(top[e] - most);
        top[e] = most;
        weight[0][e] = key < past ? exp2Approximate(a - most) : 0.0f;
        weight[1][e] = key + 1 < past ? exp2Approximate(b - most) : 0.0f;
        sums[e] = fmaf(sums[e], factor, weight[0][e] + weight[1][e]);
#pragma unroll
        for (int i = 0; i < tilesOf; i++) {
          out[i][e] *= factor;
          out[i][2 + e] *= factor;
        }
      }
      const unsigned even = transposed(Mma<T>::pack(weight[0][0], weight[0][1])),
                     odd = transposed(Mma<T>::pack(weight[1][0], weight[1][1]));
      const char *const from = values + (lane % 8 + lane / 16 * 8) * P::pitch + lane / 8 % 2 * 16;
#pragma unroll
      for (int i = 0; i < tilesOf; i++) {
        unsigned v[4];
        loadMatrix4Transposed(v, from + i * 32);
        Mma<T>::multiply(out[i], v, even, odd);
      }
    }
    release(slot, arrivals);
  }
#pragma unroll
  for (int lanes = 4; lanes < 32; lanes *= 2)
#pragma unroll
    for (int e = 0; e < 2; e++)
      sums[e] += __shfl_xor_sync(fullWarp, sums[e], lanes);
#pragma unroll
  for (int e = 0; e < 2; e++) {
    const int head = ofKeys + 2 * t + e;
    if (2 * t + e < group) {
      if (g == 0)
        shared.head.softmax[warp][head] = {top[e], sums[e]};
#pragma unroll
      for (int i = 0; i < tilesOf; i++) {
        shared.head.out[warp][head][i * 16 + g] = out[i][e];
        shared.head.out[warp][head][i * 16 + g + 8] = out[i][2 + e];
      }
    }
  }
}

/// The parts of the warps as one, to all blocks.
template <typename C> __device__ __forceinline__ void RowsStep<C>::sendAttended() {
  constexpr unsigned pairs = C::HeadDim / 2, ofRow = C::HeadsEach * pairs, all = M::ownRows * ofRow;
  constexpr int readers = KeyPairs<C>::readers;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i - lane < all; i += consumers) {
    const unsigned ofOwn = min(i / pairs, M::ownHeads - 1u), d = i % pairs * 2,
                   row = M::ownRows == 1 ? 0 : ofOwn / C::HeadsEach,
                   ofCluster = M::ownRows == 1 ? ofOwn : ofOwn % C::HeadsEach,
                   column = M::ownRows == 1 ? i : i % ofRow, keyHead = ofCluster / M::group;
    unsigned word = 0;
    float top = leastScore, sum = 1.0f;
    if (i < all && (C::KeysEach == 1 || (int)keyHead < place.keys)) {
      // Of the warps, and of the new token.
      float2 softmax[readers + 1], part[readers + 1];
      float tops[readers + 1];
      softmax[readers] = {shared.head.newScore[ofOwn], 1.0f};
#pragma unroll
      for (int w = 0; w < readers; w++)
        softmax[w] = shared.head.softmax[w][ofOwn];
#pragma unroll
      for (int w = 0; w < readers; w++)
        part[w] = *reinterpret_cast<const float2 *>(&shared.head.out[w][ofOwn][d]);
      part[readers] =
          *reinterpret_cast<const float2 *>(&shared.head.newValue[row * C::KeysEach + keyHead][d]);
#pragma unroll
      for (int w = 0; w <= readers; w++)
        tops[w] = softmax[w].x;
      top = Base::template inPairs<Max>(tops);
      float2 v = {};
      sum = 0.0f;
#pragma unroll
      for (int w = 0; w <= readers; w++) {
        const float weight = exp2Approximate(softmax[w].x - top);
        sum = fmaf(weight, softmax[w].y, sum);
        v.x = fmaf(weight, part[w].x, v.x);
        v.y = fmaf(weight, part[w].y, v.y);
      }
      const float scale = __fdividef(1.0f, sum);
      word = Mma<T>::pack(v.x * scale, v.y * scale);
    }
    if constexpr (L::keyParts > 1)
      if (i < all && d < 2 * ranks)
        send(remote(sharedAddress(&shared.partSoftmax[place.rank][ofCluster]), d / 2), top, sum,
             remote(shared.arrived[AtParts].address(), d / 2));
    sendWords(word,
              i < all ? sharedAddress(&shared.attended[row * ranks + place.rank][column / 4 * 8])
                      : 0,
              AtParts);
  }
}

/// Of the blocks that share the keys of a sequence, what they have of attention as one, in the
/// place of the first one's.
template <typename C> __device__ __forceinline__ void RowsStep<C>::mergeAttended() {
  constexpr unsigned pairs = C::HeadDim / 2, ofRow = C::HeadsEach * pairs;
  constexpr int of = L::keyParts;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < L::rowsEach * ofRow; i += consumers) {
    const unsigned first = i / ofRow * of, column = i % ofRow * 2, head = column / C::HeadDim;
    float2 softmax[of], part[of], v = {};
    float tops[of], sum = 0.0f;
#pragma unroll
    for (int p = 0; p < of; p++) {
      softmax[p] = shared.partSoftmax[first + p][head];
      part[p] =
          Mma<T>::unpack(*reinterpret_cast<const unsigned *>(&shared.attended[first + p][column]));
      tops[p] = softmax[p].x;
    }
    const float top = Base::template inPairs<Max>(tops);
#pragma unroll
    for (int p = 0; p < of; p++) {
      const float weight = exp2Approximate(softmax[p].x - top) * softmax[p].y;
      sum += weight;
      v.x = fmaf(weight, part[p].x, v.x);
      v.y = fmaf(weight, part[p].y, v.y);
    }
    const float scale = __fdividef(1.0f, sum);
    *reinterpret_cast<unsigned *>(&shared.attended[first][column]) =
        Mma<T>::pack(v.x * scale, v.y * scale);
  }
}

/// The block's part of attention behind the first product: publishes its partial sums of the output
/// projection.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::attentionOfRows(const HeadRecord<Words> &head,
                                                             int step, const Constants &ofQ) {
  auto keysOf = [&](int sequence) {
    return RowKeys<C>(sequence < batch() ? shared.past[sequence] + step : 0, place.keyPart());
  };
  const RowKeys<C> ofFirst = keysOf(place.ownRow(0)); // ahead of the wait
  waitArrival(AtHead, turn);
  Base::note(Mark::heads_sums_came);
  queries(head, ofQ);
  Base::template arrive<4, warps + 1>();
  Base::template sync<3, warps>();
  Base::note(Mark::queries_made);
  int slots = 0;
  ofOwnRows([&](int sequence) {
    const RowKeys<C> keys = M::ownRows == 1 ? ofFirst : keysOf(sequence);
#pragma unroll 1
    for (int h = 0; h < place.keys; h++, slots += keys.slots)
      attendToKeys(h, slots, keys, scoreFactor(head.scale));
  });
  Base::template sync<2, warps + 1>();
  Base::note(Mark::keys_attended, Mark::keys_attended_waited);
  advance(slots);
  sendAttended();
  Base::note(Mark::attended_sent);
  waitArrival(AtParts, turn);
  if constexpr (L::keyParts > 1) {
    mergeAttended();
    Base::template sync<3, warps>();
  }
  Base::note(Mark::attended_came);
  projectionOfRows(head.half);
  Base::note(Mark::projection_published, Mark::projection_published_waited);
}
#endif
} // namespace gpt2c::shares
