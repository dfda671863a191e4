// How the lanes of attention_decode walk over keys, and what a key is to them.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"

namespace gpt2c {

/// Where the key and the value of one position are.
template <typename T> struct KeyValue {
  using Element = T;
  const T *key, *value;
  const float *keyScale, *valueScale; // of bytes
};

/// The elements of a row, of which Lanes neighbouring lanes have a part each, become what its bytes
/// of type Kv hold, steps, which T has exactly; returns their scale.
template <typename Kv, int Lanes, int Count, typename T, int V>
__device__ __forceinline__ float roundToSteps(Pack<T, V> (&row)[Count]) {
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < Count * V; i++)
    largest = fmaxf(largest, fabsf(row[i / V].get(i % V)));
  const float scale = quantised::scale<Kv>(warpReduce<Max, Lanes>(largest));
  const float inverse = quantised::inverse(scale);
#pragma unroll
  for (int i = 0; i < Count * V; i++)
    row[i / V].set(i % V,
                   fromFloat<T>(toFloat(fromFloat<Kv>(__fmul_rn(row[i / V].get(i % V), inverse)))));
  return scale;
}

template <typename To, typename T, int V>
__device__ __forceinline__ Pack<To, V> convertPack(Pack<T, V> from) {
  if constexpr (sizeof(To) == sizeof(T)) {
    return {from.raw};
  } else {
    Pack<To, V> to;
#pragma unroll
    for (int i = 0; i < V; i++)
      to.set(i, fromFloat<To>(from.get(i)));
    return to;
  }
}

/// How a warp walks over keys: a round is `unroll` times `keysPerWarp` keys, `lanes` lanes a key.
template <typename C> struct DecodeKeys {
  using Kv = typename C::Kv;
  static constexpr int v =
      vectorWidth(C::HeadDim, minInt(elementsPer16Bytes<typename C::X>(),
                                     C::Aligned ? elementsPer16Bytes<Kv>() : 4));
  static constexpr int vectors = C::HeadDim / v;
  static constexpr int lanes = vectors > 16  ? 32
                               : vectors > 8 ? 16
                               : vectors > 4 ? 8
                               : vectors > 2 ? 4
                                             : vectors;
  static constexpr int perLane = ceilDiv(vectors, lanes); // vectors of a lane
  static constexpr int keysPerWarp = 32 / lanes;
  static constexpr int unroll = perLane > 1 ? 2 : 4;
  // A chunk of the ring is what a round takes: keys, values, then the scales of either.
  static constexpr int chunk = keysPerWarp * unroll;
  static constexpr int partBytes = chunk * C::HeadDim * (int)sizeof(Kv);
  static constexpr int scaleBytes = Operand<Kv>::scaled ? chunk * 4 : 0;
  static constexpr int chunkBytes = 2 * (partBytes + scaleBytes);
  static constexpr int ringBytes = C::Warps * C::Ring * chunkBytes;
  static_assert(C::HeadDim <= 1024);
  static_assert(C::Ring == 0 || (C::Append && C::HeadDim * sizeof(Kv) % 16 == 0 &&
                                 (scaleBytes == 0 || chunk % 4 == 0)));
};

} // namespace gpt2c
