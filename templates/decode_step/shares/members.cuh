// How members tell each other partial sums and choices in shares/shares.cuh and rows.cuh: ranks of
// a plan that share every layer, each with a kernel of the same division and grid, on a GPU of its
// own or not.
//
// A word of 8 bytes says itself that it has come: its lowest bit is that of its use, which differs
// from that of the use before of the same place, and from zero, which all places are at first. Each
// word of a place is written in each use, so nothing is cleared, and no fence orders anything. A
// word is stored into the same place of each member's memory, which its blocks look at: one trip
// over the link is all that an exchange takes, while the member's own words come.
//
// Places are used in turn: those of a layer's halves those of the layer but one before. Who writes
// a place has had words of all clusters of all members that these sent when they had read what it
// had. The halves with heads have places of their own, since clusters without one send no words in
// those. Choices likewise alternate from step to step.
//
// The bit is taken from partial sums, the lowest of a column of two in fp32 or, of several
// sequences, of one number of four in two bytes, and does not count when they are added: so equal
// steps have equal bits, whatever uses came before.
//
// A wait for another member has a deadline (tile::Exchange). Behind it nobody waits for others any
// more, and all blocks go on, with their own clusters' words alone, to the end of the launch: what
// it makes is nothing, and the host is told of whom was waited for.
#pragma once

#include "templates/decode_step/common/exchange.cuh"
#include "templates/exchange/exchange.cuh"

namespace gpt2c::shares {

/// What a block knows of the others, in shared memory: bytes from what it has to the same of each.
template <int Members> struct Peers {
  i64 workspace[Members], logits[Members];
};
template <> struct Peers<1> {};

#if __CUDA_ARCH__ >= 900

/// Two words that follow each other.
struct WordPair {
  u64 first, second;
};

/// What a thread knows.
template <typename C, bool Several = (C::Members > 1)> struct Member {};
template <typename C> struct Member<C, true> {
  tile::Exchange *exchange = nullptr;
  int member = 0;
  unsigned bit = 0;   ///< of the words of the present use
  unsigned round = 0; ///< of the present exchange

  __device__ __forceinline__ void begin(tile::Exchange *e) {
    exchange = e;
    member = e->rank;
    round = tile::exchanging::peek(&e->round) + 1;
  }
  /// By one thread, behind the last exchange.
  __device__ __forceinline__ void end() const { exchange->round = round - 1; }

  /// Use `n` of places that two take in turn; returns which.
  __device__ __forceinline__ unsigned enter(unsigned n) {
    bit = (n / 2 & 1) ^ 1;
    return n % 2;
  }
  __device__ __forceinline__ bool arrived(u64 word) const { return ((unsigned)word & 1) == bit; }
  __device__ __forceinline__ bool arrived(const WordPair &v) const {
    return arrived(v.first) && arrived(v.second);
  }
  /// A word that has not come.
  __device__ __forceinline__ u64 missing() const { return bit ^ 1; }

  static __device__ __forceinline__ void load(u64 &v, const void *p, bool valid) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t"
                 "@p ld.relaxed.sys.global.u64 %0, [%1];\n\t}"
                 : "+l"(v)
                 : "l"(p), "r"((unsigned)valid)
                 : "memory");
  }
  static __device__ __forceinline__ void load(WordPair &v, const void *p, bool valid) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t"
                 "@p ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];\n\t}"
                 : "+l"(v.first), "+l"(v.second)
                 : "l"(p), "r"((unsigned)valid)
                 : "memory");
  }
  /// To a place of this member's, and to the same of all others.
  __device__ __forceinline__ void publish(const Peers<C::Members> &peers, void *p, u64 word) const {
#pragma unroll
    for (int m = 0; m < C::Members; m++)
      if (m != member)
        tile::exchanging::storeWord(reinterpret_cast<u64 *>((char *)p + peers.workspace[m]), word);
    u64 before; // atomics are seen sooner than stores
    asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(p), "l"(word)
                 : "memory");
  }

  /// Waits for words of whole warps, or pairs of them: v[i][j], missing() before, is at from(i, j)
  /// where wanted(i, j), and member of(i, j) sends it. Where that one does not in time, it stays as
  /// it is.
  template <typename Piece, int N, int M, typename From, typename Wanted, typename Of>
  __device__ __forceinline__ void await(Piece (&v)[N][M], From &&from, Wanted &&wanted,
                                        Of &&of) const {
    persistent::Patience patience;
    tile::exchanging::Patience ofOthers;
    bool alone = false, waits;
    do {
#pragma unroll
      for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < M; j++)
          load(v[i][j], from(i, j), wanted(i, j) && !arrived(v[i][j]));
      waits = false;
      int other = -1;
#pragma unroll
      for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < M; j++)
          if (wanted(i, j) && !arrived(v[i][j])) {
            const bool own = of(i, j) == member;
            waits |= own || !alone;
            other = own ? other : of(i, j);
          }
      if (waits && other >= 0 && ofOthers.ends(exchange, round, other))
        alone = true;
      patience.spend();
    } while (__any_sync(fullWarp, waits));
  }
};

/// A choice as a word: argmaxKey() with the bit behind it.
__device__ __forceinline__ u64 wordOfKey(u64 key, unsigned bit) {
  return (key & 0xffffffff00000000ull) | ((unsigned)key << 1 | bit);
}
/// The token of the largest.
__device__ __forceinline__ int tokenOfWord(u64 word) {
  return persistent::greedyToken((word & 0xffffffff00000000ull) |
                                 ((unsigned)word >> 1 | 0x80000000u));
}
#endif
} // namespace gpt2c::shares
