// Channels of a persistent kernel, through which blocks pass values on; see stages/stages.cuh.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c::persistent {

/// Counts the rounds of a wait. No wait takes seconds unless the kernel is wrong: better an error
/// than a hang.
struct Patience {
  unsigned rounds = 0;
  __device__ __forceinline__ void spend() {
    if (++rounds > 1u << 25)
      __trap();
  }
};

#if __CUDA_ARCH__ >= 900
/// Orders memory among all blocks, without the global order that __threadfence() makes.
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
/// Words of a channel, or of another block's state: never from L1.
__device__ __forceinline__ unsigned loadWord(const void *p) {
  unsigned v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ u64 loadPair(const void *p) {
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
/// What others stored before such a word is seen behind it.
__device__ __forceinline__ u64 acquirePair(const void *p) {
  u64 v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
/// Two constants, loaded here: a load by the read-only path would move down to their use, past the
/// barrier.
__device__ __forceinline__ float2 loadEarly(const float *p) {
  float2 v;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
  return v;
}
/// 1 / sqrt(x) of a normal number in one instruction.
__device__ __forceinline__ float inverseRoot(float x) {
  float v;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x));
  return v;
}
/// v stays where `valid` is false.
__device__ __forceinline__ void loadWord(unsigned &v, const void *p, bool valid) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t"
               "@p ld.relaxed.gpu.global.u32 %0, [%1];\n\t}"
               : "+r"(v)
               : "l"(p), "r"((unsigned)valid)
               : "memory");
}
__device__ __forceinline__ void loadPair(u64 &v, const void *p, bool valid) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t"
               "@p ld.relaxed.gpu.global.u64 %0, [%1];\n\t}"
               : "+l"(v)
               : "l"(p), "r"((unsigned)valid)
               : "memory");
}
/// A group: all of its words are written or none, as aligned accesses of 16 bytes are not divided
/// on these architectures. v stays where `valid` is false.
__device__ __forceinline__ void loadGroup(uint4 &v, const void *p, bool valid) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t"
               "@p ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(p), "r"((unsigned)valid)
               : "memory");
}
__device__ __forceinline__ bool written(const uint4 &group) { return group.w != 0; }

/// A word of a channel that holds a: a zero becomes -0.
__device__ __forceinline__ unsigned channelWord(float a) {
  const unsigned bits = __float_as_uint(a);
  return bits == 0 ? 0x80000000u : bits;
}
__device__ __forceinline__ unsigned channelWord(float a, float b) {
  const unsigned bits = packHalves(a, b);
  return bits == 0 ? 0x80000000u : bits;
}
__device__ __forceinline__ void publishGroup(void *p, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
/// For words that are zero: reductions are seen sooner than stores.
__device__ __forceinline__ void contributeWord(void *p, unsigned v) {
  asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ void contributePair(void *p, u64 v) {
  asm volatile("red.relaxed.gpu.global.or.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ __forceinline__ void publishPair(void *p, u64 v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

/// A group of fp16 in the order of its elements, or back.
__device__ __forceinline__ uint4 exchanged(uint4 group) {
  return {group.x, group.z, group.y, group.w};
}
/// Where a value of a channel is written: to every copy of it.
struct Destination {
  char *first;
  int bytes, copies; ///< from copy to copy

  __device__ __forceinline__ void store(i64 at, const uint4 &group, int lane, int lanes) const {
#pragma unroll 4
    for (int copy = lane; copy < copies; copy += lanes)
      publishGroup(first + at + copy * bytes, group);
  }
};
/// Publishes elements `at` and following of a row of which lanes that follow each other hold V
/// neighbours each. All lanes of a group of 16 bytes take part, and all lanes of the warp call.
template <int V>
__device__ __forceinline__ void publish(const Destination &to, __half, i64 at, const float (&v)[V],
                                        bool valid) {
  constexpr int lanes = 8 / V;
  const int lane = threadIdx.x % lanes, first = threadIdx.x % 32 - lane;
  uint4 group;
  const unsigned a = channelWord(v[0], v[1]);
  group.x = __shfl_sync(fullWarp, a, first);
  if constexpr (V == 2) {
    group.z = __shfl_sync(fullWarp, a, first + 1);
    group.y = __shfl_sync(fullWarp, a, first + 2);
    group.w = __shfl_sync(fullWarp, a, first + 3);
  } else {
    const unsigned b = channelWord(v[2], v[3]);
    group.z = __shfl_sync(fullWarp, b, first);
    group.y = __shfl_sync(fullWarp, a, first + 1);
    group.w = __shfl_sync(fullWarp, b, first + 1);
  }
  if (valid)
    to.store((at - lane * V) * 2, group, lane, lanes);
}
template <int V>
__device__ __forceinline__ void publish(const Destination &to, float, i64 at, const float (&v)[V],
                                        bool valid) {
  constexpr int lanes = 4 / V;
  const int lane = threadIdx.x % lanes, first = threadIdx.x % 32 - lane;
  uint4 group;
  const unsigned a = channelWord(v[0]), b = channelWord(v[1]);
  if constexpr (V == 2) {
    group.x = __shfl_sync(fullWarp, a, first);
    group.y = __shfl_sync(fullWarp, b, first);
    group.z = __shfl_sync(fullWarp, a, first + 1);
    group.w = __shfl_sync(fullWarp, b, first + 1);
  } else {
    group = {a, b, channelWord(v[2]), channelWord(v[3])};
  }
  if (valid)
    to.store((at - lane * V) * 4, group, lane, lanes);
}
#endif

} // namespace gpt2c::persistent
