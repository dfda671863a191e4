// bfloat16 elements, apart from the others because their header is large.
#pragma once

#include "templates/device/elements.cuh"

#include <cuda_bf16.h>

namespace gpt2c {

template <> struct ComputeOf<__nv_bfloat16> {
  using Type = float;
};
template <> __device__ __forceinline__ float load<__nv_bfloat16>(const __nv_bfloat16 *p) {
  return __bfloat162float(*p);
}
template <> __device__ __forceinline__ void store<__nv_bfloat16>(__nv_bfloat16 *p, float v) {
  *p = __float2bfloat16_rn(v);
}

} // namespace gpt2c
