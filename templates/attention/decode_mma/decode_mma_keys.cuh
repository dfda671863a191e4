// What the lanes of attention_decode_mma have of keys, values and the query, and the new keys.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/device/int8.cuh"
#include "templates/device/mma.cuh"

namespace gpt2c {

/// Four bytes of a state as pairs of X, exactly, as steps of their scale.
template <typename X, typename Kv> __device__ __forceinline__ HalfPairs stepsAs(unsigned word) {
  if constexpr (Mma<X>::bfloat) {
    const float4 v = Operand<Kv>::floats(word);
    return {Mma<X>::pack(v.x, v.y), Mma<X>::pack(v.z, v.w)};
  } else {
    return Operand<Kv>::halves(word);
  }
}

template <typename C> struct DecodeMma {
  using Kv = typename C::Kv;
  static constexpr bool int8 = Operand<Kv>::scaled; // X is __half, for attention_decode_mma
  static constexpr int D = C::HeadDim;
  static constexpr int round = D <= 64 ? 32 : 16; // keys
  static constexpr int steps = D / 16;            // mma along D
  // A lane has every fourth run of kWidth elements of a key, every eighth run of vWidth of a value.
  static constexpr int kWidth = vectorWidth(D / 4, elementsPer16Bytes<Kv>());
  static constexpr int kRuns = D / 4 / kWidth;
  static constexpr int vWidth = vectorWidth(D / 8, 8);
  static constexpr int vRuns = D / 8 / vWidth;
  static constexpr int perLane = ceilDiv(D, 32); // of a new key
  // Keeps products of probabilities and scales of values, which are at most 516, where halves are
  // good.
  static constexpr float valueFactor = int8 ? 64.0f : 1.0f;
  static_assert(D % (int8 ? 32 : 16) == 0 && D <= 128 && C::Warps >= C::Queries);

  /// The first of the four neighbouring elements that lane member c multiplies in step t.
  static __device__ __forceinline__ int elementOf(int t, int c) {
    constexpr int perRun = kWidth / 4;
    return (t / perRun * 4 + c) * kWidth + t % perRun * 4;
  }
  /// Makes of a lane's elements of the query, as halves, what is multiplied with int8 keys: four at
  /// a time integers 256 high + low, the high bytes in the first word. Returns their scale.
  static __device__ __forceinline__ float splitQuery(unsigned (&q)[steps][2]) {
    float largest = 0.0f;
    float2 v[steps][2];
#pragma unroll
    for (int t = 0; t < steps; t++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        v[t][i] = __half22float2(*reinterpret_cast<const __half2 *>(&q[t][i]));
        largest = fmaxf(largest, fmaxf(fabsf(v[t][i].x), fabsf(v[t][i].y)));
      }
    largest = fmaxf(warpReduce<Max, 4>(largest), 1e-30f);
    const float inverse = __fdividef(32512.0f, largest);
#pragma unroll
    for (int t = 0; t < steps; t++) {
      auto integer = [&](float x) { return __float2int_rn(x * inverse); };
      const int a = integer(v[t][0].x), b = integer(v[t][0].y), c = integer(v[t][1].x),
                d = integer(v[t][1].y);
      // The low byte is signed, so the high one takes what it lacks.
      auto bytes = [&](int shift, int round) {
        const int lo = __byte_perm((a + round) >> shift, (b + round) >> shift, 0x0040);
        const int hi = __byte_perm((c + round) >> shift, (d + round) >> shift, 0x0040);
        return __byte_perm(lo, hi, 0x5410);
      };
      q[t][0] = bytes(8, 128);
      q[t][1] = bytes(0, 0);
    }
    return largest * (1.0f / 32512.0f);
  }
  /// Operand<i8>::halves with `bias` added to each.
  static constexpr float bias = 1152.0f;
  static __device__ __forceinline__ HalfPairs biasedHalves(unsigned word) {
    const unsigned biased = word ^ 0x80808080u;
    return {__byte_perm(biased, 0x64646464u, 0x4140), __byte_perm(biased, 0x64646464u, 0x4342)};
  }
  /// Word i of what a lane loaded.
  template <typename T, int V, int N>
  static __device__ __forceinline__ unsigned word(const Pack<T, V> (&packs)[N], int i) {
    constexpr int words = V * (int)sizeof(T) / 4;
    return reinterpret_cast<const unsigned *>(&packs[i / words].raw)[i % words];
  }
};

/// A new key and its value, shared by a warp: lane l has elements l, l + 32, ...
template <typename C> struct NewKey {
  using X = typename C::X;
  using Kv = typename C::Kv;
  using M = DecodeMma<C>;
  float query[M::perLane] = {}, row[2][M::perLane] = {}, scale[2] = {1.0f, 1.0f};

  template <typename Body> static __device__ __forceinline__ void forElements(Body &&body) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < M::perLane; i++)
      if (M::D % 32 == 0 || i * 32 + lane < M::D)
        body(i, i * 32 + lane);
  }
  __device__ __forceinline__ void load(const X *ofQuery, const X *key, const X *value) {
    forElements([&](int i, int d) {
      query[i] = toFloat(ofQuery[d]);
      row[0][i] = toFloat(key[d]);
      row[1][i] = toFloat(value[d]);
    });
  }
  /// Makes the rows what their int8 form stands for, without the scales.
  __device__ __forceinline__ void quantise() {
#pragma unroll
    for (int part = 0; part < 2; part++) {
      float largest = 0.0f;
#pragma unroll
      for (int i = 0; i < M::perLane; i++)
        largest = fmaxf(largest, fabsf(row[part][i]));
      scale[part] = quantised::scale(warpReduce<Max>(largest));
      const float inverse = quantised::inverse(scale[part]);
#pragma unroll
      for (int i = 0; i < M::perLane; i++)
        row[part][i] = quantised::round(row[part][i], inverse);
    }
  }
  /// Writes the key (0) or the value (1), in int8 with its scale.
  __device__ __forceinline__ void store(int part, Kv *to, float *toScale) const {
    forElements([&](int i, int d) {
      if constexpr (M::int8)
        to[d] = (i8)(int)row[part][i];
      else
        to[d] = fromFloat<Kv>(row[part][i]);
    });
    if (M::int8 && threadIdx.x % 32 == 0)
      *toScale = scale[part];
  }
  __device__ __forceinline__ float score() const {
    float dot = 0.0f;
#pragma unroll
    for (int i = 0; i < M::perLane; i++)
      dot = fmaf(query[i], row[0][i], dot);
    return warpReduce<Sum>(dot) * scale[0];
  }
};

} // namespace gpt2c
