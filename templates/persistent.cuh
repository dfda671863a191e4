// One kernel that runs whole decode steps of one sequence: stages, the channels between them,
// streamed weights.
//
// One block per multiprocessor runs every stage of the step in order and computes those units of it
// that are its own; a block without a unit skips the stage. No barrier orders the stages. What a
// stage computes goes through a channel: memory in which a 16-bit word that is not written yet is
// zero, so a consumer reads the words it needs until none of them is zero. A zero that was computed
// is stored as -0. Every channel exists twice; steps use them in turn, and each step clears what the
// step before used.
//
// The greedy choice ends a step: every block publishes the best of its own logits and reads those of
// all others. So a block that has begun a step knows that every other has ended the one before.
//
// While `warps` warps compute, one more warp streams the weights of this block's units, in the order
// of the stages, into a ring of slots in shared memory. It waits for free slots only: weights keep
// coming while the other warps wait for a channel.
//
// A stage is described by a record of 16 words; the first six are:
//   kind, units, weights or null, rows of the weights, bytes of a row, bytes of a chunk of a row.
// Unit u of a stage belongs to block (u + units of all stages before) mod blocks. A unit of a stage
// with weights is one row of them for each warp. They come in rounds of up to `roundUnits` units, and
// those chunk by chunk: a slot holds one chunk of one unit. The last record describes the step: see
// StepWord.
//
// Config of a kernel: Slots, SlotBytes, InputBytes (the input of a stage), ReduceBytes (sums over
// warps), Records.
// Grid: one block per multiprocessor, all resident at once (a cooperative launch); blocks beyond
// maxBlocks end at once. Block: threads; dynamic shared: Layout<C>::bytes. From sm_90 on.
#pragma once

#include "common.cuh"

namespace gpt2c::persistent {

constexpr int warps = 8; ///< that compute
constexpr int consumers = 32 * warps;
constexpr int threads = consumers + 32;
constexpr int unitRows = warps, roundUnits = 4;
constexpr int maxBlocks = 256;

// Records
// -------------------------------------------------------------------------------------------------

struct Record {
  u64 word[16];
  __device__ int integer(int i) const { return (int)word[i]; }
  /// The first unit of this block, which run() notes in shared memory; others are blocks apart.
  __device__ int firstUnit() const { return (int)(word[1] >> 32); }
  __device__ float real(int i) const { return __uint_as_float((unsigned)word[i]); }
  template <typename T> __device__ T *pointer(int i) const {
    return reinterpret_cast<T *>(word[i]);
  }
};
enum Word { Kind, Units, Weights, WeightRows, RowBytes, ChunkBytes, FirstOwn };

/// The words of the record of the step. Steps is how often the step runs; its tokens go to Tokens
/// from *StepIndex on, which is raised by Steps. Channels are two areas of ChannelBytes; behind them are the choices,
/// u64[3][maxBlocks], and a word that counts steps mod 6; all of it is zero before the first launch.
enum StepWord { Steps = FirstOwn, Ids, Past, Next, Tokens, StepIndex, Channels, ChannelBytes };

// Channels
// -------------------------------------------------------------------------------------------------

/// Counts the rounds of a wait. No wait takes seconds unless the kernel is wrong: better an error
/// than a hang.
struct Patience {
  unsigned rounds = 0;
  __device__ __forceinline__ void spend() {
    if (++rounds > 1u << 25)
      __trap();
  }
};

__device__ __forceinline__ uint4 loadWords(const uint4 *p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ uint2 loadWords(const uint2 *p) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ unsigned loadWords(const unsigned *p) {
  unsigned v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ unsigned short loadWords(const unsigned short *p) {
  unsigned short v;
  asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
  return v;
}

/// Elements of a channel, perhaps not written yet.
template <int V, typename T> __device__ __forceinline__ Pack<T, V> loadChannel(const T *p) {
  return {loadWords(reinterpret_cast<const typename Pack<T, V>::Raw *>(p))};
}
/// A load of the KV state, which other blocks append to while the kernel runs: not from L1.
template <int V, typename T> __device__ __forceinline__ Pack<T, V> loadState(const T *p) {
  return {__ldcg(reinterpret_cast<const typename Pack<T, V>::Raw *>(p))};
}

/// Nonzero where a half of the word is zero.
__device__ __forceinline__ unsigned zeroHalves(unsigned w) {
  return (w - 0x00010001u) & ~w & 0x80008000u;
}
/// Whether all elements are written: floats are one word, halves two in a word.
template <int V> __device__ __forceinline__ bool written(const Pack<float, V> &v) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < V; i++)
    all = all && __float_as_uint(v.at(i)) != 0;
  return all;
}
template <int V> __device__ __forceinline__ bool written(const Pack<__half, V> &v) {
  if constexpr (V == 1)
    return v.raw != 0;
  unsigned zeros = 0;
#pragma unroll
  for (int i = 0; i < V / 2; i++)
    zeros |= zeroHalves(reinterpret_cast<const unsigned *>(&v.raw)[i]);
  return zeros == 0;
}

/// Reads N vectors of a channel, all of them on their way at once, until they are written. at(i) is
/// where vector i is.
template <int N, int V, typename T, typename At>
__device__ __forceinline__ void receive(Pack<T, V> (&to)[N], At &&at) {
  Patience patience;
  bool all;
  do {
    all = true;
#pragma unroll
    for (int i = 0; i < N; i++)
      to[i] = loadChannel<V>(at(i));
#pragma unroll
    for (int i = 0; i < N; i++)
      all = all && written(to[i]);
    patience.spend();
  } while (!all);
}

__device__ __forceinline__ unsigned short channelWord(__half v) {
  const unsigned short bits = __half_as_ushort(v);
  return bits == 0 ? 0x8000 : bits;
}
__device__ __forceinline__ void publish(__half *p, float v) {
  asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(p), "h"(channelWord(__float2half_rn(v)))
               : "memory");
}
/// Two neighbours at an even element in one store.
__device__ __forceinline__ void publish(__half *p, float a, float b) {
  const unsigned word = channelWord(__float2half_rn(a)) |
                        (unsigned)channelWord(__float2half_rn(b)) << 16;
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(word) : "memory");
}
__device__ __forceinline__ void publish(float *p, float v) {
  const unsigned bits = __float_as_uint(v);
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(bits == 0 ? 0x80000000u : bits)
               : "memory");
}

