// The warps that fill the ring of clusters/clusters.cuh.
#pragma once

#include "templates/decode_step/clusters/step.cuh"
#include "templates/decode_step/common/ring.h"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// Memory behind the channels, as in stages/stages.cuh: u64[3][blocks], the best logit of each
/// block, and a word that counts steps mod 6.
template <typename C>
__device__ __forceinline__ u64 *blockChoices(const StepRecord<Words> &step, unsigned third) {
  return reinterpret_cast<u64 *>(step.channels + 2 * step.channelBytes) +
         third * persistent::maxBlocks;
}
/// Copy `copy` of a step's choices, which the blocks of that rank read; behind four times maxBlocks
/// words.
template <typename C>
__device__ __forceinline__ u64 *choiceCopy(const StepRecord<Words> &step, unsigned third,
                                           int copy) {
  return blockChoices<C>(step, persistent::clusterChoicesAt) +
         (third * ranks + copy) * persistent::maxBlocks;
}

/// The warps that fill the ring, slots in turn, by copies of 16 bytes: the rows of a slice are too
/// short for TMA, which takes about 60 cycles for each.
template <typename C> struct Stream : persistent::RingPlace<C::Slots> {
  using Ring = persistent::RingPlace<C::Slots>;
  using Ring::slot, Ring::lap;
  using L = Layout<C>;
  using T = typename C::T;
  using W = typename C::W;
  static constexpr int chunks = L::slotBytes / 16, each = chunks / 32; ///< of a slot, of a lane
  /// First layers whose weights stay in L2 from step to step: they are wanted all at once when the
  /// token is known, and a half of a layer can be loaded before without delaying the vocabulary.
  static constexpr int kept = (16 << 20) / (12 * C::D * C::D * (int)sizeof(W));

  Shared<C> &shared;
  const int lane = threadIdx.x % 32;
  const int loader = (int)threadIdx.x / 32 - L::loader;
  int turn = loader; ///< 0: the next slot is this warp's
  u64 policy;

  __device__ __forceinline__ void copy(int chunk, const void *from) const {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                     sharedAddress(shared.ring[slot]) + chunk * 16),
                 "l"(from), "l"(policy)
                 : "memory");
  }
  /// Zeros where `valid` is false.
  __device__ __forceinline__ void copy(int chunk, const void *from, bool valid) const {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                     sharedAddress(shared.ring[slot]) + chunk * 16),
                 "l"(from), "r"(valid ? 16 : 0), "l"(policy)
                 : "memory");
  }
  /// The next slot: fill() copies the lane's chunks, 32 from each other.
  template <typename Fill> __device__ __forceinline__ void next(Fill &&fill) {
    if (turn == 0) {
      persistent::barrierWait(shared.empty[slot], lap ^ 1);
      __syncwarp();
      fill();
      shared.full[slot].arriveBehindCopies();
    }
    turn = turn == 0 ? L::loaders - 1 : turn - 1;
    if (Ring::next())
      turn = persistent::slotsUntil(0, loader, L::loaders);
  }
  /// A slot of rows of Columns weights, whose distance is Pitch. Eight rows may have their chunks
  /// in different orders, if lanes read the same ones of all at once.
  template <int Columns, int Pitch, bool Swizzled = false>
  __device__ __forceinline__ void rows(const W *from) {
    constexpr int ofRow = Columns * (int)sizeof(W) / 16; // chunks
    // Lanes return to the same column after `period` chunks.
    constexpr int period = ofRow % 32 == 0  ? ofRow / 32
                           : ofRow % 3 == 0 ? 3
                                            : 1,
                  step = 32 * period / ofRow;
    static_assert(32 * period % ofRow == 0 && each % period == 0);
    next([&] {
      unsigned number = lane;
      asm volatile("" : "+r"(number)); // what follows from it would be kept and spilled
      int offset[period];
#pragma unroll
      for (int i = 0; i < period; i++)
        offset[i] =
            (number + 32 * i) / ofRow * Pitch + (number + 32 * i) % ofRow * (16 / (int)sizeof(W));
#pragma unroll
      for (int i = 0; i < each; i++)
        copy(Swizzled ? (number + 32 * i) ^ ((number + 32 * i) / ofRow % 8) : number + 32 * i,
             from + offset[i % period] + i / period * step * Pitch);
    });
  }
  /// Of a key of the sequence.
  __device__ __forceinline__ i64 offsetOf(int position) const {
    if constexpr (isPaged<C>)
      return shared.pages.offsetOf(position);
    else
      return (i64)position * headDim;
  }
  /// A slot of the block's keys or values, from tile number `first` on: a tile is one piece of the
  /// state. In fp32 the addresses of a whole tile at once would be spilled.
  __device__ __forceinline__ void fillKeys(const Keys<C> &k, const T *from, int first, int rank,
                                           int past) const {
    constexpr int ofTile = L::tileBytes / 16, ofKey = ofTile / keyTile, atOnce = 32 / ofKey;
    const int key = lane / ofKey, vector = lane % ofKey;
    if constexpr (sizeof(T) == 4) {
#pragma unroll 4
      for (int j = 0; j < each; j++) {
        const int chunk = lane + 32 * j, tile = first + chunk / ofTile,
                  row = chunk % ofTile / ofKey, at = (rank + tile * ranks) * keyTile + row;
        if (tile < k.tiles)
          copy(chunk / ofTile * ofTile + vectorOfKey<T>(row, vector),
               reinterpret_cast<const uint4 *>(from + offsetOf(min(at, past))) + vector, at < past);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < L::slotTiles && first + i < k.tiles; i++) {
        const int begin = (rank + (first + i) * ranks) * keyTile, left = past - begin - key;
        const uint4 *const tile = reinterpret_cast<const uint4 *>(from + offsetOf(begin)) + lane;
#pragma unroll
        for (int j = 0; j < keyTile / atOnce; j++)
          copy(i * ofTile + vectorOfKey<T>(key + j * atOnce, vector), tile + j * 32,
               j * atOnce < left);
      }
    }
  }
  /// `count` slots that another warp has filled.
  __device__ __forceinline__ void skip(int count) {
    Ring::advance(count);
    turn = persistent::slotsUntil(slot, loader, L::loaders);
  }
  __device__ __forceinline__ void vocabulary();
  __device__ __forceinline__ void run(int layers, int steps);
};

