// What gpt2c --calibrate-target times: kernels that take one thing each of what estimates are in
// proportion to. They measure alike on every machine; no kernel of a plan is as simple.
#pragma once

#include "templates/device/mma.cuh"

namespace gpt2c::calibrate {

/// A kernel that does nothing behind another.
__device__ __forceinline__ void launch() {
  waitForPredecessor();
  releaseSuccessor();
}

/// Reads `units` units of 16 bytes once, eight of a thread on their way at a time. `never` is null:
/// what is read would be stored there.
__device__ __forceinline__ void memory(const uint4 *from, i64 units, unsigned *never) {
  constexpr int each = 8;
  const i64 threads = (i64)gridDim.x * blockDim.x;
  unsigned sum = 0;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < units; i += each * threads) {
    uint4 v[each];
#pragma unroll
    for (int j = 0; j < each; j++)
      v[j] = i + j * threads < units ? __ldcs(from + i + j * threads) : uint4{};
#pragma unroll
    for (int j = 0; j < each; j++)
      sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (never != nullptr)
    *never = sum;
}

/// `count` barriers of all blocks, which run at the same time; `arrived` is zero before.
__device__ __forceinline__ void hops(unsigned *arrived, int count) {
  for (int i = 1; i <= count; i++) {
    __syncthreads();
    if (threadIdx.x == 0) {
      const unsigned wanted = i * gridDim.x;
      unsigned seen;
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
      do
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
      while (seen < wanted);
    }
    __syncthreads();
  }
}

/// `count` times eight products of 16 x 8 x 16 halves of each warp, that do not wait for each
/// other.
__device__ __forceinline__ void products(float *never, int count) {
  float c[8][4] = {};
  const unsigned seed = threadIdx.x * 0x9e3779b9u & 0x03ff03ffu | 0x38003800u; // from 0.5 to 1
  const unsigned a[4] = {seed, seed ^ 0x01550155u, seed ^ 0x00cc00ccu, seed ^ 0x02200220u};
  for (int i = 0; i < count; i++)
#pragma unroll
    for (int j = 0; j < 8; j++)
      Mma<__half>::multiply(c[j], a, seed ^ j, seed ^ j << 4);
  if (never != nullptr)
    for (int j = 0; j < 8; j++)
      never[j] = c[j][0] + c[j][1] + c[j][2] + c[j][3];
}

} // namespace gpt2c::calibrate
