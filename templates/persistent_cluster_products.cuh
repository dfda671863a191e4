// The middle of an MLP for persistent_clusters.cuh.
#pragma once

#include "persistent_cluster_step.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// The block's part of an MLP behind `receive` and `store`.
template <typename C>
__device__ __forceinline__ void Step<C>::mlp(const Record &half, const Constants &c,
                                             float2 outScales, const OutputWords &words) {
  auto &sums = shared.mlp;
  u64 *const arrived = &shared.arrived[AtMlp];
  // Each half of the columns of a tile is a warp's.
  constexpr int outTiles = L::slice / 16, columns = L::hidden / 2;
  static_assert(2 * outTiles == warps);
  constexpr int middle = ceilDiv(L::hidden / 2, 32); // warps that finish the hidden columns
  static_assert(middle <= warps);
  const int pair = thread;
  auto tile = [&] { return warp % outTiles; };
  auto part = [&] { return warp / outTiles; };
  Tile<columns, L::hidden> weights;
  if constexpr (roomy)
    words.convert(weights);
  else if constexpr (halves)
    load<true>(weights, 0, tile(), part() * columns);
  waitArrival(arrived, turn & 1);
  if (threadIdx.x == 0)
    persistent::barrierExpect(arrived, ranks * (L::hidden * 4 + 8));
  if (warp < middle) {
    const float2 v = gather(sums.sum, 2 * pair, c, moments(sums.statistics, half));
    float out[2] = {v.x, v.y};
    C::activate(out);
    storeFloats<2>(shared.hidden + 2 * pair, out);
  }
  sync<3, warps>();
  refresh();
  if constexpr (!halves)
    load<true>(weights, 0, tile(), part() * columns);
  float2 sum = weights.multiply(vectorIn(shared.hidden + part() * columns));
  if (part() == 1 && t == 0)
    shared.half[tile()][g] = sum;
  advance(L::outputSlots);
  sync<3, warps>();
  refresh();
  if (part() == 0) {
    const float2 other = shared.half[tile()][g];
    publish(half, tile(), {sum.x + other.x, sum.y + other.y}, outScales);
  }
}
#endif
} // namespace gpt2c::clusters
