// The products of a linear stage in fp32; see stages/products.cuh.
#pragma once

#include "templates/decode_step/stages/products.cuh"

namespace gpt2c::persistent {
#if __CUDA_ARCH__ >= 900

template <typename C> struct Slice<C, float> {
  using P = Pieces<C>;
  static_assert(C::Rows == 1 && C::Splits <= 8 && (C::Splits & (C::Splits - 1)) == 0);
  P pieces;
  float4 x[P::count] = {};
  float4 gain[C::Gain ? P::count : 1];

  __device__ __forceinline__ void prepare(const float *gains) {
    if constexpr (C::Gain)
#pragma unroll
      for (int i = 0; i < P::count; i++)
        gain[i] = *reinterpret_cast<const float4 *>(gains + pieces.k(i));
  }
  __device__ __forceinline__ void receive(const float *from, const float *maxima) {
    constexpr int splits = C::Splits;
    auto head = [&](int i) { return pieces.k(i) / C::HeadDim * splits + pieces.g % splits; };
    auto place = [&](int i) {
      return splits == 1 ? pieces.k(i) : head(i) * C::HeadDim + pieces.k(i) % C::HeadDim;
    };
    uint4 group[P::count] = {};
    u64 of[splits > 1 ? P::count : 1];
    auto load = [&] {
#pragma unroll
      for (int i = 0; i < P::count; i++) {
        loadGroup(group[i], from + place(i), pieces.inside(i));
        if constexpr (splits > 1)
          of[i] = loadPair(maxima + 2 * head(i));
      }
    };
    auto missing = [&] {
      bool some = false;
#pragma unroll
      for (int i = 0; i < P::count; i++) {
        some |= pieces.inside(i) && !written(group[i]);
        if constexpr (splits > 1)
          some |= of[i] >> 32 == 0;
      }
      return some;
    };
    persistent::receive(load, missing);
#pragma unroll
    for (int i = 0; i < P::count; i++) {
      x[i] = *reinterpret_cast<const float4 *>(&group[i]);
      if constexpr (splits > 1) {
        const float weight = partWeight<splits>(__uint_as_float((unsigned)of[i]),
                                                __uint_as_float((unsigned)(of[i] >> 32)));
#pragma unroll
        for (int j = 0; j < 4; j++) {
          float &v = element(x[i], j);
          v *= weight;
#pragma unroll
          for (int step = 4; step < 4 * splits; step *= 2)
            v += __shfl_xor_sync(fullWarp, v, step);
        }
      }
    }
  }
  /// Of the warp's part: mean and sum of squared differences; those of all parts make the row's
  /// (Chan, Golub, LeVeque 1979).
  __device__ __forceinline__ void storeStatistics(const Sums<C> &sums) const {
    float sum = 0.0f, squares = 0.0f, mean = 0.0f;
    if constexpr (C::Norm == NormKind::Layer) {
#pragma unroll
      for (int i = 0; i < P::count; i++)
        sum += (x[i].x + x[i].y) + (x[i].z + x[i].w);
      mean = warpReduce<Sum, 4>(sum) / fmaxf(P::share(pieces.warp), 1.0f);
    }
#pragma unroll
    for (int i = 0; i < P::count; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float d = pieces.inside(i) ? element(x[i], j) - mean : 0.0f;
        squares = fmaf(d, d, squares);
      }
    squares = warpReduce<Sum, 4>(squares);
    if (threadIdx.x % 32 == 0)
      *reinterpret_cast<float2 *>(sums.statistics(pieces.warp, 0)) = float2{mean, squares};
  }
  static __device__ __forceinline__ Moments moments(const Sums<C> &sums, int, float epsilon) {
    float2 part[warps];
    float mean = 0.0f, squares = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; w++) {
      part[w] = *reinterpret_cast<const float2 *>(sums.statistics(w, 0));
      mean += part[w].x * (P::share(w) * (1.0f / C::K));
    }
#pragma unroll
    for (int w = 0; w < warps; w++)
      squares += part[w].y + P::share(w) * (part[w].x - mean) * (part[w].x - mean);
    return {rsqrtf(squares * (1.0f / C::K) + epsilon), mean};
  }
  template <bool Statistics>
  __device__ __forceinline__ void multiply(const unsigned (&rows)[P::chunks][C::Tiles],
                                           const Sums<C> &sums) {
    if constexpr (Statistics) {
      storeStatistics(sums);
      if constexpr (C::Gain)
#pragma unroll
        for (int i = 0; i < P::count; i++)
#pragma unroll
          for (int j = 0; j < 4; j++)
            element(x[i], j) *= element(gain[i], j);
    }
    float sum[C::Tiles][2] = {};
#pragma unroll
    for (int i = 0; i < P::count; i++)
#pragma unroll
      for (int u = 0; u < C::Tiles; u++) {
        const float4 w = weights(rows[i / P::each][u], pieces.at(i));
        float &s = sum[u][i % 2];
        s = fmaf(w.x, x[i].x, s);
        s = fmaf(w.y, x[i].y, s);
        s = fmaf(w.z, x[i].z, s);
        s = fmaf(w.w, x[i].w, s);
      }
#pragma unroll
    for (int u = 0; u < C::Tiles; u++) {
      const float all = warpReduce<Sum, 4>(sum[u][0] + sum[u][1]);
      if (pieces.t == 0)
        sums.row(pieces.warp, 0)[u * unitRows + pieces.g] = all;
    }
  }

private:
  static __device__ __forceinline__ float &element(float4 &v, int j) {
    return reinterpret_cast<float *>(&v)[j];
  }
  static __device__ __forceinline__ float element(const float4 &v, int j) {
    return reinterpret_cast<const float *>(&v)[j];
  }
  static __device__ __forceinline__ float4 weights(unsigned row, int vector) {
    float4 w;
    if constexpr (Operand<typename C::W>::scaled) {
      unsigned word;
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(row + vector * 4));
      w = Operand<typename C::W>::floats(word);
    } else {
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(w.x), "=f"(w.y), "=f"(w.z), "=f"(w.w)
                   : "r"(row + vector * 16));
    }
    return w;
  }
};

#endif
} // namespace gpt2c::persistent
