// How ranks exchange words: each 4-byte word travels with the number of its round in one store of 8
// bytes to the memory of every other rank, which polls its own. No fence, no flag: the number is
// the flag.
//
// A rank has slots u64[2][Ranks][words], of which rounds take one after the other: round s writes
// half s % 2. A rank is in round s + 2 at most when every other has read what it sent in round s:
//   - within a launch a thread sends a place in round s + 1 when it has read it in round s, and
//     none sends it in round s + 2 before it has read it of round s + 1;
//   - the rounds of a launch begin when those of the launch in front of it have ended.
// So in a launch of several rounds each round has all places.
#pragma once

#include "templates/device/elements.cuh"

namespace gpt2c::tile {

/// What the host sets, in device memory: runtime/cuda/ExchangeRecord.h. The rest is the kernels'.
struct Exchange {
  u64 slots[8]; ///< of each rank, as this device addresses them; behind them are tiles (tiles.cuh)
  u64 error;    ///< u64 in host memory: of the first wait in vain, rank + 1 and the round's number
  u64 patience; ///< nanoseconds of a wait
  int rank, ranks;  //
  unsigned words;   ///< of a slot, from each rank
  unsigned round;   ///< the last one
  unsigned arrived; ///< blocks of this launch that have ended
  unsigned failed;  ///< nobody waits any more
  unsigned apart;   ///< no two ranks share a device
  unsigned sums;    ///< the last round of sums that products send (sums.cuh)
  u64 sumsAt;       ///< of them in the memory of a rank
  u64 sumsBytes;    ///< of a rank's in a round
  /// Of each rank, as this device addresses them: the workspace of kernels, the logits and the
  /// activations, which are laid out alike on all ranks.
  u64 scratch[8], logits[8], arena[8];
};

namespace exchanging {

__device__ __forceinline__ u64 nanoseconds() {
  u64 time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time)::"memory");
  return time;
}
__device__ __forceinline__ unsigned peek(const unsigned *p) {
  unsigned v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ u64 loadWord(const u64 *p) {
  u64 v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void storeWord(u64 *p, u64 v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

/// Of the threads that wait in vain one tells the host.
__device__ __forceinline__ void fail(Exchange *e, int from, unsigned round) {
  if (atomicExch(&e->failed, 1u) == 0) {
    storeWord((u64 *)e->error, (u64)round << 32 | (unsigned)(from + 1));
    __threadfence_system();
  }
}

/// As waitForPredecessor() does; a successor starts meanwhile and fetches its weights. Not where
/// ranks share a device: blocks that wait would keep those out that are waited for.
__device__ __forceinline__ void waitAndRelease(bool apart) {
  waitForPredecessor();
  if (apart)
    releaseSuccessor();
}

/// Counts looks at memory that another rank writes, and now and then looks at the clock.
struct Patience {
  u64 begin = 0;
  int looks = 0;

  /// Whether the wait is in vain.
  __device__ __forceinline__ bool ends(Exchange *e, unsigned round, int from) {
    if (++looks % 64 != 0)
      return false;
    if (peek(&e->failed))
      return true;
    const u64 now = nanoseconds();
    begin = begin == 0 ? now : begin;
    if (now - begin <= e->patience)
      return false;
    fail(e, from, round);
    return true;
  }
};

/// The word that rank `from` puts there in that round. After a failure it is anything.
__device__ __forceinline__ unsigned receive(Exchange *e, const u64 *at, unsigned round, int from) {
  u64 word = loadWord(at);
  Patience patience;
#pragma unroll 1
  while ((unsigned)(word >> 32) != round) {
    word = loadWord(at);
    if (patience.ends(e, round, from))
      return 0;
  }
  return (unsigned)word;
}

} // namespace exchanging

/// The most blocks of a launch, and threads of each.
constexpr int exchangeBlocks = 64, exchangeThreads = 512;

/// The last block of a launch that comes here notes how far it came.
template <typename Note> __device__ __forceinline__ void endRound(Exchange *e, const Note &note) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd(&e->arrived, 1u) == gridDim.x - 1) {
      e->arrived = 0;
      note();
    }
  }
}

/// All threads of a launch exchange `count` words: `mine(i)` is the word i of this rank, and
/// `use(i, words)` gets those of all ranks, in their order.
///
/// Config: Ranks; Items (words of a thread in a round). Grid: the same on all ranks, of at most
/// words / (threads Items) blocks, all of which run at the same time.
template <typename C, typename Mine, typename Use>
__device__ __forceinline__ void exchangeWords(Exchange *e, i64 count, const Mine &mine,
                                              const Use &use) {
  // What the host set does not change.
  const int rank = e->rank;
  const i64 words = e->words;
  u64 *slots[C::Ranks];
#pragma unroll
  for (int r = 0; r < C::Ranks; r++)
    slots[r] = (u64 *)e->slots[r];
  const u64 *mySlots = (const u64 *)e->slots[rank];
  exchanging::waitAndRelease(e->apart);
  const unsigned before = exchanging::peek(&e->round);
  const unsigned width = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
  const i64 ofRound = (i64)width * C::Items;
  const unsigned rounds = count <= ofRound ? 1 : (unsigned)((count + ofRound - 1) / ofRound);
#pragma unroll 1
  for (unsigned r = 0; r < rounds && !exchanging::peek(&e->failed); r++) {
    const unsigned round = before + 1 + r;
    const i64 half = (i64)(round % 2) * C::Ranks * words, first = r * ofRound + thread;
    unsigned own[C::Items];
#pragma unroll
    for (int j = 0; j < C::Items; j++) {
      const i64 i = first + (i64)j * width;
      own[j] = i < count ? mine(i) : 0;
      const i64 place = half + rank * words + j * width + thread;
#pragma unroll
      for (int to = 0; to < C::Ranks; to++)
        if (to != rank && (i < count || rounds > 1))
          exchanging::storeWord(slots[to] + place, (u64)round << 32 | own[j]);
    }
#pragma unroll
    for (int j = 0; j < C::Items; j++) {
      const i64 i = first + (i64)j * width;
      unsigned all[C::Ranks];
#pragma unroll
      for (int from = 0; from < C::Ranks; from++) {
        all[from] = own[j];
        const u64 *at = mySlots + half + from * words + j * width + thread;
        if (from != rank && (i < count || rounds > 1))
          all[from] = exchanging::receive(e, at, round, from);
      }
      if (i < count)
        use(i, all);
    }
  }
  endRound(e, [&] { e->round = before + rounds; });
}

} // namespace gpt2c::tile