__device__ __forceinline__ void publish(float *p, float a, float b) {
  publish(p, a);
  publish(p + 1, b);
}

// Barriers in shared memory, copies that complete at them
// -------------------------------------------------------------------------------------------------

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void barrierInit(u64 *b, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(b)), "r"(count)
               : "memory");
}
__device__ __forceinline__ void barrierArrive(u64 *b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(b)) : "memory");
}
__device__ __forceinline__ void barrierExpect(u64 *b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(b)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrierWait(u64 *b, unsigned parity) {
  unsigned done;
  Patience patience;
  do {
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(sharedAddress(b)), "r"(parity)
                 : "memory");
    patience.spend();
  } while (!done);
}
/// Copies bytes (a multiple of 16) to shared memory; they arrive at b. They leave L2 before all
/// else: a step reads more weights than L2 holds, and channels, biases and keys should stay.
__device__ __forceinline__ void copyBulk(void *shared, const void *global, unsigned bytes, u64 *b) {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1], %2, [%3], %4;" ::"r"(sharedAddress(shared)),
               "l"(global), "r"(bytes), "r"(sharedAddress(b)), "l"(policy)
               : "memory");
}
/// Brings bytes from p on, a multiple of 16, into L2.
__device__ __forceinline__ void prefetchBulk(const void *p, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}
#endif

// The block
// -------------------------------------------------------------------------------------------------

template <typename C> struct Layout {
  static constexpr int input = C::Slots * C::SlotBytes;
  static constexpr int reduce = input + C::InputBytes;
  static constexpr int records = reduce + 2 * C::ReduceBytes;
  static constexpr int barriers = records + C::Records * (int)sizeof(Record);
  static constexpr int bytes = barriers + 2 * C::Slots * 8;
  static_assert(C::SlotBytes % 128 == 0 && C::InputBytes % 16 == 0 && C::ReduceBytes % 16 == 0);
};

