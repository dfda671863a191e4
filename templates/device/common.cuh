// What every template uses: element conversion, vector loads, reductions, asynchronous copies,
// matrix instructions.
//
// A template is a tile function: `tile::name<Config>(pointers, sizes, tile coordinates, ...)`
// computes one tile of one op. The compiler writes a config struct and an `extern "C" __global__`
// wrapper that maps blocks to tiles, so several instances live in one translation unit and another
// wrapper may call the same tile function from a loop.
//
// Contracts shared by all templates: every tensor pointer is 16-byte aligned, tensors are dense and
// row-major unless strides are passed, accumulation is fp32, sums have a fixed order, so equal
// inputs give equal bits.
#pragma once

#include "templates/device/operand.cuh"

#include <cuda_fp16.h>

namespace gpt2c {

using i64 = long long;
using u64 = unsigned long long;

constexpr unsigned fullWarp = 0xffffffffu;

__device__ __forceinline__ float negativeInfinity() { return __int_as_float(0xff800000); }

/// 2^x within 2 units in the last place; what is below 2^-126 becomes 0.
__device__ __forceinline__ float exp2Approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__host__ __device__ constexpr int ceilDiv(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int minInt(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int maxInt(int a, int b) { return a > b ? a : b; }

/// A number as a type, for generic lambdas.
template <int V> struct IntConstant {
  static constexpr int value = V;
};

/// Largest vector width, a power of two of at most `widest`, that divides `n`.
__host__ __device__ constexpr int vectorWidth(int n, int widest) {
  while (widest > 1 && n % widest != 0)
    widest /= 2;
  return widest;
}

/// Largest power of two that is at most `n`, 1 for n < 1.
__host__ __device__ constexpr int floorPowerOfTwo(int n) {
  int p = 1;
  while (2 * p <= n)
    p *= 2;
  return p;
}

/// Elements of T in a 16-byte access.
template <typename T> __host__ __device__ constexpr int elementsPer16Bytes() {
  return 16 / (int)sizeof(T);
}

__device__ __forceinline__ float toFloat(float v) { return v; }
__device__ __forceinline__ float toFloat(int v) { return (float)v; }
__device__ __forceinline__ float toFloat(__half v) { return __half2float(v); }

template <typename T> __device__ __forceinline__ T fromFloat(float v);
template <> __device__ __forceinline__ float fromFloat<float>(float v) { return v; }
template <> __device__ __forceinline__ __half fromFloat<__half>(float v) {
  return __float2half_rn(v);
}

// Vector access
// -------------------------------------------------------------------------------------------------

template <int Bytes> struct RawOf;
template <> struct RawOf<1> {
  using Type = unsigned char;
};
template <> struct RawOf<2> {
  using Type = unsigned short;
};
template <> struct RawOf<4> {
  using Type = unsigned;
};
template <> struct RawOf<8> {
  using Type = uint2;
};
template <> struct RawOf<16> {
  using Type = uint4;
};

/// V elements of T held as one machine word of V * sizeof(T) bytes, at most 16.
template <typename T, int V> struct Pack {
  using Raw = typename RawOf<V *(int)sizeof(T)>::Type;
  Raw raw;
  __device__ __forceinline__ T at(int i) const { return reinterpret_cast<const T *>(&raw)[i]; }
  __device__ __forceinline__ void set(int i, T v) { reinterpret_cast<T *>(&raw)[i] = v; }
  __device__ __forceinline__ float get(int i) const { return toFloat(at(i)); }
};

template <int V, typename T> __device__ __forceinline__ Pack<T, V> loadPack(const T *p) {
  return {*reinterpret_cast<const typename Pack<T, V>::Raw *>(p)};
}
template <int V, typename T> __device__ __forceinline__ void storePack(T *p, Pack<T, V> v) {
  *reinterpret_cast<typename Pack<T, V>::Raw *>(p) = v.raw;
}
/// The same to device memory, by one instruction: where a pack comes from memory and the store is
/// conditional, the compiler makes four stores of storePack.
template <int V, typename T> __device__ __forceinline__ void storeWhole(T *p, Pack<T, V> v) {
  if constexpr (V * sizeof(T) == 16)
    __stcg(reinterpret_cast<uint4 *>(p), v.raw);
  else
    storePack(p, v);
}

/// A load of data that no block of this launch reads again: it leaves no line behind in L1, and
/// stays where it is in the program.
template <int V, typename T> __device__ __forceinline__ Pack<T, V> loadPackStreaming(const T *p) {
  if constexpr (V * sizeof(T) == 16) {
    uint4 r;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "l"(p));
    return {r};
  } else if constexpr (V * sizeof(T) == 8) {
    uint2 r;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(r.x), "=r"(r.y)
                 : "l"(p));
    return {r};
  } else if constexpr (V * sizeof(T) == 4) {
    unsigned r;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(r) : "l"(p));
    return {r};
  } else {
    return loadPack<V>(p);
  }
}
/// 16 bytes that another kernel wrote, from L2; stays where it is in the program.
__device__ __forceinline__ uint4 loadFromL2(const void *p) {
  uint4 r;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(p)
               : "memory");
  return r;
}

