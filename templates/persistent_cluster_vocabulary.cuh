// The vocabulary of persistent_clusters.cuh, its logits and the choice; persistent_cluster_batch.cuh
// fills its ring in the same way.
#pragma once

#include "persistent_cluster_stream.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// The vocabulary, in groups of 8 rows for whichever block has room for them: multiprocessors share
/// their way to memory with different numbers of others.
template <typename C> __device__ __forceinline__ void Stream<C>::vocabulary(unsigned epoch) {
  // So many are taken ahead, by measurement, that hide how long that takes; in fp32, where a group
  // takes long, whoever has the slowest way to memory would end last with more.
  constexpr int units = ceilDiv(C::Vocab, 8), ahead = 16 / (int)sizeof(W);
  const Record &step = shared.records[C::Records - 1];
  const char *from = shared.records[C::Records - 2].template pointer<const char>(First);
  unsigned *const counter = unitCounter<C>(step, epoch % 3);
  auto take = [&] { return lane == 0 ? atomicAdd(counter, 1u) : 0u; };
  unsigned next[ahead];
#pragma unroll
  for (int i = 0; i < ahead; i++)
    next[i] = take();
  int count = 0, missing = readers; // so many slots behind the last unit say that it was the last
  const int begin = slot;
  const unsigned beginLap = lap;
#pragma unroll 1
  while (missing > 0)
#pragma unroll
    for (int i = 0; i < ahead; i++) {
      const int unit = (int)__shfl_sync(fullWarp, next[i], 0);
      const bool last = unit >= units;
      if (last && missing == 0)
        break;
      missing -= last;
      count++;
      persistent::barrierWait(&shared.empty[slot], lap ^ 1);
      __syncwarp();
      if (lane == 0) {
        shared.unit[slot] = last ? -1 : unit;
        if (missing == 0)
          shared.vocabularySlots = count;
        const int bytes = last ? 0 : min(8, C::Vocab - unit * 8) * C::D * (int)sizeof(W);
        persistent::barrierExpect(&shared.full[slot], bytes);
        if (bytes > 0)
          persistent::copyBulk(shared.ring[slot], from + (i64)unit * L::slotBytes, bytes,
                               &shared.full[slot]);
      } else {
        persistent::barrierArrive(&shared.full[slot]);
      }
      next[i] = last ? (unsigned)units : take();
      if (++slot == C::Slots) {
        slot = 0;
        lap ^= 1;
      }
    }
  // Slots have been given back in any order: none may be waited for a lap ahead.
  static_assert(C::Slots <= 32);
  if (lane < C::Slots) {
    const bool wraps = slot + lane >= C::Slots;
    persistent::barrierWait(&shared.empty[slot + lane - (wraps ? C::Slots : 0)], lap ^ wraps ^ 1);
  }
  __syncwarp();
  slot = begin;
  lap = beginLap;
}
/// The logits of the groups of 8 rows that come through the ring, and the best of them.
template <typename C> __device__ __forceinline__ void Step<C>::vocabulary(const Record &record) {
  constexpr int vector = elementsPer16Bytes<T>();
  u64 *const arrived = &shared.arrived[AtWhole];
  // The slice in pieces of 16 bytes, to all blocks.
  constexpr int vectors = L::slice / vector;
  // Of two vectors that are multiplied by one of int8 weights the second ones are behind the first.
  auto wholeVector = [](int i) {
    return halves && sizeof(W) == 1 ? i % 2 * (C::D / 16) + i / 2 : i;
  };
  for (int i = threadIdx.x; i < vectors * ranks; i += warps * 32)
    send(remote(sharedAddress(&shared.whole.x[wholeVector(rank * vectors + i / ranks) * vector]),
                i % ranks),
         reinterpret_cast<const uint4 *>(shared.x)[i / ranks],
         remote(sharedAddress(arrived), i % ranks));
  waitArrival(arrived, (turn / ((C::Records - 3) / 2) & 1) ^ 1);
  if (threadIdx.x == 0)
    persistent::barrierExpect(arrived, C::D * (int)sizeof(T) + ranks * 8);
  const Moments m = moments(shared.whole.statistics, record);
  u64 best = 1; // less than that of any logit
  const uint4 *const x = reinterpret_cast<const uint4 *>(shared.whole.x);
  float *const logits = record.pointer<float>(Second);
  // A slot of the ring is always the same warp's: none waits for a slot that another has yet to
  // read.
  const int begin = slot;
  const unsigned beginLap = lap;
  if (warp < readers) {
    advance((warp - slot % readers + readers) % readers);
#pragma unroll 1
    while (true) {
      waitSlot(0);
      const int unit = shared.unit[slot], row = lane % 8, at = unit * 8 + row;
      if (unit < 0)
        break;
      const char *const rows = shared.ring[slot];
      auto ofRow = [&](int word) {
        return persistent::loadWord(record.pointer<const float>(word) + min(at, C::Vocab - 1));
      };
      const float sums = C::FinalNorm == NormKind::Layer ? __uint_as_float(ofRow(FirstSums)) : 0.0f,
                  bias = __uint_as_float(ofRow(FirstBias)),
                  scale = sizeof(W) == 1 ? __uint_as_float(ofRow(FirstScales)) : 1.0f;
      // Lanes (g, t) have row g, whose pitch is a multiple of all banks: odd rows take odd vectors
      // first.
      const int odd = g % 2 * 4;
      float v;
      if constexpr (halves) {
        // Rows g and g + 8 of the operand are the halves of row g. A column of the other one is
        // either half of x, in either order: of the results those count whose row and column agree,
        // the first and the last of lanes with equal parities of g and t.
        constexpr int vectors = C::D * (int)sizeof(W) / 32; // of a half
        const uint4 *const w = reinterpret_cast<const uint4 *>(rows + g * C::D * (int)sizeof(W)),
                    *const half = x + g % 2 * vectors;
        const int swap = g / 2 % 2 * 4;
        float sum[4][4] = {};
        auto multiply = [&](int i, const uint4 &b, const unsigned (&a)[4], const unsigned (&c)[4]) {
          const unsigned low[4] = {a[0], c[0], a[1], c[1]}, high[4] = {a[2], c[2], a[3], c[3]};
          mma16816(sum[2 * i % 4], low, b.x, b.y);
          mma16816(sum[(2 * i + 1) % 4], high, b.z, b.w);
        };
#pragma unroll 4
        for (int p = 0; p < vectors; p += 4) {
          const uint4 a = w[(p ^ odd) + t], c = w[vectors + (p ^ odd) + t];
          const int i = (p ^ swap) + t;
          if constexpr (sizeof(W) == 1) {
            const uint4 low = half[i], high = half[C::D / 16 + i];
            auto pairs = [](unsigned u, unsigned v, unsigned(&to)[4]) {
              const quantised::HalfPairs p = quantised::halves(u), q = quantised::halves(v);
              to[0] = p.low, to[1] = p.high, to[2] = q.low, to[3] = q.high;
            };
            unsigned first[4], second[4];
            pairs(a.x, a.y, first);
            pairs(c.x, c.y, second);
            multiply(0, low, first, second);
            pairs(a.z, a.w, first);
            pairs(c.z, c.w, second);
            multiply(1, high, first, second);
          } else {
            multiply(p / 4, half[i], {a.x, a.y, a.z, a.w}, {c.x, c.y, c.z, c.w});
          }
        }
        v = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++)
          v += sum[i][0] + sum[i][3];
        v = __shfl_sync(fullWarp, v, row * 4 + row % 2);
      } else {
        float sum = 0.0f;
#pragma unroll 4
        for (int p = 0; p < C::D / 16; p++) {
          const int i = (4 * p ^ odd) + t;
          const uint4 a = x[i];
          float w[4];
          loadFloats<4>(reinterpret_cast<const W *>(rows) + g * C::D + i * 4, w);
          sum = fmaf(w[0], __uint_as_float(a.x), sum);
          sum = fmaf(w[1], __uint_as_float(a.y), sum);
          sum = fmaf(w[2], __uint_as_float(a.z), sum);
          sum = fmaf(w[3], __uint_as_float(a.w), sum);
        }
        v = __shfl_sync(fullWarp, warpReduce<Sum, 4>(sum), row * 4);
      }
      __syncwarp();
      if (lane == 0)
        persistent::barrierArrive(&shared.empty[slot]);
      v = fmaf((v - m.mean * sums) * m.scale, scale, bias);
      if (at < C::Vocab) {
        if (lane < 8)
          logits[at] = v;
        best = max(best, tile::argmaxKey(v, at));
      }
      advance(readers);
    }
    if (lane == 0)
      persistent::barrierArrive(&shared.empty[slot]);
    slot = begin;
    lap = beginLap;
  }
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2)
    best = max(best, __shfl_xor_sync(fullWarp, best, offset));
  if (lane == 0)
    shared.best[warp] = best;
}

