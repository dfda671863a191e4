// What a storage type of ir/Formats.def is to a kernel: how its elements become numbers.
#pragma once

#include <cuda_fp16.h>

namespace gpt2c {

using i8 = signed char;

/// Bytes 0, 1 and 2, 3 of a word as pairs of halves.
struct HalfPairs {
  unsigned low, high;
};

/// Of elements T that are packed without loss: templates/device/packed.cuh.
template <typename T> struct PackedGroup;

/// `scaled`: elements are steps of a scale that stands beside them, for a row, a column, a group or
/// all; else they are the values themselves. What is scaled has a byte, and
///   halves(word)  four elements as halves, exactly
///   floats(word)  the same as floats
///   Sum           what tensor cores add up products of two of them in
/// and a toFloat() of one. `each`: elements in a T; of more than one see Int4x8.
template <typename T> struct Operand {
  static constexpr int bits = 8 * (int)sizeof(T), each = 1;
  static constexpr bool scaled = false;
};

template <> struct Operand<i8> {
  static constexpr int bits = 8, each = 1;
  static constexpr bool scaled = true;
  using Sum = int;

  /// A byte with its sign flipped is the low part of the half 1024 + (value + 128).
  static __device__ __forceinline__ HalfPairs halves(unsigned word) {
    const unsigned biased = word ^ 0x80808080u;
    auto pair = [&](unsigned selector) {
      const unsigned magic = __byte_perm(biased, 0x64646464u, selector);
      __half2 v = __hsub2(*reinterpret_cast<const __half2 *>(&magic), __float2half2_rn(1152.0f));
      return *reinterpret_cast<unsigned *>(&v);
    };
    return {pair(0x4140), pair(0x4342)};
  }
  static __device__ __forceinline__ float4 floats(unsigned word) {
    return {(float)(i8)word, (float)(i8)(word >> 8), (float)(i8)(word >> 16),
            (float)((int)word >> 24)};
  }
};

/// E4M3 (ir/Tensor.h).
struct Fp8 {
  unsigned char bits;
};
template <> struct Operand<Fp8> {
  static constexpr int bits = 8, each = 1;
  static constexpr bool scaled = true;
  using Sum = float;

  static __device__ __forceinline__ HalfPairs halves(unsigned word) {
#if __CUDA_ARCH__ >= 890
    HalfPairs pairs;
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\t"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n\tcvt.rn.f16x2.e4m3x2 %1, high;\n\t}"
        : "=r"(pairs.low), "=r"(pairs.high)
        : "r"(word));
    return pairs;
#else
    // The bits of a half that is 2^8 times smaller; of a NaN those of 480.
    auto pair = [&](unsigned selector) {
      const unsigned bytes = __byte_perm(word, 0, selector),
                     small = (bytes & 0x80008000u) | (bytes & 0x7f007f00u) >> 1;
      __half2 v = __hmul2(*reinterpret_cast<const __half2 *>(&small), __float2half2_rn(256.0f));
      return *reinterpret_cast<unsigned *>(&v);
    };
    return {pair(0x1404), pair(0x3424)};
#endif
  }
  static __device__ __forceinline__ float4 floats(unsigned word) {
    const HalfPairs pairs = halves(word);
    const float2 low = __half22float2(*reinterpret_cast<const __half2 *>(&pairs.low)),
                 high = __half22float2(*reinterpret_cast<const __half2 *>(&pairs.high));
    return {low.x, low.y, high.x, high.y};
  }
};
__device__ __forceinline__ float toFloat(Fp8 v) { return Operand<Fp8>::floats(v.bits).x; }

/// Eight numbers of four bits in two's complement, as ir/Tensor.h has them: a mask of the word, or
/// of it shifted by a byte, leaves two neighbours 16 bits apart.
struct Int4x8 {
  unsigned word;
};
template <> struct Operand<Int4x8> {
  static constexpr int bits = 4, each = 8;
  static constexpr bool scaled = true;

  /// Eight elements as pairs of T, __half or __nv_bfloat16, each less the zero point that `bias`
  /// has: exactly, for zero points from -8 to 7.
  template <typename T> static __device__ __forceinline__ uint4 pairs(unsigned word, unsigned bias);
  /// What pairs() takes for a zero point.
  template <typename T> static __device__ __forceinline__ unsigned biasOf(int zero);
  /// Element i as a number.
  static __device__ __forceinline__ float at(unsigned word, int i) {
    return (float)((int)(word << (28 - 4 * (i / 2 + 4 * (i % 2)))) >> 28);
  }
};
/// word & mask ^ magic in one instruction: of two immediate operands compilers make two of it.
template <unsigned Mask, unsigned Magic> __device__ __forceinline__ unsigned masked(unsigned word) {
  unsigned out;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(out) : "r"(word), "n"(Mask), "n"(Magic));
  return out;
}
/// The four bits with their sign flipped are low bits of the half 1024 + (value + 8), or in the
/// next four bits of 1024 + 16 (value + 8).
template <>
__device__ __forceinline__ uint4 Operand<Int4x8>::pairs<__half>(unsigned word, unsigned bias) {
  const __half2 low = *reinterpret_cast<const __half2 *>(&bias),
                sixteenth = __float2half2_rn(0.0625f),
                high = __hsub2(__float2half2_rn(960.0f), low); // -(72 + zero) of 1032 + zero
  auto first = [&](unsigned w) {
    const unsigned magic = masked<0x000f000f, 0x64086408>(w);
    __half2 v = __hsub2(*reinterpret_cast<const __half2 *>(&magic), low);
    return *reinterpret_cast<unsigned *>(&v);
  };
  auto second = [&](unsigned w) {
    const unsigned magic = masked<0x00f000f0, 0x64806480>(w);
    __half2 v = __hfma2(*reinterpret_cast<const __half2 *>(&magic), sixteenth, high);
    return *reinterpret_cast<unsigned *>(&v);
  };
  const unsigned behind = word >> 8;
  return {first(word), second(word), first(behind), second(behind)};
}
template <> __device__ __forceinline__ unsigned Operand<Int4x8>::biasOf<__half>(int zero) {
  return 0x64086408u + (unsigned)zero * 0x00010001u; // of the half 1032 + zero, twice
}

} // namespace gpt2c
