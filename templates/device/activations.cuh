// Activations, each twice by its name in ir/Activations.def: of a value in a computing type (see
// elements.cuh), as exact as ops are, and of V sums in fp32 on their way to memory.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c::elementwise {

template <typename T> __device__ __forceinline__ T tanh(T x) { return ::tanh(x); }
template <typename T> __device__ __forceinline__ T sigmoid(T x) {
  return (T)1 / ((T)1 + ::exp(-x));
}
template <typename T> __device__ __forceinline__ T silu(T x) { return x / ((T)1 + ::exp(-x)); }
template <typename T> __device__ __forceinline__ T relu(T x) { return x < (T)0 ? (T)0 : x; }
template <typename T> __device__ __forceinline__ T reluSquared(T x) {
  return x < (T)0 ? (T)0 : x * x;
}
template <typename T> __device__ __forceinline__ T geluErf(T x) {
  return x / 2 * ((T)1 + ::erf(x * (T)0.70710678118654752440));
}
template <typename T> __device__ __forceinline__ T geluTanh(T x) {
  return x / 2 * ((T)1 + ::tanh((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x)));
}

} // namespace gpt2c::elementwise

namespace gpt2c::epilogue {

/// gelu(x) = x / 2 * (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) * (x + 0.044715 x^3)
template <int V> __device__ __forceinline__ void geluTanh(float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++) {
    float u = 0.7978845608028654f * (v[i] + 0.044715f * v[i] * v[i] * v[i]);
    v[i] = __fdividef(v[i], 1.0f + __expf(-2.0f * u));
  }
}

/// The same for results that are rounded to fp16 or bf16: tanh with a relative error of 2^-11, so
/// that of gelu(x) is at most |x| 2^-12, half of what rounding x to fp16 would be.
template <int V> __device__ __forceinline__ void geluTanhHalf(float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++) {
    const float u = v[i] * fmaf(v[i] * v[i], 0.7978845608028654f * 0.044715f, 0.7978845608028654f);
    float t;
    asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(u));
    const float half = 0.5f * v[i];
    v[i] = fmaf(half, t, half);
  }
}

/// gelu(x) = x / 2 * (1 + erf(x / sqrt(2))) = x / 2 * erfc(-x / sqrt(2))
template <int V> __device__ __forceinline__ void geluErf(float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] = 0.5f * v[i] * erfcf(-0.7071067811865476f * v[i]);
}

template <int V> __device__ __forceinline__ void relu(float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] = v[i] > 0.0f || v[i] != v[i] ? v[i] : 0.0f;
}

template <int V> __device__ __forceinline__ void reluSquared(float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] = v[i] > 0.0f || v[i] != v[i] ? v[i] * v[i] : 0.0f;
}

/// silu(x) = x / (1 + exp(-x))
template <int V> __device__ __forceinline__ void silu(float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] = __fdividef(v[i], 1.0f + __expf(-v[i]));
}

/// sigmoid(x) = 1 / (1 + exp(-x))
template <int V> __device__ __forceinline__ void sigmoid(float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] = __fdividef(1.0f, 1.0f + __expf(-v[i]));
}

template <int V> __device__ __forceinline__ void tanh(float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] = tanhf(v[i]);
}

} // namespace gpt2c::epilogue
