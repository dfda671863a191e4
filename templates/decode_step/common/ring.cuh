// Where a warp is in a ring of slots.
#pragma once

#include "templates/decode_step/common/ring.h"

namespace gpt2c::persistent {
#if __CUDA_ARCH__ >= 900

/// The next slot, and the parity of its lap, which is that of the phase of its barriers.
template <int Slots> struct RingPlace {
  int slot = 0;
  unsigned lap = 0;

  /// The slot i behind the next one, i < Slots, and its lap.
  __device__ __forceinline__ int slotAt(int i) const {
    return slot + i >= Slots ? slot + i - Slots : slot + i;
  }
  __device__ __forceinline__ unsigned lapAt(int i) const {
    return slot + i >= Slots ? lap ^ 1 : lap;
  }
  /// The same for any i.
  __device__ __forceinline__ int farSlotAt(int i) const { return (unsigned)(slot + i) % Slots; }
  __device__ __forceinline__ unsigned farLapAt(int i) const {
    return lap ^ ((unsigned)(slot + i) / Slots & 1);
  }
  __device__ __forceinline__ void advance(int n) {
    lap = farLapAt(n);
    slot = farSlotAt(n);
  }
  /// By at most Slots.
  __device__ __forceinline__ void advanceNear(int n) {
    lap = lapAt(n);
    slot = slotAt(n);
  }
  /// By one; whether a lap begins.
  __device__ __forceinline__ bool next() {
    if (++slot != Slots)
      return false;
    slot = 0;
    lap ^= 1;
    return true;
  }
};
#endif

} // namespace gpt2c::persistent
