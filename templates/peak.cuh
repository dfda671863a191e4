// What a GPU can do at most, for a benchmark to compare with: reading memory, matrix products in
// fp16, fused multiply-adds in fp32. Kernels, not tiles: nothing else uses them.
//
// peakRead: any grid and block. Bytes: 16 n.
// peakProducts: 256 threads, peakProductsShared bytes of dynamic shared memory. Operands are random
// numbers: multiplying zeros draws less power and runs faster than any real product. Flops of a
// block: peakProductsFlops for each round.
// peakFma: any grid and block. Flops of a thread: peakFmaFlops for each round.
#pragma once

#include "templates/linear/wgmma/linear_wgmma.cuh"

namespace gpt2c {

constexpr int peakProductsShared = (2 * 64 + 192) * 64 * 2 + 1024;
constexpr int peakProductsFlops = 2 * 2 * 64 * 192 * 64;
constexpr int peakFmaFlops = 2 * 16 * 16;

/// A number in [-1, 1) that depends on `i` only.
__device__ __forceinline__ float peakRandom(unsigned i) {
  i = (i ^ 61 ^ i >> 16) * 9;
  i = (i ^ i >> 4) * 0x27d4eb2du;
  return (float)(int)(i ^ i >> 15) * (1.0f / 2147483648.0f);
}

} // namespace gpt2c

extern "C" __global__ void __launch_bounds__(512)
    peakRead(const uint4 *from, long long n, unsigned *out) {
  constexpr int unroll = 8;
  const long long step = (long long)gridDim.x * blockDim.x;
  unsigned sum = 0;
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + (unroll - 1) * step < n; i += unroll * step) {
    uint4 v[unroll];
#pragma unroll
    for (int j = 0; j < unroll; j++)
      v[j] = __ldcs(from + i + j * step);
#pragma unroll
    for (int j = 0; j < unroll; j++)
      sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < n; i += step)
    sum ^= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (sum == 0x12345678)
    *out = sum;
}

extern "C" __global__ void __launch_bounds__(256) peakProducts(float *out, int rounds) {
  using namespace gpt2c;
  float sum = 0;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint4 dynamicShared[];
  __half *shared = (__half *)dynamicShared;
  // A warpgroup: 64 x 192 x 64 a round.
  shared += (1024 - sharedAddress(shared) % 1024) % 1024 / 2;
  for (int i = threadIdx.x; i < (2 * 64 + 192) * 64; i += blockDim.x)
    shared[i] = __float2half_rn(peakRandom(i));
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const u64 a = swizzledOperand(shared + threadIdx.x / 128 * 64 * 64),
            b = swizzledOperand(shared + 2 * 64 * 64);
  float c[24][4] = {};
  for (int r = 0; r < rounds; r++) {
    wgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; k++)
      wgmma(c, a + k * 2, b + k * 2);
    wgmmaCommit();
    wgmmaWait<1>();
  }
  wgmmaWait<0>();
#pragma unroll
  for (int i = 0; i < 24; i++)
    sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
#else
  // A warp: 4 times 24 products of 16 x 8 x 16 a round, which is the same for a block.
  unsigned a[4], b[2];
  for (int i = 0; i < 6; i++) {
    const __half low = __float2half_rn(peakRandom(threadIdx.x * 12 + 2 * i)),
                 high = __float2half_rn(peakRandom(threadIdx.x * 12 + 2 * i + 1));
    (i < 4 ? a[i % 4] : b[i % 2]) = __half_as_ushort(low) | (unsigned)__half_as_ushort(high) << 16;
  }
  float c[8][4] = {};
  for (int r = 0; r < rounds * 4; r++)
#pragma unroll
    for (int i = 0; i < 24; i++)
      mma16816(c[i % 8], a, b[0], b[1]);
#pragma unroll
  for (int i = 0; i < 8; i++)
    sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
#endif
  if (sum == 12345.678f)
    *out = sum;
}

extern "C" __global__ void peakFma(float *out, int rounds) {
  float c[16];
#pragma unroll
  for (int i = 0; i < 16; i++)
    c[i] = gpt2c::peakRandom(threadIdx.x * 16 + i);
  const float a = gpt2c::peakRandom(threadIdx.x + 1000), b = gpt2c::peakRandom(threadIdx.x + 2000);
  for (int r = 0; r < rounds; r++)
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
      for (int i = 0; i < 16; i++)
        c[i] = __fmaf_rn(c[i], a, b);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 16; i++)
    sum += c[i];
  if (sum == 12345.678f)
    *out = sum;
}
