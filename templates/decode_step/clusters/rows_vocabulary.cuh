// The vocabulary for clusters/batch.cuh.
#pragma once

#include "templates/decode_step/clusters/rows.cuh"
#include "templates/decode_step/clusters/vocabulary.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// All of x from the blocks of the cluster, once all have sent their statistics of it.
template <typename C> __device__ __forceinline__ void RowsStep<C>::gatherWhole() {
  constexpr int vector = elementsPer16Bytes<T>();
  const unsigned parity = turn / decltype(shared.records)::layers & 1 ^ 1;
  waitArrival(shared.arrived[AtStatistics], parity);
  Barrier &arrived = shared.arrived[AtWhole];
  constexpr int vectors = L::slice / vector;
  for (int i = threadIdx.x; i < rows * vectors * ranks; i += warps * 32) {
    const int n = i / ranks / vectors, v = i / ranks % vectors;
    send(remote(sharedAddress(&shared.whole[n][rank * L::slice + v * vector]), i % ranks),
         *reinterpret_cast<const uint4 *>(&shared.x[n][v * vector]),
         remote(arrived.address(), i % ranks));
  }
  waitArrival(arrived, parity);
  if (threadIdx.x == 0) {
    shared.arrived[AtStatistics].expect(rows * ranks * 8);
    arrived.expect(rows * C::D * (int)sizeof(T));
  }
}

/// v: the two logits' products that the lane has of each group of sequences, with the 8 rows of
/// weights at `from`, its own row and vector.
///
/// Rows of the group begin in the same banks. So odd rows are read with pieces 2 i and 2 i + 1
/// exchanged, and rows g + 8 of x, which has only eight, are rows g in that order: columns of even
/// rows count in rows g of the result, others in rows g + 8.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::vocabularyProducts(const W *from,
                                                                float (&v)[groups][2]) {
  constexpr int vector = elementsPer16Bytes<T>(), pieces = C::D / (4 * vector);
  static_assert(pieces % 2 == 0);
  constexpr int pairs = groups / together;
  auto weights = [&](const W *at) {
    if constexpr (Operand<W>::scaled) {
      const uint2 word = *reinterpret_cast<const uint2 *>(at);
      const HalfPairs u = Operand<W>::halves(word.x), o = Operand<W>::halves(word.y);
      return uint4{u.low, u.high, o.low, o.high};
    } else {
      return *reinterpret_cast<const uint4 *>(at);
    }
  };
  auto multiply = [](float(&sum)[2][4], const uint4 &a, const uint4 &b, const uint4 &w) {
    const unsigned low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
    mma16816(sum[0], low, w.x, w.y);
    mma16816(sum[1], high, w.z, w.w);
  };
  if constexpr (groups == 1) {
    const auto x = rowsIn(shared.whole, 0);
    float sum[2][2][4] = {};
#pragma unroll 4
    for (int p = 0; p < pieces; p += 2) {
      const uint4 a = x(p), b = x(p + 1);
      multiply(sum[0], a, b, weights(from + (p + g % 2) * 4 * vector));
      multiply(sum[1], b, a, weights(from + (p + 1 - g % 2) * 4 * vector));
    }
    v[0][0] = (sum[0][0][0] + sum[0][1][0]) + (sum[1][0][0] + sum[1][1][0]);
    v[0][1] = (sum[0][0][3] + sum[0][1][3]) + (sum[1][0][3] + sum[1][1][3]);
  } else {
    float sum[pairs][2][4] = {};
#pragma unroll 2
    for (int p = 0; p < pieces; p += 2) {
      const uint4 first = weights(from + (p + g % 2) * 4 * vector),
                  second = weights(from + (p + 1 - g % 2) * 4 * vector);
      const bool odd = g % 2;
      const uint4 w[2] = {{odd ? second.x : first.x, odd ? second.y : first.y,
                           odd ? second.z : first.z, odd ? second.w : first.w},
                          {odd ? first.x : second.x, odd ? first.y : second.y,
                           odd ? first.z : second.z, odd ? first.w : second.w}};
#pragma unroll
      for (int i = 0; i < pairs; i++) {
        const auto x = rowsIn(shared.whole, 2 * i), y = rowsIn(shared.whole, 2 * i + 1);
#pragma unroll
        for (int j = 0; j < 2; j++)
          multiply(sum[i], x(p + j), y(p + j), w[j]);
      }
    }
#pragma unroll
    for (int i = 0; i < groups; i++)
#pragma unroll
      for (int j = 0; j < 2; j++)
        v[i][j] = sum[i / 2][0][i % 2 * 2 + j] + sum[i / 2][1][i % 2 * 2 + j];
  }
}

