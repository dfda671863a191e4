// map: calls `body(place)` for every position of a loop; the body, which the compiler composes,
// loads, computes and stores one element. Elementwise ops, copies with strides, gathers by index
// and the filling of constants are maps.
//
// Config: Items (elements of a thread per round).
// Kernel: the tensors of the body, count (positions), then sizes and strides of the axes.
// Grid: any, ceil(count / (threads * Items)) is one round; block: threads.
// Bytes: those of the elements read and written.
#pragma once

#include "templates/device/elementwise.cuh"
#include "templates/device/strided.cuh"

namespace gpt2c::tile {

template <typename C, typename Axes, typename Body>
__device__ __forceinline__ void map(const Body &body, const Axes &axes, i64 count, i64 block,
                                    i64 blocks) {
  waitForPredecessor();
  const i64 step = (i64)blockDim.x * C::Items;
  for (i64 first = block * step; first < count; first += blocks * step)
#pragma unroll
    for (int j = 0; j < C::Items; j++) {
      const i64 i = first + j * blockDim.x + threadIdx.x;
      if (i < count)
        body(axes.at(i));
    }
}

} // namespace gpt2c::tile