/// The step's token: the first warps of all blocks tell each other the best of what they have.
template <typename C>
__device__ __forceinline__ void Step<C>::choose(const Record &step, const Record &embedding, int past,
                                                int s, int steps, unsigned epoch) {
  u64 best = lane < warps ? shared.best[lane] : 0;
  best = tile::warpLargest(best);
  u64 *keys = blockChoices<C>(step, epoch % 3);
  if (lane == 0)
    persistent::publishPair(keys + blockIdx.x, best);
  // The row that the next step begins with, if the block's best is the best of all.
  constexpr int rowBytes = C::D * (int)sizeof(typename C::Embedding);
  const char *row = embedding.pointer<const char>(First) + (i64)tile::indexOf(best) * rowBytes;
  if (best >> 32 != 0)
    for (int i = lane * 128; i < rowBytes; i += 32 * 128)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(row + i));
  best = 0;
  Patience patience;
  for (int i = lane; i < (int)gridDim.x;) {
    const u64 key = persistent::acquirePair(keys + i);
    best = max(best, key);
    i += key != 0 ? 32 : 0;
    patience.spend();
  }
  __syncwarp();
  best = tile::warpLargest(best);
  if (lane == 0) {
    const int id = best >> 32 == 0 ? 0 : tile::indexOf(best);
    shared.id = id;
    persistent::barrierArrive(&shared.chosen);
    if (blockIdx.x == 0) {
      step.pointer<int>(persistent::Next)[0] = id;
      step.pointer<int>(
          persistent::Tokens)[(i64)(*step.pointer<int>(persistent::StepIndex) + s) *
                              step.integer(persistent::Batch)] = id;
      if (s + 1 == steps) {
        step.pointer<int>(persistent::Ids)[0] = id;
        step.pointer<int>(persistent::Past)[0] = past + steps;
      }
    }
  }
}
#endif
} // namespace gpt2c::clusters