template <int V, typename T>
__device__ __forceinline__ void loadFloats(const T *p, float (&out)[V]) {
  constexpr int step = minInt(V, elementsPer16Bytes<T>());
#pragma unroll
  for (int i = 0; i < V; i += step) {
    Pack<T, step> pack = loadPack<step>(p + i);
#pragma unroll
    for (int j = 0; j < step; j++)
      out[i + j] = pack.get(j);
  }
}
template <int V, typename T>
__device__ __forceinline__ void storeFloats(T *p, const float (&in)[V]) {
  constexpr int step = minInt(V, elementsPer16Bytes<T>());
#pragma unroll
  for (int i = 0; i < V; i += step) {
    Pack<T, step> pack;
#pragma unroll
    for (int j = 0; j < step; j++)
      pack.set(j, fromFloat<T>(in[i + j]));
    storePack<step>(p + i, pack);
  }
}

// Reductions
// -------------------------------------------------------------------------------------------------

struct Sum {
  static __device__ __forceinline__ float apply(float a, float b) { return a + b; }
};
struct Max {
  static __device__ __forceinline__ float apply(float a, float b) { return fmaxf(a, b); }
};

/// Reduces over groups of `Lanes` neighbouring lanes; every lane gets the result. `mask`: of the
/// warp's lanes those that are here, whole groups.
template <typename Op, int Lanes = 32>
__device__ __forceinline__ float warpReduce(float v, unsigned mask = fullWarp) {
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2)
    v = Op::apply(v, __shfl_xor_sync(mask, v, offset));
  return v;
}

/// Reduces over a block of Threads threads (a multiple of 32); every thread gets the result.
/// `scratch` holds 32 floats and may be used again at once.
template <typename Op, int Threads>
__device__ __forceinline__ float blockReduce(float v, float *scratch) {
  v = warpReduce<Op>(v);
  if constexpr (Threads > 32) {
    __syncthreads();
    if (threadIdx.x % 32 == 0)
      scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = scratch[0];
#pragma unroll
    for (int i = 1; i < Threads / 32; i++)
      v = Op::apply(v, scratch[i]);
  }
  return v;
}

