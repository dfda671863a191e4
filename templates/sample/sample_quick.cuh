// The choice of sample.cuh among few: top-k with a small k, and what may come with it.
//
// Of all threads of a block at least k have their largest logit at or above a threshold, so
// whatever is among the k largest is at least that, too. What is goes to a list of the first block,
// about k a block, and that block does the rest alone: a candidate's place is the number of those
// above it, and the weights of top-p are sums over the list.
#pragma once

#include "templates/sample/sample_report.cuh"
#include "templates/tokens/token_ops.cuh"

namespace gpt2c::tile {

template <typename C> class RowQuick : public RowReport<C> {
  using Base = RowReport<C>;
  using Top = typename Base::Top;
  static constexpr int room = 1024, mostThreads = room / C::Blocks / 2;

public:
  using Base::Base;
  static constexpr int mostK = mostThreads / 2;

protected:
  /// Before push(), all threads of all blocks.
  __device__ __forceinline__ void beginList() {
    if (threadIdx.x == 0)
      list().count = 0;
    RowQuick::barrier();
  }
  /// Puts what may be among the k largest logits on the list. Gives whether there is room.
  __device__ __forceinline__ bool push(const Top &top, int k) {
    float least;
    const int threads = threshold(top.first, k, least);
    if (threads < k || threads > mostThreads)
      return false;
    const int lane = (int)threadIdx.x % 32;
    if (top.first >= least)
      add(top.first, this->idOf(top.at));
    // Of a thread with several the warp looks at all it has read.
    unsigned several = __ballot_sync(fullWarp, top.second >= least);
#pragma unroll 1
    while (several != 0) {
      const int thread = __ffs((int)several) - 1;
      several &= several - 1;
      const int known = __shfl_sync(fullWarp, top.at, thread),
                column = (int)threadIdx.x - lane + thread;
#pragma unroll 1
      for (int i = lane; i < Base::singles; i += 32) {
        const float v = this->value(i * C::Threads + column);
        if (i != known && v >= least)
          add(v, this->first + i * C::Threads + column);
      }
    }
    return true;
  }
  /// Whether the list has all that was put there; behind a barrier.
  __device__ __forceinline__ bool isWhole() const {
    unsigned count = list().count;
#if __CUDA_ARCH__ >= 900
    if constexpr (C::Blocks > 1)
      asm volatile("ld.shared::cluster.u32 %0, [%1];"
                   : "=r"(count)
                   : "r"(RowQuick::addressIn(&list().count, 0))
                   : "memory");
#endif
    return count <= room;
  }

  /// The token, of the first block's first thread.
  __device__ __forceinline__ int chooseFromList(float highest) {
    if (this->rank != 0)
      return 0;
    List &l = list();
    const SampleRow &how = this->how;
    const float inverse = __double2float_rn(how.inverseTemperature);
    auto scaled = [&](float v) { return __fmul_rn(__fsub_rn(v, highest), inverse); };
    const int n = (int)l.count, thread = (int)threadIdx.x;
    constexpr int half = C::Threads / 2;
    if (thread == 0)
      l.least = 0;
    if (thread >= half) {
      const sampling::Draw draw = sampling::drawOf(how);
#pragma unroll 1
      for (int i = thread - half; i < n; i += half)
        l.keys[i] = draw.key(l.values[i], l.ids[i]);
    } else {
      const int k = how.topK;
#pragma unroll 1
      for (int i = thread; i < n; i += half) {
        const float v = l.values[i];
        int above = 0, atLeast = 0;
#pragma unroll 4
        for (int j = 0; j < n; j++) {
          above += l.values[j] > v;
          atLeast += l.values[j] >= v;
        }
        if (above < k && atLeast >= k)
          l.kth = v; // all that write are equal
      }
    }
    __syncthreads();
    float least = l.kth;
    auto isCandidate = [&](float v) {
      return v >= least && (how.logMinP > 0 || scaled(v) >= how.logMinP);
    };
    if (how.topP < 1) {
#pragma unroll 1
      for (int i = thread; i < n; i += C::Threads)
        l.weights[i] = isCandidate(l.values[i]) ? sampling::weightOf(scaled(l.values[i])) : 0;
      __syncthreads();
      // Four lanes add up for a candidate.
#pragma unroll 1
      for (int begin = 0; begin < n; begin += C::Threads / 4) {
        const int i = begin + thread / 4;
        const float v = i < n ? l.values[i] : negativeInfinity();
        u64 all = 0, sum = 0;
#pragma unroll 2
        for (int j = thread % 4; j < n; j += 4) {
          const u64 w = l.weights[j];
          all += w;
          sum += l.values[j] >= v ? w : 0;
        }
#pragma unroll
        for (int step = 1; step < 4; step *= 2) {
          all += __shfl_xor_sync(fullWarp, all, step);
          sum += __shfl_xor_sync(fullWarp, sum, step);
        }
        if (i < n && thread % 4 == 0 && isCandidate(v) &&
            (double)sum >= __dmul_rn(how.topP, (double)all))
          atomicMax(&l.least, sampling::orderOf(v));
      }
      __syncthreads();
      if (l.least != 0)
        least = sampling::floatOf(l.least);
    }
    u64 key = 0;
#pragma unroll 1
    for (int i = thread; i < n; i += C::Threads)
      if (isCandidate(l.values[i]) && l.keys[i] > key)
        key = l.keys[i];
    return sampling::tokenOf(blockLargest<C::Threads>(key));
  }

private:
  struct List {
    float values[room];
    int ids[room];
    u64 keys[room], weights[room];
    unsigned count, least;
    float kth;
  };
  static __device__ __forceinline__ List &list() {
    __shared__ List ofBlock;
    return ofBlock;
  }
  __device__ __forceinline__ void add(float v, int id) {
    List &l = list();
    if constexpr (C::Blocks == 1) {
      const unsigned at = atomicAdd(&l.count, 1u);
      if (at < room) {
        l.values[at] = v;
        l.ids[at] = id;
      }
    }
#if __CUDA_ARCH__ >= 900
    if constexpr (C::Blocks > 1) {
      unsigned at;
      asm volatile("atom.shared::cluster.add.u32 %0, [%1], 1;"
                   : "=r"(at)
                   : "r"(RowQuick::addressIn(&l.count, 0))
                   : "memory");
      if (at < room) {
        asm volatile(
            "st.shared::cluster.f32 [%0], %1;" ::"r"(RowQuick::addressIn(&l.values[at], 0)), "f"(v)
            : "memory");
        asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(RowQuick::addressIn(&l.ids[at], 0)),
                     "r"(id)
                     : "memory");
      }
    }
#endif
  }
  /// A value that the largest logits of at least k of the block's threads reach, and of not many
  /// more where there is one. Gives of how many.
  static __device__ __forceinline__ int threshold(float mine, int k, float &least) {
    __shared__ unsigned lows[C::Threads / 32], highs[C::Threads / 32];
    const unsigned order = sampling::orderOf(mine), lane = threadIdx.x % 32;
    unsigned low = warpSmallest(order), high = ~warpSmallest(~order);
    if (lane == 0) {
      lows[threadIdx.x / 32] = low;
      highs[threadIdx.x / 32] = high;
    }
    __syncthreads();
    low = warpSmallest(lows[lane % (C::Threads / 32)]);
    high = ~warpSmallest(~highs[lane % (C::Threads / 32)]);
    // Nothing is put on the list that is minus infinity.
    const unsigned nothing = sampling::orderOf(negativeInfinity());
    low = low <= nothing ? nothing + 1 : low;
    least = sampling::floatOf(low);
    float above = sampling::floatOf(high);
    int threads = __syncthreads_count(mine >= least);
    while (threads > 2 * k) {
      const float middle = __fadd_rn(__fmul_rn(least, 0.5f), __fmul_rn(above, 0.5f));
      if (!(middle > least && middle < above))
        break;
      const int n = __syncthreads_count(mine >= middle);
      if (n >= k) {
        least = middle;
        threads = n;
      } else {
        above = middle;
      }
    }
    return threads;
  }
  static __device__ __forceinline__ unsigned warpSmallest(unsigned v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(fullWarp, v);
#else
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      v = min(v, __shfl_xor_sync(fullWarp, v, offset));
    return v;
#endif
  }
};

} // namespace gpt2c::tile
