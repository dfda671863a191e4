// One kernel that runs whole decode steps: stages, the channels between them, streamed weights.
//
// One block per multiprocessor runs every stage of the step in order and computes those units of it
// that are its own; a block without a unit skips the stage. No barrier orders the stages. What a
// stage computes goes through a channel: memory in which a 32-bit word that is not written yet is
// zero, so a consumer reads the words it needs until none of them is zero. A zero that was computed
// is stored as -0. A channel is written in groups of 16 bytes, each by one store that is seen as a
// whole, so one word of a group tells of all. In a group of fp16 words 1 and 2 are exchanged: so it is
// an operand of mma as it is (persistent_products.cuh). Every channel exists twice; steps use them in
// turn, and each step clears what the step before used.
//
// The greedy choice ends a step: every block publishes the best of its own logits and reads those of
// all others. So a block that has begun a step knows that every other has ended the one before.
//
// `warps` warps compute; what they have of a result meets in shared memory, where Finishers more warps
// add it up and publish it, while the first go on to the next stage. One more warp streams the
// weights of this block's units, in the order of the stages, into a ring of slots in shared memory. It waits for free slots only: weights keep
// coming while the other warps wait for a channel. No more than Window slots are on their way at
// once: more would not come sooner, and what the channels carry would wait behind them.
//
// All blocks wait for the same few lines of a channel, which its memory answers one after the other,
// and a store to them in its turn. So there are Copies of every channel; a block reads one.
//
// A stage is described by a record of 16 words; the first six are:
//   kind, units, weights or null, rows of the weights, bytes of a row, bytes of a chunk of a row.
// Unit u of a stage belongs to block (u + units of all stages before) mod blocks. A unit of a stage
// with weights is unitRows rows of them. They come in rounds of several units, and those chunk by
// chunk: a slot holds one chunk of one unit, row by row. The high half of the kind's word is the
// number of units of a round, that of the chunk's word the distance of rows in a slot. The last
// record describes the step: see StepWord.
//
// Config of a kernel: Rows (sequences; those beyond the batch repeat the last), Finishers, Copies,
// Slots, SlotBytes, Window, ReduceBytes (sums over warps), Records.
// Grid: one block per multiprocessor, all resident at once (a cooperative launch); blocks beyond
// maxBlocks end at once. Block: Layout<C>::threads; dynamic shared: Layout<C>::bytes. From sm_90 on.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c::persistent {

constexpr int warps = 8; ///< that compute
constexpr int multipliers = 32 * warps;
constexpr int unitRows = 8, mostRoundUnits = 4;
constexpr int maxBlocks = 256;

// Records
// -------------------------------------------------------------------------------------------------

struct Record {
  u64 word[16];
  __device__ int integer(int i) const { return (int)word[i]; }
  __device__ int low(int i) const { return (int)(word[i] & 0xffff); }
  __device__ int high(int i) const { return (int)(word[i] >> 16 & 0xffff); }
  /// The first unit of this block, which run() notes in shared memory; others are blocks apart.
  __device__ int firstUnit() const { return (int)(word[1] >> 32); }
  __device__ float real(int i) const { return __uint_as_float((unsigned)word[i]); }
  template <typename T> __device__ T *pointer(int i) const {
    return reinterpret_cast<T *>(word[i]);
  }
};
enum Word { Kind, Units, Weights, WeightRows, RowBytes, ChunkBytes, FirstOwn };

/// The words of the record of the step. Steps is how often the step runs; the tokens of its Batch
/// sequences go to Tokens from row *StepIndex on, which is raised by Steps. Channels are two areas of
/// ChannelBytes, each Copies times CopyBytes; behind them are the choices, u64[3][Rows][maxBlocks], and a word that counts steps
/// mod 6; all of it is zero before the first launch.
enum StepWord {
  Steps = FirstOwn,
  Ids,
  Past,
  Next,
  Tokens,
  StepIndex,
  Channels,
  ChannelBytes,
  CopyBytes,
  Batch
};

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

