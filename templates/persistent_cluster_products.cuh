// The middle of an MLP for persistent_clusters.cuh.
#pragma once

#include "persistent_cluster_step.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// The block's part of an MLP behind `receive` and `store`.
template <typename C>
__device__ __forceinline__ void Step<C>::mlp(const Record &half, const Constants &c, float outScale,
                                             const OutputWords &words) {
  auto &sums = shared.mlp;
  u64 *const arrived = &shared.arrived[AtMlp];
  constexpr int middle = ceilDiv(L::hidden / 2, 32); // warps that finish the hidden columns
  static_assert(middle <= warps);
  const int pair = thread;
  OutputTile weights;
  if constexpr (roomy)
    words.convert(weights);
  else if constexpr (halves)
    weights.load(outputRow(0), t, g * 16);
  char *const to = published(half, warp * 8 + g);
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
  if constexpr (!halves)
    weights.load(outputRow(0), t, g * 16);
  const float sum = weights.multiplyRow(shared.hidden, g, t) * outScale;
  if (t == 0)
    persistent::contributeWord(to, persistent::channelWord(sum));
  advance(L::outputSlots);
}
#endif
} // namespace gpt2c::clusters