/// Brings the line at p into L2, ahead of a load that something must be waited for.
__device__ __forceinline__ void prefetch(const void *p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
/// Brings about `bytes` from p on into L2; from sm_90 on. Called by one thread.
__device__ __forceinline__ void prefetchBytes(const void *p, i64 bytes) {
#if __CUDA_ARCH__ >= 900
  const u64 from = (u64)p & ~15ull;
  if (bytes >= 16)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"((int)bytes & ~15));
#endif
}
/// Brings `count` elements into L2, shared by a block of Threads threads.
template <int Threads, typename T>
__device__ __forceinline__ void prefetchVector(const T *p, int count) {
  constexpr int line = 128 / (int)sizeof(T);
  for (int i = threadIdx.x * line; i < count; i += Threads * line)
    prefetch(p + i);
}

// Programmatic dependent launch: nothing before sm_90
// ------------------------------------------------------------

/// Waits until every memory operation of the kernels before this one in the stream is visible. Each
/// tile function calls it in every thread that touches an activation, before that, so a launch may
/// always be a programmatic dependent one. Only weights are read before, and what the kernel right
/// before this one does not write: see releaseSuccessor. Activation pointers are not __restrict__:
/// a load taken for read-only could move up past it.
__device__ __forceinline__ void waitForPredecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel of the stream start once every block has come here; it still waits for this
/// one's memory before it reads. Only called after waitForPredecessor, or where the launch is no
/// dependent one: so when a kernel starts, all kernels but the one right before it have ended. For
/// short kernels that wait for memory: the successor fetches its weights meanwhile; and for those
/// that leave multiprocessors idle. Kernels that do not call it release it as they end, which
/// measures better where blocks need much of a multiprocessor.
__device__ __forceinline__ void releaseSuccessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Thread block clusters: from sm_90 on
// ------------------------------------------------------------------------------

#if __CUDA_ARCH__ >= 900
/// A barrier of all threads of the cluster; shared memory written before is visible after.
__device__ __forceinline__ void clusterBarrier() {
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}
/// The value that block `rank` of the cluster has at `shared`.
__device__ __forceinline__ float loadFromCluster(const float *shared, unsigned rank) {
  unsigned address;
  float v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"((unsigned)__cvta_generic_to_shared(shared)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float4 loadFromCluster(const float4 *shared, unsigned rank) {
  unsigned address;
  float4 v;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"((unsigned)__cvta_generic_to_shared(shared)), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address));
  return v;
}
#endif

// Asynchronous copies to shared memory
// ----------------------------------------------------------------------------

__device__ __forceinline__ unsigned sharedAddress(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
/// Copies 16 bytes, or writes 16 zero bytes and reads nothing where `valid` is false.
__device__ __forceinline__ void copyAsync16(void *shared, const void *global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
/// Copies 4 bytes.
__device__ __forceinline__ void copyAsync4(void *shared, const void *global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(sharedAddress(shared)), "l"(global)
               : "memory");
}
__device__ __forceinline__ void copyAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int Pending> __device__ __forceinline__ void copyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Copies elements `col0` to col0 + Width of vector[n] to shared memory by `threads` threads; they
/// are there after copyAsyncWait and a barrier. Returns a pointer that takes the place of `vector`
/// there.
template <typename T, int Width>
__device__ __forceinline__ const T *stageColumns(const T *vector, float (&shared)[Width], int col0,
                                                 int n, int thread, int threads) {
  constexpr int each = 4 / (int)sizeof(T); // elements that are copied at once
  T *to = reinterpret_cast<T *>(shared);
  if (n % each == 0) {
#pragma unroll 2
    for (int i = thread * each; i < Width; i += threads * each)
      copyAsync4(to + i, vector + min(col0 + i, n - each));
  } else {
    for (int i = thread; i < Width; i += threads)
      to[i] = vector[min(col0 + i, n - 1)];
  }
  return to - col0;
}

// Matrix instructions: fp16 in, fp32 out
// --------------------------------------------------------------------------

/// Four 8x8 matrices of halves; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void loadMatrix4(unsigned (&r)[4], unsigned shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared));
}
__device__ __forceinline__ void loadMatrix4(unsigned (&r)[4], const void *shared) {
  loadMatrix4(r, sharedAddress(shared));
}
__device__ __forceinline__ void loadMatrix4Transposed(unsigned (&r)[4], const void *shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(sharedAddress(shared)));
}
/// c[16,8] += a[16,16] * b[16,8]. Lane l holds c at rows l / 4 and l / 4 + 8, columns 2 * (l % 4)
/// and the next.
__device__ __forceinline__ void mma16816(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, "
               "%7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ unsigned packHalves(float lo, float hi) {
  __half2 h = __floats2half2_rn(lo, hi);
  return *reinterpret_cast<unsigned *>(&h);
}

} // namespace gpt2c
