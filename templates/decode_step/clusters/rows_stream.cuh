// The warps that fill the ring of clusters/batch.cuh.
#pragma once

#include "templates/decode_step/clusters/rows.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

template <typename C> struct RowsStream : Stream<C> {
  using Base = Stream<C>;
  using L = Layout<C>;
  using T = typename C::T;
  using W = typename C::W;
  using Base::shared, Base::lane, Base::slot, Base::lap, Base::next, Base::turn;

  /// A slot of bytes that follow each other.
  __device__ __forceinline__ void whole(const void *from, unsigned bytes) {
    if (turn == 0) {
      persistent::barrierWait(shared.empty[slot], lap ^ 1);
      __syncwarp();
      if (lane == 0) {
        shared.full[slot].expect(bytes);
        persistent::copyBulk(shared.ring[slot], from, bytes, shared.full[slot]);
      } else {
        shared.full[slot].arrive();
      }
    }
    Base::skip(1);
  }
  /// A slot of `count` keys or values that follow each other in pages, `from` on that of position 0
  /// in the first.
  __device__ __forceinline__ void wholePages(const Pages<C> &pages, const T *from, int position,
                                             int count) {
    constexpr int bytes = headDim * (int)sizeof(T);
    if (turn == 0) {
      persistent::barrierWait(shared.empty[slot], lap ^ 1);
      __syncwarp();
      if (lane == 0) {
        shared.full[slot].expect(count * bytes);
#pragma unroll 1
        for (int done = 0; done < count;) {
          const int at = position + done,
                    n = min(count - done, Pages<C>::tokens - at % Pages<C>::tokens);
          persistent::copyBulk(shared.ring[slot] + done * bytes, from + pages.offsetOf(at),
                               n * bytes, shared.full[slot]);
          done += n;
        }
      } else {
        shared.full[slot].arrive();
      }
    }
    Base::skip(1);
  }
  /// A slot of rows of Columns weights, whose distance is Pitch, in the order of StripOrder.
  template <int Columns, int Pitch> __device__ __forceinline__ void strip(const W *from) {
    using Order = StripOrder<C, Columns>;
    constexpr int ofRow = Columns * (int)sizeof(W) / 16; // chunks
    // Lanes return to the same column of a row in the same place of eight after `period` chunks.
    constexpr int period = ofRow % 3 == 0 ? 3 : maxInt(ofRow / 4, 1), step = 32 * period / ofRow;
    static_assert(32 * period % (8 * ofRow) == 0 && Base::each % period == 0);
    next([&] {
      int offset[period];
#pragma unroll
      for (int i = 0; i < period; i++) {
        const int place = (lane + 32 * i) / ofRow, chunk = (lane + 32 * i) % ofRow;
        offset[i] =
            Order::rowAt(place) * Pitch + Order::chunkAt(place, chunk) * (16 / (int)sizeof(W));
      }
#pragma unroll
      for (int i = 0; i < Base::each; i++)
        Base::copy(lane + 32 * i, from + offset[i % period] + i / period * step * Pitch);
    });
  }
  /// Keys and values of a layer.
  __device__ __forceinline__ void state(const HeadRecord<Words> &head, int step) {
    const int cluster = blockIdx.x / ranks, rank = blockIdx.x % ranks,
              batch = shared.records.step().batch;
    const i64 part = toValue<C>(head);
#pragma unroll 1
    for (int n = 0; n < groups<C>; n++) {
      const auto k = RowKeys<C>::of(shared, batch, rank, n, step);
      const T *from = firstKey<C>(head, (n * ranks + rank) % C::Sequences, cluster) +
                      (isPaged<C> ? 0 : (i64)k.first * headDim);
      constexpr int keys = L::slotTiles * keyTile;
#pragma unroll 1
      for (int i = 0; i < 2 * k.pairs; i++) {
        const int first = i / 2 * keys, count = min(keys, k.count - first);
        const T *const of = from + (i % 2) * part;
        if constexpr (isPaged<C>)
          wholePages(shared.pages[n], of, k.first + first, count);
        else
          whole(of + (i64)first * headDim, count * headDim * (int)sizeof(T));
      }
    }
  }
  __device__ __forceinline__ void run(int layers, int steps) {
    const int cluster = blockIdx.x / ranks, rank = blockIdx.x % ranks;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(Base::policy));
#pragma unroll 1
    for (int s = 0; s < steps; s++) {
#pragma unroll 1
      for (int layer = 0; layer < layers; layer++) {
        const HeadRecord<Words> &head =
            shared.records.record[1 + 2 * layer].template as<HeadRecord>();
        const HalfRecord<Words> &mlp =
            shared.records.record[2 + 2 * layer].template as<HalfRecord>();
#pragma unroll 1
        for (int i = 0; i < L::headSlots; i++)
          this->template strip<L::slice, C::D>(head.half.first.weights.template as<const W>() +
                                               (i64)(i * C::D + cluster * headDim) * C::D +
                                               rank * L::slice);
        // Until a step has its tokens the rest of its weights would only delay the choice.
        if (layer == 0 && s > 0)
          persistent::barrierWait(shared.chosen, (s - 1) & 1);
        state(head, s);
#pragma unroll 1
        for (int i = 0; i < L::projectionSlots; i++)
          this->template strip<headDim, C::D>(
              head.half.weights.template as<const W>() +
              (i64)(rank * L::slice + i * (L::slotWeights / headDim)) * C::D + cluster * headDim);
#pragma unroll 1
        for (int i = 0; i < L::hiddenSlots; i++)
          this->template strip<L::slice, C::D>(mlp.first.weights.template as<const W>() +
                                               (i64)(cluster * L::hidden + i * 64) * C::D +
                                               rank * L::slice);
#pragma unroll 1
        for (int i = 0; i < L::outputSlots; i++)
          this->template strip<L::hidden, 4 * C::D>(
              mlp.weights.template as<const W>() +
              (i64)(rank * L::slice + i * (L::slotWeights / L::hidden)) * 4 * C::D +
              cluster * L::hidden);
      }
      // All slots before those of the vocabulary are taken.
      asm volatile("barrier.sync.aligned 4, %0;" ::"n"(32 * L::loaders) : "memory");
      if (threadIdx.x / 32 == L::loader)
        Base::vocabulary();
      asm volatile("barrier.sync.aligned 4, %0;" ::"n"(32 * L::loaders) : "memory");
      Base::skip(groupCount<C>());
    }
  }
};
#endif
} // namespace gpt2c::clusters
