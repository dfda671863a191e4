// Split K: `splits` blocks share one output tile, each sums its part of K into a workspace, and the
// block that arrives last adds the parts in order of their index. The result does not depend on
// which block is last.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

/// True in every thread of the block that arrives last of `expected` at `counter`, which it sets
/// back to zero for the next launch. What the other blocks wrote before arriving is visible to it
/// (read it with __ldcg).
__device__ __forceinline__ bool arriveLast(unsigned *counter, unsigned expected) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1u) == expected - 1;
    if (last)
      *counter = 0;
  }
  __syncthreads();
  if (last)
    __threadfence();
  return last;
}

/// The K range [begin, end) of part `split` of `splits`, in multiples of `step`.
__device__ __forceinline__ void splitRange(int k, int splits, int split, int step, int &begin,
                                           int &end) {
  int steps = (k + step - 1) / step;
  int each = (steps + splits - 1) / splits;
  begin = min(split * each * step, k);
  end = min(begin + each * step, k);
}

} // namespace gpt2c
