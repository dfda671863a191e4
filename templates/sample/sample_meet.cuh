// What the blocks of a cluster that share a row of sample.cuh tell each other.
#pragma once

#include "templates/sample/sample_row.cuh"

namespace gpt2c::tile {

/// What threads add up or compare.
struct Tally {
  u64 a;
  unsigned b;
};
struct SumOf {
  static __device__ __forceinline__ Tally none() { return {0, 0}; }
  static __device__ __forceinline__ Tally of(Tally p, Tally q) { return {p.a + q.a, p.b + q.b}; }
};
/// The largest a; b is whether anybody has one.
struct LargestOf {
  static __device__ __forceinline__ Tally none() { return {0, 0}; }
  static __device__ __forceinline__ Tally of(Tally p, Tally q) {
    return {p.a > q.a ? p.a : q.a, p.b | q.b};
  }
};
/// a has the bits of a double.
struct RealSumOf {
  static __device__ __forceinline__ Tally none() { return {0, 0}; }
  static __device__ __forceinline__ Tally of(Tally p, Tally q) {
    const double sum = __longlong_as_double((i64)p.a) + __longlong_as_double((i64)q.a);
    return {(u64)__double_as_longlong(sum), 0};
  }
};
/// The largest a, and its smallest b.
struct BestOf {
  static __device__ __forceinline__ Tally none() { return {0, ~0u}; }
  static __device__ __forceinline__ Tally of(Tally p, Tally q) {
    return p.a > q.a || (p.a == q.a && p.b < q.b) ? p : q;
  }
};

template <typename C> class RowBlocks {
public:
  __device__ __forceinline__ explicit RowBlocks(unsigned rank) : rank(rank) {}

  static __device__ __forceinline__ void barrier() {
#if __CUDA_ARCH__ >= 900
    if constexpr (C::Blocks > 1)
      clusterBarrier();
    else
#endif
      __syncthreads();
  }
  /// Whoever ends before the others have read its shared memory takes it away.
  static __device__ __forceinline__ void leave() {
    if constexpr (C::Blocks > 1)
      barrier();
  }
  /// Of all threads of the cluster one tells the result.
  __device__ __forceinline__ bool writes() const { return rank == 0 && threadIdx.x == 0; }

  /// The tallies of all threads of the cluster, in each of them. Two sets of slots take turns: who
  /// writes a set again has met everybody since, and so everybody has read it.
  template <typename Op> __device__ __forceinline__ Tally meet(Tally mine) {
    constexpr int warps = C::Threads / 32;
    ulonglong2 *slots = tallies() + turn * warps;
    mine = ofWarp<Op>(mine);
    if (threadIdx.x % 32 == 0)
      slots[threadIdx.x / 32] = make_ulonglong2(mine.a, mine.b);
    barrier();
    Tally all = Op::none();
    for (int i = (int)threadIdx.x % 32; i < C::Blocks * warps; i += 32)
      all = Op::of(all, tallyOf(slots + i % warps, i / warps));
    turn ^= 1;
    return ofWarp<Op>(all);
  }
  /// Where `shared` of a block is for all of them, as an address of the cluster.
  static __device__ __forceinline__ unsigned addressIn(const void *shared, unsigned block) {
    unsigned address = sharedAddress(shared);
#if __CUDA_ARCH__ >= 900
    if constexpr (C::Blocks > 1)
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                   : "=r"(address)
                   : "r"(sharedAddress(shared)), "r"(block));
#endif
    return address;
  }

protected:
  const unsigned rank;

private:
  template <typename Op> static __device__ __forceinline__ Tally ofWarp(Tally t) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      t = Op::of(t,
                 {__shfl_xor_sync(fullWarp, t.a, offset), __shfl_xor_sync(fullWarp, t.b, offset)});
    return t;
  }
  static __device__ __forceinline__ Tally tallyOf(const ulonglong2 *shared, unsigned block) {
    ulonglong2 v = *shared;
#if __CUDA_ARCH__ >= 900
    if constexpr (C::Blocks > 1)
      asm volatile("ld.shared::cluster.v2.u64 {%0, %1}, [%2];"
                   : "=l"(v.x), "=l"(v.y)
                   : "r"(addressIn(shared, block))
                   : "memory");
#endif
    return {v.x, (unsigned)v.y};
  }
  static __device__ __forceinline__ ulonglong2 *tallies() {
    __shared__ ulonglong2 ofWarps[2 * (C::Threads / 32)];
    return ofWarps;
  }
  int turn = 0;
};

} // namespace gpt2c::tile
