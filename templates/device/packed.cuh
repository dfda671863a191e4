// bfloat16 that is packed in 12 bits without loss: runtime/plan/PackedWeight.h.
#pragma once

#include "templates/device/elements_bf16.cuh"

namespace gpt2c {

/// (a & Mask) | b, of which Mask and b may both be immediate: see masked().
template <unsigned Mask> __device__ __forceinline__ unsigned maskedOr(unsigned a, unsigned b) {
  unsigned out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(a), "n"(Mask), "r"(b));
  return out;
}

/// What a group's word says.
template <> struct PackedGroup<__nv_bfloat16> {
  unsigned word = 0;

  /// A pair of what its elements are multiplied by.
  __device__ __forceinline__ unsigned factors() const { return (word >> 24) * 0x00800080u; }
  /// Whether its exceptions, if there are some, are in the list.
  __device__ __forceinline__ bool isListed() const { return (word & 0x7f80) == 0x7f80; }
  /// The number of the first of them, from 1 on; 0: there are none.
  __device__ __forceinline__ unsigned listed() const {
    return (word & 0x8000) | (word & 0x7f) << 8 | (word >> 16 & 0xff);
  }
  /// Eight elements of a row, as pairs: bytes of sign and mantissa, and a word of codes.
  static __device__ __forceinline__ uint4 eight(uint2 bytes, unsigned codes, unsigned factors) {
    const __nv_bfloat162 factor = *reinterpret_cast<const __nv_bfloat162 *>(&factors);
    auto pair = [&](unsigned from, unsigned selector, unsigned shifted) {
      const unsigned exponents = maskedOr<0x07800780>(shifted, 0x38003800),
                     bits = maskedOr<0x807f807f>(__byte_perm(from, 0, selector), exponents);
      const __nv_bfloat162 v = __hmul2(*reinterpret_cast<const __nv_bfloat162 *>(&bits), factor);
      return *reinterpret_cast<const unsigned *>(&v);
    };
    return {pair(bytes.x, 0x1100, codes), pair(bytes.x, 0x3322, codes >> 4),
            pair(bytes.y, 0x1100, codes << 4),
            pair(bytes.y, 0x3322, __funnelshift_r(codes, codes, 8))};
  }
  /// Whether eight elements, number `eighth` of the group, may have exceptions, or those that a
  /// lane has of so many blocks, a power of two that the first one's number divides by.
  __device__ __forceinline__ bool mayHave(unsigned eighth, int blocks) const {
    const unsigned places = (unsigned)(31 & ~((blocks - 1) << 2)) << 19;
    const bool list = (word & 0x7f80) == 0x7f80, here = ((word ^ eighth << 19) & places) == 0,
               some = (word & 0xffffff) != 0x7f80;
    return (list | here) & some; // no branch
  }
  /// Puts the exceptions of v[n], number `eighth` of the group, in their places. `words`: the first
  /// of all groups.
  template <int N>
  __device__ __forceinline__ void mend(uint4 (&v)[N], int n, unsigned eighth,
                                       const unsigned *words) const {
    if ((word & 0xffffff) == 0x7f80)
      return;
    const unsigned *from = words - listed();
    unsigned entry = isListed() ? __ldg(from--) : word | last;
#pragma unroll 1
    while (true) {
      if ((entry >> 19 & 31) == eighth) {
        const unsigned pair = n * 4 + (entry >> 17 & 3),
                       selector = entry >> 16 & 1 ? 0x5410 : 0x3254; // bytes in the place of two
        auto put = [&](unsigned &of, unsigned at) {
          of = pair == at ? __byte_perm(of, entry, selector) : of;
        };
#pragma unroll
        for (int i = 0; i < N; i++) {
          put(v[i].x, 4 * i);
          put(v[i].y, 4 * i + 1);
          put(v[i].z, 4 * i + 2);
          put(v[i].w, 4 * i + 3);
        }
      }
      if ((entry & last) != 0)
        return;
      entry = __ldg(from--);
    }
  }

private:
  static constexpr unsigned last = 1u << 31; ///< of an entry of the list
};

} // namespace gpt2c
