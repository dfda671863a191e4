// The vocabulary of elementwise ops, on computing types (see elements.cuh). The compiler composes
// the body of a `map` kernel from these functions; their definitions are those of the IR.
#pragma once

#include "templates/device/activations.cuh"
#include "templates/device/elements.cuh"

namespace gpt2c::elementwise {

#define GPT2C_SCALAR template <typename T> __device__ __forceinline__

// Arithmetic: integers wrap, and divide toward zero. Division by the integer 0 gives 0.
GPT2C_SCALAR T add(T a, T b) {
  if constexpr (isFloating<T>)
    return a + b;
  else
    return (T)((typename UnsignedOf<T>::Type)a + (typename UnsignedOf<T>::Type)b);
}
GPT2C_SCALAR T sub(T a, T b) {
  if constexpr (isFloating<T>)
    return a - b;
  else
    return (T)((typename UnsignedOf<T>::Type)a - (typename UnsignedOf<T>::Type)b);
}
GPT2C_SCALAR T mul(T a, T b) {
  if constexpr (isFloating<T>)
    return a * b;
  else
    return (T)((typename UnsignedOf<T>::Type)a * (typename UnsignedOf<T>::Type)b);
}
GPT2C_SCALAR T div(T a, T b) {
  if constexpr (isFloating<T>)
    return a / b;
  else
    return b == 0 ? (T)0 : (T)-1 < (T)0 && b == (T)-1 ? sub((T)0, a) : (T)(a / b);
}
/// The sign of b; with `Fmod` the sign of a.
template <bool Fmod, typename T> __device__ __forceinline__ T mod(T a, T b) {
  if constexpr (isFloating<T>) {
    return ::fmod(a, b);
  } else {
    if (b == 0 || ((T)-1 < (T)0 && b == (T)-1))
      return 0;
    T r = (T)(a % b);
    return !Fmod && r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;
  }
}
/// NaN wins.
GPT2C_SCALAR T min(T a, T b) { return b < a || b != b ? b : a; }
GPT2C_SCALAR T max(T a, T b) { return b > a || b != b ? b : a; }

/// a^b in the type of a. A negative integer exponent gives 1 / a^|b| toward zero.
template <typename T, typename U> __device__ __forceinline__ T pow(T a, U b) {
  if constexpr (isFloating<T>) {
    if (b == (U)2)
      return a * a;
    if (b == (U)3)
      return a * a * a;
    return ::pow(a, (T)b);
  } else if constexpr (isFloating<U>) {
    return convert<T>(::pow((double)a, (double)b));
  } else {
    i64 exponent = (i64)b;
    if (exponent < 0)
      return a == (T)1 ? (T)1 : (T)-1 < (T)0 && a == (T)-1 ? (T)(exponent % 2 ? -1 : 1) : (T)0;
    T result = 1;
    for (; exponent > 0; exponent >>= 1) {
      if (exponent & 1)
        result = mul(result, a);
      a = mul(a, a);
    }
    return result;
  }
}

GPT2C_SCALAR T abs(T x) {
  if constexpr (isFloating<T>)
    return ::fabs(x);
  else
    return x < (T)0 ? sub((T)0, x) : x;
}
GPT2C_SCALAR T neg(T x) {
  if constexpr (isFloating<T>)
    return -x;
  else
    return sub((T)0, x);
}
GPT2C_SCALAR T sign(T x) { return x > (T)0 ? (T)1 : x < (T)0 ? (T)-1 : x; }
GPT2C_SCALAR T floor(T x) { return ::floor(x); }
GPT2C_SCALAR T ceil(T x) { return ::ceil(x); }
GPT2C_SCALAR T reciprocal(T x) { return (T)1 / x; }
GPT2C_SCALAR T sqrt(T x) { return ::sqrt(x); }
GPT2C_SCALAR T exp(T x) { return ::exp(x); }
GPT2C_SCALAR T log(T x) { return ::log(x); }
GPT2C_SCALAR T sin(T x) { return ::sin(x); }
GPT2C_SCALAR T cos(T x) { return ::cos(x); }
GPT2C_SCALAR T erf(T x) { return ::erf(x); }

GPT2C_SCALAR bool logicalNot(T x) { return !x; }
GPT2C_SCALAR bool isNaN(T x) { return x != x; }
GPT2C_SCALAR bool isInf(T x) { return x == highest<T>() || x == lowest<T>(); }
GPT2C_SCALAR bool equal(T a, T b) { return a == b; }
GPT2C_SCALAR bool less(T a, T b) { return a < b; }
GPT2C_SCALAR bool lessEqual(T a, T b) { return a <= b; }
GPT2C_SCALAR bool greater(T a, T b) { return a > b; }
GPT2C_SCALAR bool greaterEqual(T a, T b) { return a >= b; }
GPT2C_SCALAR bool logicalAnd(T a, T b) { return a && b; }
GPT2C_SCALAR bool logicalOr(T a, T b) { return a || b; }
GPT2C_SCALAR bool logicalXor(T a, T b) { return (a != 0) != (b != 0); }

/// saturate(round_half_even(x / scale) + zero); NaN gives the lowest.
template <typename T, typename Q>
__device__ __forceinline__ Q affineQuantize(T x, float scale, Q zero) {
  const float q = ::rintf(__fdiv_rn((float)x, scale)) + (float)zero;
  return (Q)::fminf(::fmaxf(q, (float)lowest<Q>()), (float)highest<Q>());
}
GPT2C_SCALAR float affineDequantize(T q, float scale, T zero) {
  return (float)sub<int>(q, zero) * scale;
}

#undef GPT2C_SCALAR

/// An index that counts from the end when negative, kept inside [0, size): a graph that indexes out
/// of range reads a wrong element, never memory of others.
__device__ __forceinline__ i64 wrapIndex(i64 index, i64 size) {
  index = index < 0 ? index + size : index;
  return index < 0 ? 0 : index >= size ? size - 1 : index;
}

} // namespace gpt2c::elementwise