template <typename C> __device__ __forceinline__ void Stream<C>::run(int layers, int steps) {
  const int cluster = blockIdx.x / ranks, rank = blockIdx.x % ranks;
  const bool spare = cluster >= C::Heads;
  const int begin = shared.records.step().past[0];
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    const int past = begin + step;
    const Keys<C> k(past, rank);
    // Until a step has its token its weights but for the first, which the ring has room for at
    // once, would only delay the choice.
    auto waitChoice = [&] {
      if (step > 0)
        persistent::barrierWait(shared.chosen, (step - 1) & 1);
    };
    if (spare)
      waitChoice();
#pragma unroll 1
    for (int layer = spare ? layers : 0; layer < layers; layer++) {
      const HeadRecord<Words> &head =
          shared.records.record[1 + 2 * layer].template as<HeadRecord>();
      const HalfRecord<Words> &mlp = shared.records.record[2 + 2 * layer].template as<HalfRecord>();
      if (layer < kept)
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
      else
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#pragma unroll 1
      for (int i = 0; i < L::headSlots; i++)
        rows<L::slice, C::D>(head.half.first.weights.template as<const W>() +
                             (i64)(i * C::D + cluster * headDim) * C::D + rank * L::slice);
      if (layer == 0 && kept == 0)
        waitChoice();
      const i64 part = toValue<C>(head);
      const T *state = isPaged<C> ? firstKey<C>(head, 0, cluster)
                                  : head.kv.template as<const T>() + head.layer * 2 * part +
                                        (i64)cluster * head.context * headDim;
#pragma unroll 1
      for (int i = 0; i < 2 * k.slots; i++)
        next([&] {
          const bool values = i >= k.slots;
          fillKeys(k, state + (values ? part : 0), (values ? i - k.slots : i) * L::slotTiles, rank,
                   past);
        });
#pragma unroll 1
      for (int i = 0; i < L::projectionSlots; i++)
        rows<headDim, C::D>(head.half.weights.template as<const W>() +
                            (i64)(rank * L::slice + i * (L::slotWeights / headDim)) * C::D +
                            cluster * headDim);
      if (layer == 0 && kept > 0)
        waitChoice();
#pragma unroll 1
      for (int i = 0; i < L::hiddenSlots; i++)
        rows<L::slice, C::D>(mlp.first.weights.template as<const W>() +
                             (i64)(cluster * L::hidden + i * 64) * C::D + rank * L::slice);
#pragma unroll 1
      for (int i = 0; i < L::outputSlots; i++)
        rows<L::hidden, 4 * C::D, true>(mlp.weights.template as<const W>() +
                                        (i64)(rank * L::slice + i * (L::slotWeights / L::hidden)) *
                                            4 * C::D +
                                        cluster * L::hidden);
    }
    // All slots before those of the vocabulary are taken.
    asm volatile("barrier.sync.aligned 4, %0;" ::"n"(32 * L::loaders) : "memory");
    if (threadIdx.x / 32 == L::loader)
      vocabulary();
    asm volatile("barrier.sync.aligned 4, %0;" ::"n"(32 * L::loaders) : "memory");
    skip(groupCount<C>());
  }
}
#endif
} // namespace gpt2c::clusters
