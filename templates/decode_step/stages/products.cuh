// The products of a linear stage: a slice of x in registers times rows of weights in the ring.
//
// K is dealt out to the warps in pieces of 64 bytes of x (piece i of warp w is number w + warps i
// of a chunk), so that lane (g, t) = (lane / 4, lane % 4) has vector t of each: 16 bytes of x, and
// the elements at the same k of row g of a unit of weights. The order of k within a product is free
// as long as both operands agree, so for fp16 these vectors are operands of mma.m16n8k16 as they
// are, with row g of x (a sequence, or one part of its attention) against row g of the weights.
// fp32 has one row of x, which all g share, and multiplies in plain instructions.
//
// Config: LinearStageConfig.
#pragma once

#include "templates/decode_step/stages/block.cuh"
#include "templates/device/int8.cuh"

namespace gpt2c::persistent {
#if __CUDA_ARCH__ >= 900

/// Where the vectors of a warp are.
template <typename C> struct Pieces {
  static constexpr int vector = elementsPer16Bytes<typename C::T>();
  static constexpr int vectors = C::Chunk / vector; ///< of a chunk
  static constexpr int each = ceilDiv(ceilDiv(vectors, 4), warps);
  static constexpr int chunks = C::K / C::Chunk;
  static constexpr int count = chunks * each;
  static constexpr bool even = vectors % (4 * warps) == 0;
  static_assert(C::Chunk % vector == 0 && C::K % C::Chunk == 0);

  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  /// Whether piece i has a vector for this lane; if not, at() is that of the last vector.
  __device__ __forceinline__ bool inside(int i) const {
    return even || (warp + i % each * warps) * 4 + t < vectors;
  }
  /// The vector within its chunk.
  __device__ __forceinline__ int at(int i) const {
    const int v = (warp + i % each * warps) * 4 + t;
    return even ? v : min(v, vectors - 1);
  }
  /// Its first element of a row of x.
  __device__ __forceinline__ int k(int i) const { return i / each * C::Chunk + at(i) * vector; }
  /// Elements of x that a warp has.
  static __device__ __forceinline__ float share(int warp) {
    int n = 0;
#pragma unroll
    for (int i = 0; i < each; i++)
      n += max(0, min(4, vectors - (warp + i * warps) * 4));
    return (float)(n * vector * chunks);
  }
};

/// What a warp has of the sums of a stage: products by row and column, and of a normalised x its
/// statistics by row, in shared memory: f32[warps,Rows,columns], then f32[warps,Rows,2].
template <typename C> struct Sums {
  static constexpr int columns = C::Tiles * unitRows;
  static constexpr int bytes = warps * C::Rows * (columns + 2) * 4;
  float *memory;

  __device__ __forceinline__ float *row(int warp, int row) const {
    return memory + (warp * C::Rows + row) * columns;
  }
  __device__ __forceinline__ float *statistics(int warp, int row) const {
    return memory + (warps * columns + warp * 2) * C::Rows + row * 2;
  }
};

/// One over the square root of variance + epsilon, and the mean of row `row`.
struct Moments {
  float scale, mean;
};

/// The sum of the warps' parts, in pairs, which takes fewer steps than one after the other.
__device__ __forceinline__ float2 sumOf(float2 (&part)[warps]) {
#pragma unroll
  for (int step = 1; step < warps; step *= 2)
#pragma unroll
    for (int w = 0; w < warps; w += 2 * step) {
      part[w].x += part[w + step].x;
      part[w].y += part[w + step].y;
    }
  return part[0];
}

/// Weights of the parts of attention: of a part whose maximum is `max` and whose exponentials sum
/// to `sum`, among the Splits parts that lanes 4 apart hold.
template <int Splits> __device__ __forceinline__ float partWeight(float max, float sum) {
  float top = max;
#pragma unroll
  for (int step = 4; step < 4 * Splits; step *= 2)
    top = fmaxf(top, __shfl_xor_sync(fullWarp, top, step));
  const float weight = sum * exp2Approximate(max - top);
  float total = weight;
#pragma unroll
  for (int step = 4; step < 4 * Splits; step *= 2)
    total += __shfl_xor_sync(fullWarp, total, step);
  return __fdividef(weight, total);
}

/// A slice of x. receive() waits for it; multiply() stores the sums of the products with the units
/// whose rows of weights begin at `rows` in shared memory, [chunks][Tiles], and with Statistics
/// those of x that moments() makes mean and scale of.
template <typename C, typename T> struct Slice;

#endif
} // namespace gpt2c::persistent