#if __CUDA_ARCH__ >= 900
/// What the warps of a block know. Members are equal in all threads that compute.
template <typename C> struct Block {
  using Config = C;
  char *shared;
  int blocks;        ///< that take part
  int slot = 0;      ///< of the ring, next
  unsigned lap = 0;  ///< parity of the ring's lap
  int turn = 0;      ///< which memory for sums is next
  unsigned epoch;    ///< counts steps mod 6
  u64 channelOffset; ///< from a channel's address to this step's area
  int *token;        ///< id and position of the step's token, in shared memory
  u64 *best;         ///< of this block's logits, in shared memory
  float2 *stats;     ///< of each warp's part of an input, in shared memory

  __device__ const Record &record(int i) const {
    return reinterpret_cast<const Record *>(shared + Layout<C>::records)[i];
  }
  __device__ char *ring(int i) const { return shared + i * C::SlotBytes; }
  __device__ u64 *full(int i) const {
    return reinterpret_cast<u64 *>(shared + Layout<C>::barriers) + i;
  }
  __device__ u64 *empty(int i) const { return full(i) + C::Slots; }
  /// Memory for the input of a stage. It may be written once all warps have passed the barrier
  /// behind their last use of it.
  template <typename T> __device__ T *input() const {
    return reinterpret_cast<T *>(shared + Layout<C>::input);
  }
  /// Memory for sums over warps. Written, then read after one barrier; two of them take turns, so
  /// no second barrier is needed.
  __device__ float *nextSums() {
    turn ^= 1;
    return reinterpret_cast<float *>(shared + Layout<C>::reduce + turn * C::ReduceBytes);
  }
  /// A barrier of the warps that compute.
  __device__ void sync() const {
    asm volatile("barrier.sync.aligned 1, %0;" ::"n"(consumers) : "memory");
  }
  template <typename T> __device__ T *channel(const Record &stage, int word) const {
    return reinterpret_cast<T *>(stage.word[word] + channelOffset);
  }
  __device__ void nextSlots(int n) {
    slot += n;
    if (slot >= C::Slots) {
      slot -= C::Slots;
      lap ^= 1;
    }
  }
  /// The slot i behind the next one, i < Slots.
  __device__ int slotAt(int i) const {
    return slot + i >= C::Slots ? slot + i - C::Slots : slot + i;
  }
  /// Waits in each warp for slots [first, last) behind the next one, at most 32 and less than Slots
  /// behind: one lane for each, since every wait takes a while, also for what is there.
  __device__ void waitSlots(int first, int last) const {
    const int i = first + threadIdx.x % 32;
    if (i < last)
      barrierWait(full(slotAt(i)), slot + i >= C::Slots ? lap ^ 1 : lap);
    __syncwarp();
  }
  /// Gives the next n slots back, which this warp has read.
  __device__ void releaseSlots(int n) {
    __syncwarp();
    if (threadIdx.x % 32 < n)
      barrierArrive(empty(slotAt(threadIdx.x % 32)));
    nextSlots(n);
  }
};

/// The warp that fills the ring. Of a stage without weights prefetch(block, stage) may bring into L2
/// what it will read.
template <typename C, typename Prefetch>
__device__ void streamWeights(Block<C> &block, int count, int steps, Prefetch &&prefetch) {
  const int lane = threadIdx.x % 32;
  for (int step = 0; step < steps; step++) {
    for (int s = 0; s < count; s++) {
      const Record &stage = block.record(s);
      const int units = stage.integer(Units);
      const char *weights = stage.pointer<const char>(Weights);
      if (weights == nullptr) {
        prefetch(block, stage);
        continue;
      }
      const int rowBytes = stage.integer(RowBytes), chunkBytes = stage.integer(ChunkBytes);
      for (int first = stage.firstUnit(); first < units; first += roundUnits * block.blocks)
        for (int at = 0; at < rowBytes; at += chunkBytes)
          for (int i = 0; i < roundUnits && first + i * block.blocks < units; i++) {
            const int row = (first + i * block.blocks) * unitRows;
            const int rows = min(unitRows, stage.integer(WeightRows) - row);
            barrierWait(block.empty(block.slot), block.lap ^ 1);
            if (lane == 0)
              barrierExpect(block.full(block.slot), rows * chunkBytes);
            __syncwarp();
            if (lane < rows)
              copyBulk(block.ring(block.slot) + lane * chunkBytes,
                       weights + (i64)(row + lane) * rowBytes + at, chunkBytes,
                       block.full(block.slot));
            block.nextSlots(1);
          }
    }
  }
}

/// u64[maxBlocks] behind the channels: the best logit that each block has.
__device__ __forceinline__ u64 *choices(const Record &step, unsigned third) {
  return reinterpret_cast<u64 *>(step.pointer<char>(Channels) + 2 * step.word[ChannelBytes]) +
         third * maxBlocks;
}
__device__ __forceinline__ unsigned *epochWord(const Record &step) {
  return reinterpret_cast<unsigned *>(choices(step, 3));
}

