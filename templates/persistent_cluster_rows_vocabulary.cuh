// The vocabulary for persistent_cluster_batch.cuh.
#pragma once

#include "persistent_cluster_rows.cuh"
#include "persistent_cluster_vocabulary.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// The logits of the groups of 8 rows that come through the ring, and the best of them.
///
/// Rows of the group begin in the same banks. So odd rows are read with pieces 2 i and 2 i + 1
/// exchanged, and rows g + 8 of x, which has only eight, are rows g in that order: columns of even
/// rows count in rows g of the result, others in rows g + 8.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::vocabularyRows(const Record &record) {
  constexpr int vector = elementsPer16Bytes<T>(), pieces = C::D / (4 * vector);
  static_assert(pieces % 2 == 0);
  u64 *const arrived = &shared.arrived[AtWhole];
  constexpr int vectors = L::slice / vector;
  for (int i = threadIdx.x; i < rows * vectors * ranks; i += warps * 32) {
    const int n = i / ranks / vectors, v = i / ranks % vectors;
    send(remote(sharedAddress(&shared.whole.x[n][rank * L::slice + v * vector]), i % ranks),
         *reinterpret_cast<const uint4 *>(&shared.x[n][v * vector]),
         remote(sharedAddress(arrived), i % ranks));
  }
  waitArrival(arrived, (turn / ((C::Records - 3) / 2) & 1) ^ 1);
  if (threadIdx.x == 0)
    persistent::barrierExpect(arrived, rows * (C::D * (int)sizeof(T) + ranks * 8));
  const Moments m = moments(shared.whole.statistics[g], record);
  u64 best = 1; // less than that of any logit
  const auto x = rowsIn(shared.whole.x);
  float *const logits = record.pointer<float>(Second) + (i64)g * C::Vocab;
  const int begin = slot;
  const unsigned beginLap = lap;
  auto done = [&] {
    __syncwarp();
    if (lane == 0)
      this->giveBack(0, users);
  };
  if (warp < readers) {
    advance((warp - slot % readers + readers) % readers);
#pragma unroll 1
    while (true) {
      waitSlot(0);
      const int unit = shared.unit[slot], row = unit * 8;
      if (unit < 0)
        break;
      const W *from = reinterpret_cast<const W *>(shared.ring[slot]) + g * C::D + t * vector;
      auto ofRows = [&](int word) {
        return persistent::loadEarly(record.pointer<const float>(word) +
                                     min(row + 2 * t, (C::Vocab - 1) / 2 * 2));
      };
      const float2 sums = C::FinalNorm == NormKind::Layer ? ofRows(FirstSums) : float2{},
                   bias = ofRows(FirstBias),
                   scales = sizeof(W) == 1 ? ofRows(FirstScales) : float2{1.0f, 1.0f};
      float sum[4][4] = {};
#pragma unroll 4
      for (int p = 0; p < pieces; p += 2) {
        const uint4 a = x(p), b = x(p + 1);
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const W *at = from + (p + (j ^ g % 2)) * 4 * vector;
          const uint4 &first = j == 0 ? a : b, &second = j == 0 ? b : a;
          const unsigned low[4] = {first.x, second.x, first.y, second.y},
                         high[4] = {first.z, second.z, first.w, second.w};
          uint4 w;
          if constexpr (sizeof(W) == 1) {
            const uint2 word = *reinterpret_cast<const uint2 *>(at);
            const quantised::HalfPairs u = quantised::halves(word.x), o = quantised::halves(word.y);
            w = {u.low, u.high, o.low, o.high};
          } else {
            w = *reinterpret_cast<const uint4 *>(at);
          }
          mma16816(sum[2 * j], low, w.x, w.y);
          mma16816(sum[2 * j + 1], high, w.z, w.w);
        }
      }
      done();
      float v[2];
      v[0] = (sum[0][0] + sum[1][0]) + (sum[2][0] + sum[3][0]);
      v[1] = (sum[0][3] + sum[1][3]) + (sum[2][3] + sum[3][3]);
      v[0] = fmaf((v[0] - m.mean * sums.x) * m.scale, scales.x, bias.x);
      v[1] = fmaf((v[1] - m.mean * sums.y) * m.scale, scales.y, bias.y);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int at = row + 2 * t + j;
        if (at < C::Vocab) {
          if (g < batch)
            logits[at] = v[j];
          best = max(best, tile::argmaxKey(v[j], at));
        }
      }
      advance(readers);
    }
    done();
    slot = begin;
    lap = beginLap;
  }
#pragma unroll
  for (int offset = 2; offset > 0; offset /= 2)
    best = max(best, __shfl_xor_sync(fullWarp, best, offset));
  if (t == 0)
    shared.best[g][warp] = best;
}
#endif
} // namespace gpt2c::clusters
