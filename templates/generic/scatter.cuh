// scatter: y[index tuple t, :] = updates[t, :] for t = 0, 1, ...; of several updates of one place
// the last stands, so a thread takes one element of the rows and walks the tuples in order.
//
// Config: W (a word as wide as an element), I (indices), Depth (elements of a tuple).
// Kernel: y W[size0,...,width], indices I[tuples,Depth], updates W[tuples,width], tuples, width,
//   then size and stride (in elements) of each indexed axis.
// Grid: any, ceil(width / threads) is one round; block: threads.
// Bytes: tuples (Depth sizeof(I) + 2 width sizeof(W)).
#pragma once

#include "templates/device/elementwise.cuh"
#include "templates/device/strided.cuh"

namespace gpt2c::tile {

template <typename C>
__device__ __forceinline__ void scatter(typename C::W *y, const typename C::I *indices,
                                        const typename C::W *updates, i64 tuples, i64 width,
                                        const i64 *size, const i64 *stride, i64 block, i64 blocks) {
  waitForPredecessor();
  for (i64 i = block * blockDim.x + threadIdx.x; i < width; i += blocks * blockDim.x)
    for (i64 t = 0; t < tuples; t++) {
      i64 at = 0;
#pragma unroll
      for (int d = 0; d < C::Depth; d++)
        at += elementwise::wrapIndex((i64)load(indices + t * C::Depth + d), size[d]) * stride[d];
      y[at + i] = updates[t * width + i];
    }
}

} // namespace gpt2c::tile
