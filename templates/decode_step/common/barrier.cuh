// How persistent kernels wait for barriers, and copies that complete on them.
#pragma once

#include "templates/decode_step/common/channel.cuh"
#include "templates/device/mbarrier.cuh"

namespace gpt2c::persistent {
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void barrierWait(const Barrier &b, unsigned parity) {
  if (b.tryWait(parity))
    return;
  Patience patience;
  do
    patience.spend();
  while (!b.tryWait(parity));
}
/// The same for barriers that have seldom been passed already: nothing stands ahead of the loop.
__device__ __forceinline__ void barrierWaitLong(const Barrier &b, unsigned parity) {
  Patience patience;
  bool done;
  do {
    done = b.tryWait(parity);
    patience.spend();
  } while (!done);
}
/// Copies bytes (a multiple of 16) to shared memory; they arrive at b. They leave L2 before all
/// else: a step reads more weights than L2 holds, and channels, biases and keys should stay.
__device__ __forceinline__ void copyBulk(void *shared, const void *global, unsigned bytes,
                                         const Barrier &b) {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1], %2, [%3], %4;" ::"r"(sharedAddress(shared)),
               "l"(global), "r"(bytes), "r"(b.address()), "l"(policy)
               : "memory");
}
/// Brings bytes from p on, a multiple of 16, into L2.
__device__ __forceinline__ void prefetchBulk(const void *p, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}
#endif

} // namespace gpt2c::persistent
