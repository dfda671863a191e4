// The end of a tile of attention on tensor cores: 16 queries of a head for each warp, stored in the
// type of the plan, or as int8 or fp8 with a scale for each query and head (int8.cuh) or one that
// is given.
#pragma once

#include "templates/linear/parts/linear_store_quantised.cuh"

namespace gpt2c::tile {

/// An epilogue of that alone.
template <typename Given> struct GivenEpilogue {
  Given given;
  template <int V> __device__ __forceinline__ void operator()(float (&v)[V], i64, i64) const {
    given.apply(v);
  }
};

/// Stores o as Q in out[batch,seq,Heads,HeadDim] with its scales f32[batch,seq,Heads], which are
/// null when one is given: queries row0 and on, o as below. HeadDim is a multiple of 32, or of 16
/// with a given scale.
template <int Heads, int HeadDim, typename Q, typename Given>
__device__ __forceinline__ void storeHeadQuantised(float (&o)[HeadDim / 8][4], Q *out,
                                                   float *scales, int row0, int seq, int h, i64 b,
                                                   const Given &given) {
  constexpr int width = Heads * HeadDim;
  auto &tile = reinterpret_cast<float(&)[1][HeadDim / 8][4]>(o);
  const GivenEpilogue<Given> epilogue{given};
  if constexpr (Given::quantises)
    storeTileBytes<true>(tile, out + b * seq * width, seq, width, row0, h * HeadDim, epilogue);
  else
    storeTileQuantised<HeadDim>(tile, out + b * seq * width, scales + b * seq * Heads, seq, width,
                                row0, h * HeadDim, epilogue);
}

/// Stores o / sum, or zeros where sum is 0. o has the layout of mma.m16n8, `sum` a lane's share of
/// the sums of its queries row0 + lane / 4 and + 8, out Y[batch,seq,Heads,HeadDim]; of a byte:
/// storeHeadQuantised.
template <int Heads, int HeadDim, typename Y, typename Given>
__device__ __forceinline__ void storeAttention(float (&o)[HeadDim / 8][4], const float (&sum)[2],
                                               Y *out, float *outScale, int row0, int seq, int h,
                                               i64 b, const Given &given) {
  constexpr int width = Heads * HeadDim;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float total = warpReduce<Sum, 4>(sum[half]);
    const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
#pragma unroll
    for (int d = 0; d < HeadDim / 8; d++) {
      o[d][half * 2] *= inverse;
      o[d][half * 2 + 1] *= inverse;
    }
  }
  if constexpr (Operand<Y>::scaled) {
    storeHeadQuantised<Heads, HeadDim>(o, out, outScale, row0, seq, h, b, given);
  } else {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int s = row0 + lane / 4 + half * 8;
      if (s >= seq)
        continue;
      Y *to = out + (b * seq + s) * width + h * HeadDim + lane % 4 * 2;
#pragma unroll
      for (int d = 0; d < HeadDim / 8; d++) {
        const float pair[2] = {o[d][half * 2], o[d][half * 2 + 1]};
        storeFloats<2>(to + d * 8, pair);
      }
    }
  }
}

} // namespace gpt2c::tile