/// Clears the channels that the step before used, and the choice of the one before that.
template <typename C> __device__ void clearChannels(const Block<C> &block, const Record &step) {
  const u64 bytes = step.word[ChannelBytes];
  uint4 *channels =
      reinterpret_cast<uint4 *>(step.pointer<char>(Channels) + (bytes - block.channelOffset));
#pragma unroll 1
  for (int i = blockIdx.x * consumers + threadIdx.x; i < (int)(bytes / 16);
       i += block.blocks * consumers)
    __stcg(channels + i, uint4{});
  if (threadIdx.x == 0)
    __stcg(choices(step, (block.epoch + 1) % 3) + blockIdx.x, 0ull);
}

/// The end of a step: the choice of all blocks becomes the token of the next step.
template <typename C>
__device__ void choose(Block<C> &block, const Record &step, int index, bool last) {
  const int lane = threadIdx.x % 32;
  u64 *keys = choices(step, block.epoch % 3);
  block.sync();
  if (threadIdx.x < 32) {
    if (lane == 0) {
      const u64 key = max(*block.best, 1ull); // 1: less than that of any logit
      // What this block did in the step, of which others read the KV state, comes before.
      __threadfence();
      asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(keys + blockIdx.x), "l"(key)
                   : "memory");
    }
    u64 best = 0;
    Patience patience;
    for (int i = lane; i < block.blocks;) {
      u64 key;
      asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(key) : "l"(keys + i) : "memory");
      best = max(best, key);
      i += key != 0 ? 32 : 0;
      patience.spend();
    }
    __threadfence();
    __syncwarp();
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      best = max(best, __shfl_xor_sync(fullWarp, best, offset));
    if (lane == 0) {
      // The high half is zero where there are only NaN.
      const int id = best >> 32 == 0 ? 0 : (int)(0xffffffffu - (unsigned)best);
      block.token[0] = id;
      block.token[1] += 1;
      if (blockIdx.x == 0) {
        *step.pointer<int>(Next) = id;
        step.pointer<int>(Tokens)[*step.pointer<int>(StepIndex) + index] = id;
        if (last) {
          *step.pointer<int>(Ids) = id;
          *step.pointer<int>(Past) = block.token[1];
        }
      }
    }
  }
  block.sync();
}

/// Runs the step as often as its record says; body(block, stage) computes the block's units of a
/// stage.
template <typename C, typename Body, typename Prefetch>
__device__ __forceinline__ void run(void *shared, const Record *records, int count, Body &&body,
                                    Prefetch &&prefetch) {
  __shared__ int token[2];
  __shared__ u64 best;
  __shared__ float2 stats[warps];
  if (blockIdx.x >= maxBlocks)
    return;
  Block<C> block;
  block.shared = (char *)shared;
  block.blocks = min((int)gridDim.x, maxBlocks);
  block.token = token;
  block.best = &best;
  block.stats = stats;
  for (int i = threadIdx.x; i < count * 16; i += threads)
    reinterpret_cast<u64 *>(block.shared + Layout<C>::records)[i] =
        reinterpret_cast<const u64 *>(records)[i];
  for (int i = threadIdx.x; i < C::Slots; i += threads) {
    barrierInit(block.full(i), 1);
    barrierInit(block.empty(i), warps);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  const Record &step = block.record(count - 1);
  const int steps = step.integer(Steps);
  if (threadIdx.x == 0) {
    best = 0;
    token[0] = *step.pointer<int>(Ids);
    token[1] = *step.pointer<int>(Past);
    int base = 0;
    for (int s = 0; s < count; s++) {
      u64 &word = const_cast<Record &>(block.record(s)).word[Units];
      const int units = (int)word, first = (int)blockIdx.x - base;
      word = (u64)(unsigned)(first < 0 ? first + block.blocks : first) << 32 | (unsigned)units;
      base = (base + units) % block.blocks;
    }
  }
  block.epoch = __ldcg(epochWord(step));
  __syncthreads();
  if (threadIdx.x >= consumers)
    return streamWeights(block, count - 1, steps, prefetch);
  for (int i = 0; i < steps; i++) {
    block.channelOffset = block.epoch % 2 * step.word[ChannelBytes];
    clearChannels(block, step);
#pragma unroll 1
    for (int s = 0; s < count - 1; s++)
      body(block, block.record(s));
    choose(block, step, i, i + 1 == steps);
    block.epoch = (block.epoch + 1) % 6;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *step.pointer<int>(StepIndex) += steps;
    *epochWord(step) = block.epoch;
  }
}
#endif

} // namespace gpt2c::persistent
