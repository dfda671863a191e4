// First products, and the middle of an MLP, for clusters/clusters.cuh.
#pragma once

#include "templates/decode_step/clusters/step.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// In fp32 there are registers for one tile only.
template <typename C> template <int Rows> struct Step<C>::FirstTiles {
  static constexpr int tiles = Rows / 16, count = ceilDiv(tiles, warps), early = halves ? count : 1;
  Tile<L::slice> weights[early];
  unsigned to[2], done[2]; ///< in two blocks

  template <typename Sums>
  __device__ __forceinline__ FirstTiles(Step &step, Sums &sums, Arrival at) {
    // Without a condition, else what is not loaded would have to be kept.
#pragma unroll
    for (int i = 0; i < early; i++)
      step.template load<true>(weights[i], 0, min(step.warp + i * warps, tiles - 1));
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int block = step.t + i * 4;
      to[i] = remote(sharedAddress(&sums.sum[step.rank][step.warp * 16 + 2 * step.g]), block);
      done[i] = remote(step.shared.arrived[at].address(), block);
      asm volatile("" : "+r"(to[i]), "+r"(done[i]));
    }
  }
  __device__ __forceinline__ void sendSums(float2 sum, int i) const {
#pragma unroll
    for (int j = 0; j < 2; j++)
      send(to[j] + i * warps * 16 * (int)sizeof(float), sum.x, sum.y, done[j]);
  }
  __device__ __forceinline__ void multiply(Step &step) const {
    const auto x = step.vectorIn(step.shared.x);
    if constexpr (early == count) {
      // All products first: none waits for another.
      float2 sum[count];
#pragma unroll
      for (int i = 0; i < count; i++)
        if (i == 0 || step.warp + i * warps < tiles)
          sum[i] = weights[i].multiply(x);
#pragma unroll
      for (int i = 0; i < count; i++)
        if (step.warp + i * warps < tiles)
          sendSums(sum[i], i);
    } else {
#pragma unroll
      for (int i = 0; i < count; i++)
        if (step.warp + i * warps < tiles) {
          Tile<L::slice> late;
          if (i > 0)
            step.template load<true>(late, 0, step.warp + i * warps);
          sendSums((i == 0 ? weights[0] : late).multiply(x), i);
        }
    }
    step.advance(Rows / 64);
  }
};

/// The block's part of an MLP behind `receive` and `store`.
template <typename C>
__device__ __forceinline__ void Step<C>::mlp(const HalfRecord<Words> &half, const Constants &c,
                                             float outScale, const OutputWords &words) {
  auto &sums = shared.mlp;
  Barrier &arrived = shared.arrived[AtMlp];
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
    arrived.expect(ranks * (L::hidden * 4 + 8));
  if (warp < middle) {
    const float2 v = gather(sums.sum, 2 * pair, c, moments(sums.statistics, half.first));
    float out[2] = {v.x, v.y};
    C::Function::apply(out);
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
