// TMA, which completes on barriers: from sm_90 on.
#pragma once

#include "templates/device/mbarrier.cuh"

namespace gpt2c {

/// A CUtensorMap, encoded by the host: a matrix in rows, or several behind each other, copied in
/// boxes of 64 halves by some rows, swizzled by 128 bytes. What lies outside of a matrix is read as
/// zeros.
struct alignas(64) TensorMap {
  u64 opaque[16];
};

#if __CUDA_ARCH__ >= 900

/// The address as a value that a warp agrees on and the compiler keeps: it would compute it again
/// for every use, which takes longer than a small product of matrices.
__device__ __forceinline__ unsigned keptAddress(const void *shared) {
  return __shfl_sync(fullWarp, sharedAddress(shared), 0);
}

/// The first place in the block's dynamic shared memory where a swizzled box may begin.
__device__ __forceinline__ __half *alignedKTiles(void *shared) {
  return static_cast<__half *>(shared) + (1024 - sharedAddress(shared) % 1024) % 1024 / 2;
}
/// Copies the box at (row, column) of the matrix to `shared` and completes on `barrier`.
__device__ __forceinline__ void copyBox(void *shared, const TensorMap &map, int row, int column,
                                        const Barrier &barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
               "[%1, {%2, %3}], [%4];" ::"r"(sharedAddress(shared)),
               "l"(&map), "r"(column), "r"(row), "r"(barrier.address())
               : "memory");
}
/// The same for a map of several matrices.
__device__ __forceinline__ void copyBox(void *shared, const TensorMap &map, int matrix, int row,
                                        int column, const Barrier &barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
               "[%1, {%2, %3, %4}], [%5];" ::"r"(sharedAddress(shared)),
               "l"(&map), "r"(column), "r"(row), "r"(matrix), "r"(barrier.address())
               : "memory");
}
/// Stores the box at `shared` to (row, column) of a matrix; what lies outside is dropped. `shared`
/// may change when waitForStores has returned, of which commitStores tells.
__device__ __forceinline__ void storeBox(const TensorMap &map, int matrix, int row, int column,
                                         const void *shared) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
      "r"(column), "r"(row), "r"(matrix), "r"(sharedAddress(shared))
      : "memory");
}
__device__ __forceinline__ void commitStores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until what this thread has committed has been read.
__device__ __forceinline__ void waitForStores() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// Copies `bytes`, a multiple of 16 as both addresses are, to `shared` and completes on `barrier`.
__device__ __forceinline__ void copyBytes(void *shared, const void *global, int bytes,
                                          const Barrier &barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
               "[%3];" ::"r"(sharedAddress(shared)),
               "l"(global), "r"(bytes), "r"(barrier.address())
               : "memory");
}
/// Where block `rank` of the cluster has what is at `address` of this one's shared memory.
__device__ __forceinline__ unsigned remote(unsigned address, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
/// Stores to a block of the cluster, aligned to their size, that complete on a barrier of that
/// block; both addresses are remote ones.
__device__ __forceinline__ void send(unsigned to, unsigned v, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(v), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void send(unsigned to, const uint2 &v, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, "
               "[%3];" ::"r"(to),
               "r"(v.x), "r"(v.y), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send(unsigned to, const uint4 &v, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, "
               "%3, %4}, [%5];" ::"r"(to),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send(unsigned to, float a, unsigned barrier) {
  send(to, __float_as_uint(a), barrier);
}
__device__ __forceinline__ void send(unsigned to, float a, float b, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, "
               "[%3];" ::"r"(to),
               "f"(a), "f"(b), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send(unsigned to, const float (&v)[4], unsigned barrier) {
  send(to,
       uint4{__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
             __float_as_uint(v[3])},
       barrier);
}
/// Stores V floats where block `rank` of the cluster has `shared` and completes on its `barrier`.
template <int V>
__device__ __forceinline__ void sendToCluster(const float *shared, const float (&values)[V],
                                              unsigned rank, const Barrier &barrier) {
  const unsigned to = remote(sharedAddress(shared), rank), done = remote(barrier.address(), rank);
#pragma unroll
  for (int i = 0; i < V; i++)
    send(to + 4 * i, values[i], done);
}
/// Brings the map itself near to TMA.
__device__ __forceinline__ void prefetchMap(const TensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
/// Brings a box into L2.
__device__ __forceinline__ void prefetchBox(const TensorMap &map, int row, int column) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(&map),
               "r"(column), "r"(row)
               : "memory");
}

#endif

} // namespace gpt2c
