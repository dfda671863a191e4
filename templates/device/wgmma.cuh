// wgmma: multiplication by a warpgroup (four neighbouring warps, the first a multiple of 4), sm_90a
// only. fp16, bf16 or fp8 in, fp32 accumulators, or int8 in, int32 accumulators c[Tiles][4]: lane l
// of warp w holds rows 16 w + l / 4 and + 8, columns 8 j + 2 (l % 4) and the next.
//
// Of fp8 an instruction adds up its products and what was there with 13 bits behind the leading one
// of the largest: sums of many have to leave for other registers on the way.
//
// Shared operands lie in rows of 128 bytes (64 halves, 128 int8) in the 128-byte swizzle: 16-byte
// unit u of row r lies at unit u ^ (r mod 8). A k-tile begins at a multiple of 1 KiB.
#pragma once

#include "templates/device/mma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace gpt2c {

/// An operand whose rows run along K. The next 32 bytes of K, one instruction, are 2 further on.
__device__ __forceinline__ u64 swizzledOperand(unsigned shared) {
  return (u64)(shared >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
__device__ __forceinline__ u64 swizzledOperand(const void *shared) {
  return swizzledOperand(sharedAddress(shared));
}
__device__ __forceinline__ void wgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Pending> __device__ __forceinline__ void wgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Sets the registers of each thread of this warpgroup to Count. The kernel has to state its
/// threads and blocks (__launch_bounds__(t, b)).
template <int Count> __device__ __forceinline__ void claimRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count> __device__ __forceinline__ void releaseRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

// Accumulators and their registers, 16 columns at a time.
#define GPT2C_ACC(T, j)                                                                            \
  T(c[j][0]), T(c[j][1]), T(c[j][2]), T(c[j][3]), T(c[j + 1][0]), T(c[j + 1][1]), T(c[j + 1][2]),  \
      T(c[j + 1][3])
#define GPT2C_ACC_LAST(T, j) T(c[j][0]), T(c[j][1]), T(c[j][2]), T(c[j][3])
#define GPT2C_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define GPT2C_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define GPT2C_R16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define GPT2C_R24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define GPT2C_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define GPT2C_R40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define GPT2C_R48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define GPT2C_R56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define GPT2C_R64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define GPT2C_R72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define GPT2C_R80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define GPT2C_R88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define GPT2C_R96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define GPT2C_R104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define GPT2C_R112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define GPT2C_R120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define GPT2C_REGS_32 GPT2C_R0 GPT2C_R8
#define GPT2C_REGS_48 GPT2C_REGS_32 GPT2C_R16
#define GPT2C_REGS_64 GPT2C_REGS_48 GPT2C_R24
#define GPT2C_REGS_80 GPT2C_REGS_64 GPT2C_R32
#define GPT2C_REGS_96 GPT2C_REGS_80 GPT2C_R40
#define GPT2C_REGS_112 GPT2C_REGS_96 GPT2C_R48
#define GPT2C_REGS_128 GPT2C_REGS_112 GPT2C_R56
#define GPT2C_REGS_144 GPT2C_REGS_128 GPT2C_R64
#define GPT2C_REGS_160 GPT2C_REGS_144 GPT2C_R72
#define GPT2C_REGS_176 GPT2C_REGS_160 GPT2C_R80
#define GPT2C_REGS_192 GPT2C_REGS_176 GPT2C_R88
#define GPT2C_REGS_200 GPT2C_REGS_192 ", %96, %97, %98, %99"
#define GPT2C_REGS_208 GPT2C_REGS_192 GPT2C_R96
#define GPT2C_REGS_224 GPT2C_REGS_208 GPT2C_R104
#define GPT2C_REGS_240 GPT2C_REGS_224 GPT2C_R112
#define GPT2C_REGS_256 GPT2C_REGS_240 GPT2C_R120
#define GPT2C_ACC_32(T) GPT2C_ACC(T, 0), GPT2C_ACC(T, 2)
#define GPT2C_ACC_48(T) GPT2C_ACC_32(T), GPT2C_ACC(T, 4)
#define GPT2C_ACC_64(T) GPT2C_ACC_48(T), GPT2C_ACC(T, 6)
#define GPT2C_ACC_80(T) GPT2C_ACC_64(T), GPT2C_ACC(T, 8)
#define GPT2C_ACC_96(T) GPT2C_ACC_80(T), GPT2C_ACC(T, 10)
#define GPT2C_ACC_112(T) GPT2C_ACC_96(T), GPT2C_ACC(T, 12)
#define GPT2C_ACC_128(T) GPT2C_ACC_112(T), GPT2C_ACC(T, 14)
#define GPT2C_ACC_144(T) GPT2C_ACC_128(T), GPT2C_ACC(T, 16)
#define GPT2C_ACC_160(T) GPT2C_ACC_144(T), GPT2C_ACC(T, 18)
#define GPT2C_ACC_176(T) GPT2C_ACC_160(T), GPT2C_ACC(T, 20)
#define GPT2C_ACC_192(T) GPT2C_ACC_176(T), GPT2C_ACC(T, 22)
#define GPT2C_ACC_200(T) GPT2C_ACC_192(T), GPT2C_ACC_LAST(T, 24)
#define GPT2C_ACC_208(T) GPT2C_ACC_192(T), GPT2C_ACC(T, 24)
#define GPT2C_ACC_224(T) GPT2C_ACC_208(T), GPT2C_ACC(T, 26)
#define GPT2C_ACC_240(T) GPT2C_ACC_224(T), GPT2C_ACC(T, 28)
#define GPT2C_ACC_256(T) GPT2C_ACC_240(T), GPT2C_ACC(T, 30)
#define GPT2C_WGMMA(N, TYPES, T, FLAGS, A, B, D)                                                   \
  asm volatile("{\n\t.reg .pred p;\n\t"                                                            \
               "setp.ne.b32 p, %" D ", 0;\n\t"                                                     \
               "wgmma.mma_async.sync.aligned.m64n" #N TYPES " {" GPT2C_REGS_##N                    \
               "}, %" A ", %" B ", p" FLAGS ";\n\t}"                                               \
               : GPT2C_ACC_##N(T)                                                                  \
               : "l"(a), "l"(b), "r"((int)add))
#define GPT2C_WGMMA_ANY(...)                                                                       \
  if constexpr (Tiles == 4)                                                                        \
    GPT2C_WGMMA(32, __VA_ARGS__, "16", "17", "18");                                                \
  else if constexpr (Tiles == 6)                                                                   \
    GPT2C_WGMMA(48, __VA_ARGS__, "24", "25", "26");                                                \
  else if constexpr (Tiles == 8)                                                                   \
    GPT2C_WGMMA(64, __VA_ARGS__, "32", "33", "34");                                                \
  else if constexpr (Tiles == 10)                                                                  \
    GPT2C_WGMMA(80, __VA_ARGS__, "40", "41", "42");                                                \
  else if constexpr (Tiles == 12)                                                                  \
    GPT2C_WGMMA(96, __VA_ARGS__, "48", "49", "50");                                                \
  else if constexpr (Tiles == 14)                                                                  \
    GPT2C_WGMMA(112, __VA_ARGS__, "56", "57", "58");                                               \
  else if constexpr (Tiles == 16)                                                                  \
    GPT2C_WGMMA(128, __VA_ARGS__, "64", "65", "66");                                               \
  else if constexpr (Tiles == 18)                                                                  \
    GPT2C_WGMMA(144, __VA_ARGS__, "72", "73", "74");                                               \
  else if constexpr (Tiles == 20)                                                                  \
    GPT2C_WGMMA(160, __VA_ARGS__, "80", "81", "82");                                               \
  else if constexpr (Tiles == 22)                                                                  \
    GPT2C_WGMMA(176, __VA_ARGS__, "88", "89", "90");                                               \
  else if constexpr (Tiles == 24)                                                                  \
    GPT2C_WGMMA(192, __VA_ARGS__, "96", "97", "98");                                               \
  else if constexpr (Tiles == 25)                                                                  \
    GPT2C_WGMMA(200, __VA_ARGS__, "100", "101", "102");                                            \
  else if constexpr (Tiles == 26)                                                                  \
    GPT2C_WGMMA(208, __VA_ARGS__, "104", "105", "106");                                            \
  else if constexpr (Tiles == 28)                                                                  \
    GPT2C_WGMMA(224, __VA_ARGS__, "112", "113", "114");                                            \
  else if constexpr (Tiles == 30)                                                                  \
    GPT2C_WGMMA(240, __VA_ARGS__, "120", "121", "122");                                            \
  else if constexpr (Tiles == 32)                                                                  \
    GPT2C_WGMMA(256, __VA_ARGS__, "128", "129", "130");                                            \
  else                                                                                             \
    static_assert(Tiles == 0, "wgmma of this width is not listed")
#define GPT2C_FLOAT(r) "+f"(r)
#define GPT2C_INT(r) "+r"(r)

/// c[64,N] (+)= a[64,16] * b[N,16]^T, N = 8 Tiles, of two-byte floats T, or of fp8 a[64,32] and
/// b[N,32]; without `add`, c is overwritten.
template <typename T = __half, int Tiles>
__device__ __forceinline__ void wgmma(float (&c)[Tiles][4], u64 a, u64 b, bool add = true) {
  if constexpr (Operand<T>::bits == 8) {
    GPT2C_WGMMA_ANY("k32.f32.e4m3.e4m3", GPT2C_FLOAT, ", 1, 1");
  } else if constexpr (Mma<T>::bfloat) {
    GPT2C_WGMMA_ANY("k16.f32.bf16.bf16", GPT2C_FLOAT, ", 1, 1, 0, 0");
  } else {
    GPT2C_WGMMA_ANY("k16.f32.f16.f16", GPT2C_FLOAT, ", 1, 1, 0, 0");
  }
}
/// The same for int8, a[64,32] and b[N,32].
template <typename = void, int Tiles>
__device__ __forceinline__ void wgmma(int (&c)[Tiles][4], u64 a, u64 b, bool add = true) {
  GPT2C_WGMMA_ANY("k32.s32.s8.s8", GPT2C_INT, "");
}

#define GPT2C_REGS_8 "%0, %1, %2, %3"
#define GPT2C_REGS_16 GPT2C_R0
#define GPT2C_ACC_8(T) T(c[0][0]), T(c[0][1]), T(c[0][2]), T(c[0][3])
#define GPT2C_ACC_16(T) GPT2C_ACC(T, 0)
#define GPT2C_WGMMA_ROWS(N, TYPES, A, B, D)                                                        \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" D ", 0;\n\t"                               \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES " {" GPT2C_REGS_##N         \
               "}, {" A "}, %" B ", p, 1, 1, 0;\n\t}"                                              \
               : GPT2C_ACC_##N(GPT2C_FLOAT)                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add))

/// c[64,N] (+)= a[64,16] * b[N,16]^T, N = 8 Tiles, of two-byte floats T: a in registers as
/// mma.m16n8k16 has it, in warp w of the warpgroup rows 16 w on; without `add`, c is overwritten.
template <typename T = __half, int Tiles>
__device__ __forceinline__ void wgmmaRows(float (&c)[Tiles][4], const unsigned (&a)[4], u64 b,
                                          bool add) {
  if constexpr (Mma<T>::bfloat && Tiles == 8)
    GPT2C_WGMMA_ROWS(64, "bf16.bf16", "%32, %33, %34, %35", "36", "37");
  else if constexpr (Mma<T>::bfloat)
    static_assert(Tiles == 0, "wgmma of this width is not listed");
  else if constexpr (Tiles == 1)
    GPT2C_WGMMA_ROWS(8, "f16.f16", "%4, %5, %6, %7", "8", "9");
  else if constexpr (Tiles == 2)
    GPT2C_WGMMA_ROWS(16, "f16.f16", "%8, %9, %10, %11", "12", "13");
  else if constexpr (Tiles == 4)
    GPT2C_WGMMA_ROWS(32, "f16.f16", "%16, %17, %18, %19", "20", "21");
  else if constexpr (Tiles == 8)
    GPT2C_WGMMA_ROWS(64, "f16.f16", "%32, %33, %34, %35", "36", "37");
  else if constexpr (Tiles == 16)
    GPT2C_WGMMA_ROWS(128, "f16.f16", "%64, %65, %66, %67", "68", "69");
  else
    static_assert(Tiles == 0, "wgmma of this width is not listed");
}
#define GPT2C_WGMMA_ACROSS(TYPES)                                                                  \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES " {" GPT2C_REGS_64              \
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                         \
               : GPT2C_ACC_64(GPT2C_FLOAT)                                                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
/// c[64,64] += a[64,16] * b[16,64]: a in registers as mma.m16n8k16 has it, b 16 rows in shared
/// memory.
template <typename T = __half>
__device__ __forceinline__ void wgmmaAcross(float (&c)[8][4], const unsigned (&a)[4], u64 b) {
  if constexpr (Mma<T>::bfloat)
    GPT2C_WGMMA_ACROSS("bf16.bf16");
  else
    GPT2C_WGMMA_ACROSS("f16.f16");
}

// a[64,8] in registers, b[N,8]^T in shared memory; the four of a, b and `add` follow the
// accumulators.
#define GPT2C_REGS_72 GPT2C_REGS_64 ", %32, %33, %34, %35"
#define GPT2C_ACC_72(T) GPT2C_ACC_64(T), T(c[8][0]), T(c[8][1]), T(c[8][2]), T(c[8][3])
#define GPT2C_WGMMA_TF32(N, A, B, D)                                                               \
  asm volatile("{\n\t.reg .pred p;\n\t"                                                            \
               "setp.ne.b32 p, %" D ", 0;\n\t"                                                     \
               "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" GPT2C_REGS_##N          \
               "}, {" A "}, %" B ", p, 1, 1;\n\t}"                                                 \
               : GPT2C_ACC_##N(GPT2C_FLOAT)                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add))

/// c[64,N] (+)= a[64,8] * b[N,8]^T in TF32, N = 8 Tiles: a as mma.m16n8k8 has it, in warp w of the
/// warpgroup rows 16 w on; without `add`, c is overwritten.
template <int Tiles>
__device__ __forceinline__ void wgmmaTf32(float (&c)[Tiles][4], const unsigned (&a)[4], u64 b,
                                          bool add) {
  if constexpr (Tiles == 6)
    GPT2C_WGMMA_TF32(48, "%24, %25, %26, %27", "28", "29");
  else if constexpr (Tiles == 8)
    GPT2C_WGMMA_TF32(64, "%32, %33, %34, %35", "36", "37");
  else if constexpr (Tiles == 9)
    GPT2C_WGMMA_TF32(72, "%36, %37, %38, %39", "40", "41");
  else if constexpr (Tiles == 12)
    GPT2C_WGMMA_TF32(96, "%48, %49, %50, %51", "52", "53");
  else if constexpr (Tiles == 16)
    GPT2C_WGMMA_TF32(128, "%64, %65, %66, %67", "68", "69");
  else
    static_assert(Tiles == 0, "wgmma of this width is not listed");
}

/// Makes this thread's stores to shared memory visible to wgmma and ends its loads from there
/// before what TMA writes; a barrier has to follow.
__device__ __forceinline__ void fenceShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#undef GPT2C_WGMMA_TF32
#undef GPT2C_WGMMA_ACROSS
#undef GPT2C_WGMMA_ROWS
#undef GPT2C_ACC_16
#undef GPT2C_ACC_8
#undef GPT2C_REGS_16
#undef GPT2C_REGS_8
#undef GPT2C_ACC_72
#undef GPT2C_REGS_72
#undef GPT2C_INT
#undef GPT2C_FLOAT
#undef GPT2C_WGMMA_ANY
#undef GPT2C_WGMMA
#undef GPT2C_ACC_256
#undef GPT2C_ACC_240
#undef GPT2C_ACC_224
#undef GPT2C_ACC_208
#undef GPT2C_ACC_200
#undef GPT2C_ACC_192
#undef GPT2C_ACC_176
#undef GPT2C_ACC_160
#undef GPT2C_ACC_144
#undef GPT2C_ACC_128
#undef GPT2C_ACC_112
#undef GPT2C_ACC_96
#undef GPT2C_ACC_80
#undef GPT2C_ACC_64
#undef GPT2C_ACC_48
#undef GPT2C_ACC_32
#undef GPT2C_REGS_256
#undef GPT2C_REGS_240
#undef GPT2C_REGS_224
#undef GPT2C_REGS_208
#undef GPT2C_REGS_200
#undef GPT2C_REGS_192
#undef GPT2C_REGS_176
#undef GPT2C_REGS_160
#undef GPT2C_REGS_144
#undef GPT2C_REGS_128
#undef GPT2C_REGS_112
#undef GPT2C_REGS_96
#undef GPT2C_REGS_80
#undef GPT2C_REGS_64
#undef GPT2C_REGS_48
#undef GPT2C_REGS_32
#undef GPT2C_R120
#undef GPT2C_R112
#undef GPT2C_R104
#undef GPT2C_R96
#undef GPT2C_R88
#undef GPT2C_R80
#undef GPT2C_R72
#undef GPT2C_R64
#undef GPT2C_R56
#undef GPT2C_R48
#undef GPT2C_R40
#undef GPT2C_R32
#undef GPT2C_R24
#undef GPT2C_R16
#undef GPT2C_R8
#undef GPT2C_R0
#undef GPT2C_ACC_LAST
#undef GPT2C_ACC

/// c (+)= a * b^T for a k-tile of 128 bytes of K, as one group that wgmmaWait waits for. T: of a
/// and b where sums are floats.
template <typename T = __half, typename Sum, int Tiles>
__device__ __forceinline__ void multiplyKTile(Sum (&c)[Tiles][4], u64 operandA, u64 operandB,
                                              bool add) {
  wgmmaFence();
#pragma unroll
  for (int kk = 0; kk < 4; kk++) // 32 bytes are two 16-byte units
    wgmma<T>(c, operandA + kk * 2, operandB + kk * 2, add || kk > 0);
  wgmmaCommit();
}
/// The same for 128 rows, a0 and a1.
template <typename T = __half, typename Sum, int Tiles>
__device__ __forceinline__ void multiplyKTile(Sum (&c0)[Tiles][4], Sum (&c1)[Tiles][4],
                                              u64 operand0, u64 operand1, u64 operandB, bool add) {
  wgmmaFence();
#pragma unroll
  for (int kk = 0; kk < 4; kk++) {
    wgmma<T>(c0, operand0 + kk * 2, operandB + kk * 2, add || kk > 0);
    wgmma<T>(c1, operand1 + kk * 2, operandB + kk * 2, add || kk > 0);
  }
  wgmmaCommit();
}
template <typename Sum, int Tiles>
__device__ __forceinline__ void multiplyKTile(Sum (&c0)[Tiles][4], Sum (&c1)[Tiles][4],
                                              const void *a0, const void *a1, const void *b,
                                              bool add) {
  multiplyKTile(c0, c1, swizzledOperand(a0), swizzledOperand(a1), swizzledOperand(b), add);
}

} // namespace gpt2c

#endif