/// The logits of the groups of 8 rows that come through the ring, and the best of them.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::vocabularyRows(const VocabularyRecord<Words> &record) {
  constexpr int vector = elementsPer16Bytes<T>();
  // A warp waits for the same slots in each lap: a barrier tells only one lap from the next.
  static_assert(C::Slots % readers == 0);
  gatherWhole();
  Moments m[groups];
#pragma unroll
  for (int i = 0; i < groups; i++)
    m[i] = moments(shared.statistics[i * ranks + g], record.first);
  u64 best[groups]; // less than that of any logit
#pragma unroll
  for (int i = 0; i < groups; i++)
    best[i] = 1;
  float *const logits = record.logits;
  const int batch = this->batch(), begin = slot;
  // A row beyond the batch has the last one's token.
  const Drawn<C> drawn[2] = {Drawn<C>(record, min(g, batch - 1)),
                             Drawn<C>(record, min((groups - 1) * ranks + g, batch - 1))};
  const unsigned beginLap = lap;
  auto done = [&] {
    __syncwarp();
    if (lane == 0)
      this->giveBack(0, users);
  };
  if (warp < readers) {
    const int first = (warp - slot % readers + readers) % readers, count = groupCount<C>();
    advance(first);
#pragma unroll 1
    for (int i = first; i < count; i += readers) {
      const int row = (blockIdx.x + i * gridDim.x) * 8;
      double gumbel[groups][2]; // while weights are on their way
#pragma unroll
      for (int j = 0; j < groups; j++)
        drawn[j].gumbels(row + 2 * t, gumbel[j]);
      waitSlot(0);
      const W *from = reinterpret_cast<const W *>(shared.ring[slot]) + g * C::D + t * vector;
      auto ofRows = [&](const float *from) {
        auto one = [&](int at) {
          return __uint_as_float(persistent::loadWord(from + min(at, C::Vocab - 1)));
        };
        return float2{one(row + 2 * t), one(row + 2 * t + 1)};
      };
      const float2 sums = C::FinalNorm == NormKind::Layer ? ofRows(record.first.sums) : float2{},
                   bias = ofRows(record.first.bias),
                   scales = Operand<W>::scaled ? ofRows(record.first.scales) : float2{1.0f, 1.0f};
      float v[groups][2];
      vocabularyProducts(from, v);
      done();
#pragma unroll
      for (int i = 0; i < groups; i++) {
        const int n = i * ranks + g;
        v[i][0] = fmaf((v[i][0] - m[i].mean * sums.x) * m[i].scale, scales.x, bias.x);
        v[i][1] = fmaf((v[i][1] - m[i].mean * sums.y) * m[i].scale, scales.y, bias.y);
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const int at = row + 2 * t + j;
          if (at < C::Vocab) {
            if (n < batch)
              logits[(i64)n * C::Vocab + at] = v[i][j];
            best[i] = max(best[i], drawn[i].key(v[i][j], gumbel[i][j], at));
          }
        }
      }
      advance(readers);
    }
    slot = begin;
    lap = beginLap;
  }
#pragma unroll
  for (int i = 0; i < groups; i++) {
#pragma unroll
    for (int offset = 2; offset > 0; offset /= 2)
      best[i] = max(best[i], __shfl_xor_sync(fullWarp, best[i], offset));
    if (t == 0)
      shared.best[i * ranks + g][warp] = best[i];
  }
}
#endif
} // namespace gpt2c::clusters