#if __CUDA_ARCH__ >= 900
/// Orders memory among all blocks, without the global order that __threadfence() makes.
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
/// Words of a channel, or of another block's state: never from L1.
__device__ __forceinline__ unsigned loadWord(const void *p) {
  unsigned v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ u64 loadPair(const void *p) {
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
/// What others stored before such a word is seen behind it.
__device__ __forceinline__ u64 acquirePair(const void *p) {
  u64 v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
/// Two constants, loaded here: a load by the read-only path would move down to their use, past the
/// barrier.
__device__ __forceinline__ float2 loadEarly(const float *p) {
  float2 v;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
  return v;
}
/// 1 / sqrt(x) of a normal number in one instruction.
__device__ __forceinline__ float inverseRoot(float x) {
  float v;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x));
  return v;
}
/// 2^x in one instruction; 0 for negative infinity.
__device__ __forceinline__ float powerOf2(float x) {
  float v;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x));
  return v;
}
/// v stays where `valid` is false.
__device__ __forceinline__ void loadWord(unsigned &v, const void *p, bool valid) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t"
               "@p ld.relaxed.gpu.global.u32 %0, [%1];\n\t}"
               : "+r"(v)
               : "l"(p), "r"((unsigned)valid)
               : "memory");
}
/// A group: all of its words are written or none, as aligned accesses of 16 bytes are not divided on
/// these architectures. v stays where `valid` is false.
__device__ __forceinline__ void loadGroup(uint4 &v, const void *p, bool valid) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t"
               "@p ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(p), "r"((unsigned)valid)
               : "memory");
}
__device__ __forceinline__ bool written(const uint4 &group) { return group.w != 0; }

/// A word of a channel that holds a: a zero becomes -0.
__device__ __forceinline__ unsigned channelWord(float a) {
  const unsigned bits = __float_as_uint(a);
  return bits == 0 ? 0x80000000u : bits;
}
__device__ __forceinline__ unsigned channelWord(float a, float b) {
  const unsigned bits = packHalves(a, b);
  return bits == 0 ? 0x80000000u : bits;
}
__device__ __forceinline__ void publishGroup(void *p, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x),
               "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
