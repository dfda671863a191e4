// The end of attention_decode_group: the partial softmax states of the splits of keys meet, for all
// heads of a group at once. As MergeSplits (merge_splits.cuh) does it for one head.
#pragma once

#include "templates/device/split_k.cuh"
#include "templates/device/tma.cuh"

namespace gpt2c {

template <typename C> struct MergeGroup {
  static constexpr int D = C::HeadDim, group = C::Heads / C::KvHeads, elements = group * D;
  static constexpr int threads = 32 * C::Warps, share = ceilDiv(elements, C::Splits);
#if __CUDA_ARCH__ >= 900
  static constexpr bool cluster = C::Cluster && C::Splits > 1;
  struct Received {
    Barrier arrived;
    float head[C::Splits][group][2]; // maximum, sum
    float out[C::Splits][share];     // this block's share of the elements of all heads
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
        const int mine = maxInt(0, minInt(share, elements - split * share));
        arrived.expect(C::Splits * (2 * group + mine) * 4);
      }
      asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    }
#endif
  }

  /// Stores the group's rows at `to`, one after the other. The block has of each head the maximum
  /// largest(head) (base 2), sumOf(head) and the unnormalised output outOf(head, d); `parts`
  /// f32[group,Splits,HeadDim+2] and `counter` are as in the kernel.
  template <typename Given, typename Largest, typename SumOf, typename OutOf>
  static __device__ __forceinline__ void end(typename C::Y *to, float *parts, unsigned *counter,
                                             int split, const Given &given, Largest &&largest,
                                             SumOf &&sumOf, OutOf &&outOf) {
    auto store = [&](int i, float o, float sum) {
      float v[1] = {sum > 0.0f ? o / sum : 0.0f};
      given.apply(v);
      to[i] = fromFloat<typename C::Y>(v[0]);
    };
    // Element i from what the splits have: ofHead(split, 0 or 1) is its maximum or its sum.
    auto merge = [&](int i, auto &&ofHead, auto &&ofElement) {
      float top = negativeInfinity(), sum = 0.0f, o = 0.0f;
#pragma unroll
      for (int s = 0; s < C::Splits; s++)
        top = fmaxf(top, ofHead(s, 0));
#pragma unroll
      for (int s = 0; s < C::Splits; s++) {
        const float from = ofHead(s, 0);
        const float weight = from == negativeInfinity() ? 0.0f : exp2f(from - top);
        sum += ofHead(s, 1) * weight;
        o += ofElement(s) * weight;
      }
      store(i, o, sum);
    };
    if constexpr (C::Splits == 1) {
      for (int i = threadIdx.x; i < elements; i += threads)
        store(i, outOf(i / D, i % D), sumOf(i / D));
    } else if constexpr (cluster) {
#if __CUDA_ARCH__ >= 900
      asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); // all have begun
      Received &r = received();
      for (int i = threadIdx.x; i < C::Splits * group; i += threads) {
        const int head = i % group;
        sendToCluster<2>(r.head[split][head], {largest(head), sumOf(head)}, i / group, r.arrived);
      }
      for (int i = threadIdx.x; i < elements; i += threads)
        sendToCluster<1>(&r.out[split][i % share], {outOf(i / D, i % D)}, i / share, r.arrived);
      r.arrived.wait(0);
#pragma unroll 1
      for (int at = threadIdx.x; at < share && split * share + at < elements; at += threads) {
        const int i = split * share + at;
        merge(
            i, [&](int s, int which) { return r.head[s][i / D][which]; },
            [&](int s) { return r.out[s][at]; });
      }
#endif
    } else {
      auto part = [&](int head, int s) { return parts + (head * C::Splits + s) * (D + 2); };
      for (int i = threadIdx.x; i < elements; i += threads)
        __stcg(part(i / D, split) + 2 + i % D, outOf(i / D, i % D));
      if (threadIdx.x < group) {
        __stcg(part(threadIdx.x, split), largest(threadIdx.x));
        __stcg(part(threadIdx.x, split) + 1, sumOf(threadIdx.x));
      }
      if (!arriveLast(counter, C::Splits))
        return;
#pragma unroll 1
      for (int i = threadIdx.x; i < elements; i += threads)
        merge(
            i, [&](int s, int which) { return __ldcg(part(i / D, s) + which); },
            [&](int s) { return __ldcg(part(i / D, s) + 2 + i % D); });
    }
  }
};

} // namespace gpt2c
