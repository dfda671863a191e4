// The end of attention whose keys are split over blocks: partial softmax states meet.
#pragma once

#include "templates/attention/parts/softmax_state.cuh"
#include "templates/device/split_k.cuh"
#include "templates/device/tma.cuh"

namespace gpt2c {

/// Merges the states of the Splits blocks of a query and head, of which this is number `split`.
/// From sm_90 on those of a cluster send each other their parts; each block merges a share of the
/// elements.
template <typename C> struct MergeSplits {
  static constexpr int D = C::HeadDim, threads = 32 * C::Warps, share = ceilDiv(D, C::Splits);
#if __CUDA_ARCH__ >= 900
  static constexpr bool cluster = C::Cluster && C::Splits > 1;
  struct Received {
    Barrier arrived;
    float part[C::Splits][2 + share]; // maximum, sum, output
  };
  static __device__ __forceinline__ Received &received() {
    __shared__ Received r;
    return r;
  }
#else
  static constexpr bool cluster = false;
#endif

  /// Called by all threads before the block's work.
  static __device__ __forceinline__ void begin(int split) {
#if __CUDA_ARCH__ >= 900
    if constexpr (cluster) {
      if (threadIdx.x == 0) {
        Barrier &arrived = received().arrived;
        arrived.init(1);
        fenceBarrierInit();
        arrived.expect(C::Splits * (2 + maxInt(0, minInt(share, D - split * share))) * 4);
      }
      asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    }
#endif
  }
  /// Stores the result in `to`. The block has the maximum `top` (base 2), the sum and, by
  /// blockOut(d), the unnormalised output; `parts` f32[Splits,HeadDim+2] and `counter` are as in
  /// the kernel.
  template <typename Given, typename BlockOut>
  static __device__ __forceinline__ void end(typename C::Y *to, float *parts, unsigned *counter,
                                             int split, float top, float sum, const Given &given,
                                             BlockOut &&blockOut) {
    auto result = [&](float o, float sum) {
      float v[1] = {sum > 0.0f ? o / sum : 0.0f};
      given.apply(v);
      return fromFloat<typename C::Y>(v[0]);
    };
    // What each split counts for, and the sum over all; part(i, at) is number `at` of {maximum,
    // sum, out...} of split i.
    float weight[C::Splits], total = 0.0f;
    auto weigh = [&](auto &&part) {
      float maxima[C::Splits], sums[C::Splits], top = negativeInfinity();
#pragma unroll
      for (int i = 0; i < C::Splits; i++) {
        maxima[i] = part(i, 0);
        sums[i] = part(i, 1);
        top = fmaxf(top, maxima[i]);
      }
#pragma unroll
      for (int i = 0; i < C::Splits; i++) {
        const float keep = exp2f(maxima[i] - top); // computed for all: no branches
        weight[i] = maxima[i] == negativeInfinity() ? 0.0f : keep;
        total += sums[i] * weight[i];
      }
    };
    auto merged = [&](auto &&part, int d) {
      float o = 0.0f;
#pragma unroll
      for (int i = 0; i < C::Splits; i++)
        o += part(i, 2 + d) * weight[i];
      return result(o, total);
    };
    if constexpr (C::Splits == 1) {
      for (int d = threadIdx.x; d < D; d += threads)
        to[d] = result(blockOut(d), sum);
    } else if constexpr (cluster) {
#if __CUDA_ARCH__ >= 900
      asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); // all have begun
      Received &r = received();
      if (threadIdx.x < C::Splits)
        sendToCluster<2>(r.part[split], {top, sum}, threadIdx.x, r.arrived);
      for (int d = threadIdx.x; d < D; d += threads)
        sendToCluster<1>(r.part[split] + 2 + d % share, {blockOut(d)}, d / share, r.arrived);
      r.arrived.wait(0);
      auto part = [&](int i, int at) { return r.part[i][at]; };
      weigh(part);
#pragma unroll 1
      for (int d = threadIdx.x; d < share && split * share + d < D; d += threads)
        to[split * share + d] = merged(part, d);
#endif
    } else {
      for (int d = threadIdx.x; d < D; d += threads)
        __stcg(parts + split * (D + 2) + 2 + d, blockOut(d));
      if (threadIdx.x == 0) {
        __stcg(parts + split * (D + 2), top);
        __stcg(parts + split * (D + 2) + 1, sum);
      }
      if (!arriveLast(counter, C::Splits))
        return;
      auto part = [&](int i, int at) { return __ldcg(parts + i * (D + 2) + at); };
      weigh(part);
#pragma unroll 1
      for (int d = threadIdx.x; d < D; d += threads)
        to[d] = merged(part, d);
    }
  }
};

} // namespace gpt2c