/// For words that are zero: reductions are seen sooner than stores.
__device__ __forceinline__ void contributeWord(void *p, unsigned v) {
  asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ void contributePair(void *p, u64 v) {
  asm volatile("red.relaxed.gpu.global.or.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ __forceinline__ void publishPair(void *p, u64 v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

/// A group of fp16 in the order of its elements, or back.
__device__ __forceinline__ uint4 exchanged(uint4 group) {
  return {group.x, group.z, group.y, group.w};
}
/// Where a value of a channel is written: to every copy of it.
struct Destination {
  char *first;
  int bytes, copies; ///< from copy to copy

  __device__ __forceinline__ void store(i64 at, const uint4 &group, int lane, int lanes) const {
#pragma unroll 4
    for (int copy = lane; copy < copies; copy += lanes)
      publishGroup(first + at + copy * bytes, group);
  }
};
/// Publishes elements `at` and following of a row of which lanes that follow each other hold V
/// neighbours each. All lanes of a group of 16 bytes take part, and all lanes of the warp call.
template <int V>
__device__ __forceinline__ void publish(const Destination &to, __half, i64 at,
                                        const float (&v)[V], bool valid) {
  constexpr int lanes = 8 / V;
  const int lane = threadIdx.x % lanes, first = threadIdx.x % 32 - lane;
  uint4 group;
  const unsigned a = channelWord(v[0], v[1]);
  group.x = __shfl_sync(fullWarp, a, first);
  if constexpr (V == 2) {
    group.z = __shfl_sync(fullWarp, a, first + 1);
    group.y = __shfl_sync(fullWarp, a, first + 2);
    group.w = __shfl_sync(fullWarp, a, first + 3);
  } else {
    const unsigned b = channelWord(v[2], v[3]);
    group.z = __shfl_sync(fullWarp, b, first);
    group.y = __shfl_sync(fullWarp, a, first + 1);
    group.w = __shfl_sync(fullWarp, b, first + 1);
  }
  if (valid)
    to.store((at - lane * V) * 2, group, lane, lanes);
}
template <int V>
__device__ __forceinline__ void publish(const Destination &to, float, i64 at, const float (&v)[V],
                                        bool valid) {
  constexpr int lanes = 4 / V;
  const int lane = threadIdx.x % lanes, first = threadIdx.x % 32 - lane;
  uint4 group;
  const unsigned a = channelWord(v[0]), b = channelWord(v[1]);
  if constexpr (V == 2) {
    group.x = __shfl_sync(fullWarp, a, first);
    group.y = __shfl_sync(fullWarp, b, first);
    group.z = __shfl_sync(fullWarp, a, first + 1);
    group.w = __shfl_sync(fullWarp, b, first + 1);
  } else {
    group = {a, b, channelWord(v[2]), channelWord(v[3])};
  }
  if (valid)
    to.store((at - lane * V) * 4, group, lane, lanes);
}
#endif

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
__device__ __forceinline__ void barrierArrive(u64 *b, int times) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(b)), "r"(times)
               : "memory");
}
__device__ __forceinline__ void barrierExpect(u64 *b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(b)),
               "r"(bytes)
               : "memory");
}
/// Whether barrierWait() would go on at once.
__device__ __forceinline__ bool barrierTest(u64 *b, unsigned parity) {
  unsigned done;
  asm volatile("{\n\t.reg .pred p;\n\t"
               "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
               "selp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(done)
               : "r"(sharedAddress(b)), "r"(parity)
               : "memory");
  return done;
}
/// As that, but it may wait a while.
__device__ __forceinline__ bool barrierTry(u64 *b, unsigned parity) {
  unsigned done;
  asm volatile("{\n\t.reg .pred p;\n\t"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
               "selp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(done)
               : "r"(sharedAddress(b)), "r"(parity)
               : "memory");
  return done;
}
__device__ __forceinline__ void barrierWait(u64 *b, unsigned parity) {
  if (barrierTry(b, parity))
    return;
  Patience patience;
  do
    patience.spend();
  while (!barrierTry(b, parity));
}
/// As that, for barriers that have seldom been passed already: nothing stands ahead of the loop.
__device__ __forceinline__ void barrierWaitLong(u64 *b, unsigned parity) {
  Patience patience;
  bool done;
  do {
    done = barrierTry(b, parity);
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
template <typename C> struct Block {
  using Config = C;
  char *shared;
  int blocks;        ///< that take part
  int slot = 0;      ///< of the ring, next
  unsigned lap = 0;  ///< parity of the ring's lap
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
  __device__ u64 *full(int i) const {
    return reinterpret_cast<u64 *>(shared + Layout<C>::barriers) + i;
  }
  __device__ u64 *empty(int i) const { return full(i) + C::Slots; }
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
  template <typename T> __device__ const T *channel(const Record &stage, int word) const {
    return reinterpret_cast<const T *>(stage.word[word] + channelOffset +
                                       blockIdx.x % C::Copies * copyBytes);
  }
  __device__ Destination destination(const Record &stage, int word) const {
    return {reinterpret_cast<char *>(stage.word[word] + channelOffset), copyBytes, C::Copies};
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
  /// Waits in each warp for the next n slots, at most 32 and Slots: one lane for each, since every
  /// wait takes a while, also for what is there.
  __device__ void waitSlots(int n) const {
    const int i = threadIdx.x % 32;
    if (i < n)
      barrierWaitLong(full(slotAt(i)), slot + i >= C::Slots ? lap ^ 1 : lap);
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
  int behind = 0; // the slot Window before the next one, and its lap
  unsigned behindLap = 0, issued = 0;
  for (int step = 0; step < steps; step++) {
    for (int s = 0; s < count; s++) {
      const Record &stage = block.record(s);
      const int units = stage.integer(Units);
      const char *weights = stage.pointer<const char>(Weights);
      if (weights == nullptr) {
        prefetch(block, stage);
        continue;
      }
      const int rowBytes = stage.integer(RowBytes), chunkBytes = stage.low(ChunkBytes),
                pitch = stage.high(ChunkBytes), round = stage.high(Kind);
      for (int first = stage.firstUnit(); first < units; first += round * block.blocks)
        for (int at = 0; at < rowBytes; at += chunkBytes)
          for (int i = 0; i < round && first + i * block.blocks < units; i++) {
            const int row = (first + i * block.blocks) * unitRows;
            const int rows = min(unitRows, stage.integer(WeightRows) - row);
            if (issued < C::Window) {
              issued++;
            } else {
              barrierWaitLong(block.full(behind), behindLap);
              if (++behind == C::Slots) {
                behind = 0;
                behindLap ^= 1;
              }
            }
            barrierWaitLong(block.empty(block.slot), block.lap ^ 1);
            if (lane == 0)
              barrierExpect(block.full(block.slot), rows * chunkBytes);
            __syncwarp();
            if (lane < rows)
              copyBulk(block.ring(block.slot) + lane * pitch,
                       weights + (i64)(row + lane) * rowBytes + at, chunkBytes,
                       block.full(block.slot));
            block.nextSlots(1);
          }
    }
  }
}

/// u64[Rows][maxBlocks] behind the channels: the best logit of each row that each block has.
template <typename C>
__device__ __forceinline__ u64 *choices(const Record &step, unsigned third) {
  return reinterpret_cast<u64 *>(step.pointer<char>(Channels) + 2 * step.word[ChannelBytes]) +
         third * (C::Rows * maxBlocks);
}
template <typename C> __device__ __forceinline__ unsigned *epochWord(const Record &step) {
  return reinterpret_cast<unsigned *>(choices<C>(step, 3));
}

/// Clears the channels that the step before used, and the choice of the one before that.
template <typename C> __device__ void clearChannels(const Block<C> &block, const Record &step) {
  const u64 bytes = step.word[ChannelBytes];
  uint4 *channels =
      reinterpret_cast<uint4 *>(step.pointer<char>(Channels) + (bytes - block.channelOffset));
#pragma unroll 1
  for (int i = blockIdx.x * Layout<C>::consumers + threadIdx.x; i < (int)(bytes / 16);
       i += block.blocks * Layout<C>::consumers)
    __stcg(channels + i, uint4{});
  if (threadIdx.x < C::Rows)
    __stcg(choices<C>(step, (block.epoch + 1) % 3) + threadIdx.x * maxBlocks + blockIdx.x, 0ull);
}

/// The end of a step: the choice of all blocks becomes the token of the next step.
template <typename C>
__device__ void choose(Block<C> &block, const Record &step, int index, bool last) {
  const int lane = threadIdx.x % 32, batch = step.integer(Batch);
  block.sync();
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < C::Rows; row += Layout<C>::consumers / 32) {
    u64 *keys = choices<C>(step, block.epoch % 3) + row * maxBlocks;
    if (lane == 0) {
      // What this block did in the step, of which others read the KV state, comes before.
      fence();
      publishPair(keys + blockIdx.x, max(block.best[row], 1ull)); // 1: less than that of any logit
    }
    u64 best = 0;
    Patience patience;
    for (int i = lane; i < block.blocks;) {
      const u64 key = loadPair(keys + i);
      best = max(best, key);
      i += key != 0 ? 32 : 0;
      patience.spend();
    }
    fence();
    __syncwarp();
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      best = max(best, __shfl_xor_sync(fullWarp, best, offset));
    if (lane == 0) {
      // The high half is zero where there are only NaN.
      const int id = best >> 32 == 0 ? 0 : (int)(0xffffffffu - (unsigned)best);
      block.ids[row] = id;
      block.past[row] += 1;
      if (blockIdx.x == 0 && row < batch) {
        step.pointer<int>(Next)[row] = id;
        step.pointer<int>(Tokens)[(i64)(*step.pointer<int>(StepIndex) + index) * batch + row] = id;
        if (last) {
          step.pointer<int>(Ids)[row] = id;
          step.pointer<int>(Past)[row] = block.past[row];
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
  __shared__ int ids[C::Rows], past[C::Rows];
  __shared__ u64 best[C::Rows];
  if (blockIdx.x >= maxBlocks)
    return;
  Block<C> block;
  block.shared = (char *)shared;
  block.blocks = min((int)gridDim.x, maxBlocks);
  block.ids = ids;
  block.past = past;
  block.best = best;
  for (int i = threadIdx.x; i < count * 16; i += Layout<C>::threads)
    reinterpret_cast<u64 *>(block.shared + Layout<C>::records)[i] =
        reinterpret_cast<const u64 *>(records)[i];
  for (int i = threadIdx.x; i < C::Slots; i += Layout<C>::threads) {
    barrierInit(block.full(i), 1);
    barrierInit(block.empty(i), warps);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  const Record &step = block.record(count - 1);
  block.copyBytes = step.integer(CopyBytes);
  const int steps = step.integer(Steps);
  if (threadIdx.x < C::Rows) {
    const int row = min((int)threadIdx.x, step.integer(Batch) - 1);
    best[threadIdx.x] = 0;
    ids[threadIdx.x] = step.pointer<int>(Ids)[row];
    past[threadIdx.x] = step.pointer<int>(Past)[row];
  }
  if (threadIdx.x == 0) {
    int base = 0;
    for (int s = 0; s < count; s++) {
      u64 &word = const_cast<Record &>(block.record(s)).word[Units];
      const int units = (int)word, first = (int)blockIdx.x - base;
      word = (u64)(unsigned)(first < 0 ? first + block.blocks : first) << 32 | (unsigned)units;
      base = (base + units) % block.blocks;
    }
  }
  block.epoch = __ldcg(epochWord<C>(step));
  __syncthreads();
  if (threadIdx.x >= Layout<C>::consumers)
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
    *epochWord<C>(step) = block.epoch;
  }
}
#endif

} // namespace gpt2c::persistent
