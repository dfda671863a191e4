// Barriers in shared memory, and copies that complete at them, for persistent kernels.
#pragma once

#include "templates/decode_step/common/channel.cuh"

namespace gpt2c::persistent {
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void barrierInit(u64 *b, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(b)), "r"(count)
               : "memory");
}
__device__ __forceinline__ void barrierArrive(u64 *b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(b)) : "memory");
}
__device__ __forceinline__ void barrierArrive(u64 *b, int times) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(b)), "r"(times)
               : "memory");
}
__device__ __forceinline__ void barrierExpect(u64 *b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(b)),
               "r"(bytes)
               : "memory");
}
/// Whether barrierWait() would go on at once.
__device__ __forceinline__ bool barrierTest(u64 *b, unsigned parity) {
  unsigned done;
  asm volatile("{\n\t.reg .pred p;\n\t"
               "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
               "selp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(done)
               : "r"(sharedAddress(b)), "r"(parity)
               : "memory");
  return done;
}
/// As that, but it may wait a while.
__device__ __forceinline__ bool barrierTry(u64 *b, unsigned parity) {
  unsigned done;
  asm volatile("{\n\t.reg .pred p;\n\t"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
               "selp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(done)
               : "r"(sharedAddress(b)), "r"(parity)
               : "memory");
  return done;
}
__device__ __forceinline__ void barrierWait(u64 *b, unsigned parity) {
  if (barrierTry(b, parity))
    return;
  Patience patience;
  do
    patience.spend();
  while (!barrierTry(b, parity));
}
/// As that, for barriers that have seldom been passed already: nothing stands ahead of the loop.
__device__ __forceinline__ void barrierWaitLong(u64 *b, unsigned parity) {
  Patience patience;
  bool done;
  do {
    done = barrierTry(b, parity);
    patience.spend();
  } while (!done);
}
/// Copies bytes (a multiple of 16) to shared memory; they arrive at b. They leave L2 before all
/// else: a step reads more weights than L2 holds, and channels, biases and keys should stay.
__device__ __forceinline__ void copyBulk(void *shared, const void *global, unsigned bytes, u64 *b) {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1], %2, [%3], %4;" ::"r"(sharedAddress(shared)),
               "l"(global), "r"(bytes), "r"(sharedAddress(b)), "l"(policy)
               : "memory");
}
/// Brings bytes from p on, a multiple of 16, into L2.
__device__ __forceinline__ void prefetchBulk(const void *p, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}
#endif

} // namespace gpt2c::persistent
