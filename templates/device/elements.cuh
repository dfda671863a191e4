// Element types of the generic templates. A tensor stores elements of T; they are computed with as
// Compute<T>: float for half precision, bool for truth values, T itself otherwise.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

/// A truth value as a tensor stores it: one byte, 0 or 1.
struct Truth {
  unsigned char byte;
};

template <typename T> struct ComputeOf {
  using Type = T;
};
template <> struct ComputeOf<__half> {
  using Type = float;
};
template <> struct ComputeOf<Truth> {
  using Type = bool;
};
template <typename T> using Compute = typename ComputeOf<T>::Type;

template <typename T> constexpr bool isFloating = false;
template <> constexpr bool isFloating<float> = true;
template <> constexpr bool isFloating<double> = true;

template <typename T> struct UnsignedOf {
  using Type = unsigned;
};
template <> struct UnsignedOf<i64> {
  using Type = u64;
};
template <> struct UnsignedOf<u64> {
  using Type = u64;
};

/// Extreme values of a computing type; infinities for floating point.
template <typename T> __device__ __forceinline__ T highest() {
  if constexpr (isFloating<T>)
    return (T)__int_as_float(0x7f800000);
  else if constexpr ((T)-1 < (T)0)
    return (T)(((u64)1 << (8 * sizeof(T) - 1)) - 1);
  else
    return (T) ~(u64)0;
}
template <typename T> __device__ __forceinline__ T lowest() {
  if constexpr (isFloating<T>)
    return -highest<T>();
  else if constexpr ((T)-1 < (T)0)
    return (T)(-highest<T>() - 1);
  else
    return 0;
}

template <typename T> __device__ __forceinline__ Compute<T> load(const T *p) { return *p; }
template <> __device__ __forceinline__ float load<__half>(const __half *p) {
  return __half2float(*p);
}
template <> __device__ __forceinline__ bool load<Truth>(const Truth *p) { return p->byte != 0; }

template <typename T> __device__ __forceinline__ void store(T *p, Compute<T> v) { *p = v; }
template <> __device__ __forceinline__ void store<__half>(__half *p, float v) {
  *p = __float2half_rn(v);
}
template <> __device__ __forceinline__ void store<Truth>(Truth *p, bool v) { p->byte = v; }

/// v as another computing type. Anything but zero is true; floating point becomes an integer by
/// truncation, values beyond its range its extremes and NaN zero; integers wrap.
template <typename To, typename From> __device__ __forceinline__ To convert(From v) {
  if constexpr (isFloating<From> && !isFloating<To>) {
    if (v != v)
      return 0;
    // The bounds round outwards in From, so what lies strictly between them fits.
    if (v >= (From)highest<To>())
      return highest<To>();
    if (v <= (From)lowest<To>())
      return lowest<To>();
  }
  return (To)v;
}
template <> __device__ __forceinline__ bool convert<bool, float>(float v) { return v != 0; }
template <> __device__ __forceinline__ bool convert<bool, double>(double v) { return v != 0; }

} // namespace gpt2c
