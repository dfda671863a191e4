// What a block of stages/stages.cuh has: shared memory, the ring, its stages' units.
#pragma once

#include "templates/decode_step/common/barrier.cuh"
#include "templates/decode_step/common/exchange.cuh"
#include "templates/decode_step/common/record.cuh"
#include "templates/decode_step/common/ring.cuh"

namespace gpt2c::persistent {

constexpr int multipliers = 32 * warps; ///< threads that compute

template <typename C> struct Layout {
  static constexpr int finishers = 32 * C::Finishers;
  static constexpr int consumers = multipliers + finishers;
  static constexpr int threads = consumers + 32;
  static constexpr int reduce = C::Slots * C::SlotBytes;
  static constexpr int records = reduce + 2 * C::ReduceBytes;
  static constexpr int barriers = records + C::Records * (int)sizeof(Record);
  static constexpr int bytes = barriers + 2 * C::Slots * 8;
  static_assert(C::SlotBytes % 128 == 0 && C::ReduceBytes % 16 == 0 && C::Window <= C::Slots);
};

#if __CUDA_ARCH__ >= 900
/// What the warps of a block know. Members are equal in all threads that compute.
template <typename C> struct Block : RingPlace<C::Slots> {
  using Config = C;
  using RingPlace<C::Slots>::slotAt, RingPlace<C::Slots>::lapAt;
  char *shared;
  int blocks;        ///< that take part
  int turn = 0;      ///< which memory for sums is next
  unsigned epoch;    ///< counts steps mod 6
  u64 channelOffset; ///< from a channel's address to this step's area
  int copyBytes;     ///< from a copy of the channels to the next
  int *ids, *past;   ///< of the step's tokens, in shared memory
  u64 *best;         ///< of this block's logits of each row, in shared memory

  __device__ const Record &record(int i) const {
    return reinterpret_cast<const Record *>(shared + Layout<C>::records)[i];
  }
  __device__ char *ring(int i) const { return shared + i * C::SlotBytes; }
  __device__ Barrier &full(int i) const {
    return reinterpret_cast<Barrier *>(shared + Layout<C>::barriers)[i];
  }
  __device__ Barrier &empty(int i) const { return full(i + C::Slots); }
  /// Memory for sums over warps. Written, then read after one barrier; two of them take turns, so
  /// no second barrier is needed.
  __device__ float *nextSums() {
    turn ^= 1;
    return reinterpret_cast<float *>(shared + Layout<C>::reduce + turn * C::ReduceBytes);
  }
  /// A barrier of all warps but the loading one.
  __device__ void sync() const {
    asm volatile("barrier.sync.aligned 1, %0;" ::"n"(Layout<C>::consumers) : "memory");
  }
  /// A channel as this block reads it.
  template <typename T> __device__ const T *channel(const Words::Channel &from) const {
    return reinterpret_cast<const T *>(from.word + channelOffset +
                                       blockIdx.x % C::Copies * copyBytes);
  }
  __device__ Destination destination(const Words::Channel &to) const {
    return {reinterpret_cast<char *>(to.word + channelOffset), copyBytes, C::Copies};
  }
  /// Waits in each warp for the next n slots, at most 32 and Slots: one lane for each, since every
  /// wait takes a while, also for what is there.
  __device__ void waitSlots(int n) const {
    const int i = threadIdx.x % 32;
    if (i < n)
      barrierWaitLong(full(slotAt(i)), lapAt(i));
    __syncwarp();
  }
  /// Gives the next n slots back, which this warp has read.
  __device__ void releaseSlots(int n) {
    __syncwarp();
    if (threadIdx.x % 32 < n)
      empty(slotAt(threadIdx.x % 32)).arrive();
    this->advanceNear(n);
  }
};
#endif

} // namespace gpt2c::persistent
