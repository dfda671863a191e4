// Barriers in shared memory that threads arrive at and that copies complete on: from sm_90 on.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

/// Its phases have parity 0, 1, 0, ... It has a place in shared memory on any architecture.
struct Barrier {
  u64 state;

#if __CUDA_ARCH__ >= 900
  __device__ __forceinline__ unsigned address() const { return sharedAddress(&state); }
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  /// Arrives, and makes the phase wait for `bytes` more of bulk copies.
  __device__ __forceinline__ void expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void arrive() const { arriveAt(address()); }
  __device__ __forceinline__ static void arriveAt(unsigned address) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address) : "memory");
  }
  __device__ __forceinline__ void arrive(int times) const {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(address()), "r"(times) : "memory");
  }
  /// Arrives when the thread's asynchronous copies of before have.
  __device__ __forceinline__ void arriveBehindCopies() const {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address()) : "memory");
  }
  /// Waits for the end of the phase of this parity.
  __device__ __forceinline__ void wait(int parity) const { waitAt(address(), parity); }
  __device__ __forceinline__ static void waitAt(unsigned address, int parity) {
    asm volatile("{\n\t.reg .pred done;\n"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t}" ::"r"(address),
                 "r"(parity)
                 : "memory");
  }
  /// Whether that phase has ended.
  __device__ __forceinline__ bool test(unsigned parity) const {
    unsigned done;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(address()), "r"(parity)
                 : "memory");
    return done;
  }
  /// The same, but it may wait a while.
  __device__ __forceinline__ bool tryWait(unsigned parity) const {
    unsigned done;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(address()), "r"(parity)
                 : "memory");
    return done;
  }
#endif
};

#if __CUDA_ARCH__ >= 900
/// Makes initialised barriers visible to TMA; a barrier of the block has to follow.
__device__ __forceinline__ void fenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
#endif

} // namespace gpt2c
