// The vocabulary of epilogues. A linear template hands its epilogue V neighbouring accumulators of
// one row; the compiler composes the body of the epilogue from these functions, in the order of the
// graph:
//
//   struct K3Epilogue {
//     const __half *e0; const __half *e1; int n;
//     template <int V> struct Operands { float e0[V], e1[V]; };
//     template <int V> __device__ Operands<V> load(i64 row, i64 col) const {
//       Operands<V> o;
//       loadFloats<V>(e0 + col, o.e0);
//       loadFloats<V>(e1 + row * n + col, o.e1);
//       return o;
//     }
//     template <int V> __device__ void apply(float (&v)[V], const Operands<V> &o) const {
//       epilogue::add(v, o.e0);
//       epilogue::geluTanh(v);
//       epilogue::add(v, o.e1);
//     }
//     template <int V> __device__ void operator()(float (&v)[V], i64 row, i64 col) const {
//       apply(v, load<V>(row, col));
//     }
//     __device__ void prefetchColumn(i64 col) const { prefetch(e0 + col); }
//   };
//
// Where the last stage is a gate, columns of the product are pairs of a gate and what it gates, and
// an epilogue leaves half as many elements as it was given, in front; storeResults (below) knows.
//
// prefetchColumn brings what is added to a column, which is a weight, into L2 before the kernel
// waits for activations. V is 1 unless row * n + col is a multiple of V for every call, so operands
// are loaded V at a time.
#pragma once

#include "templates/device/activations.cuh"

namespace gpt2c::epilogue {

/// v += operand
template <int V> __device__ __forceinline__ void add(float (&v)[V], const float (&operand)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] += operand[i];
}

/// The row of X[rows * seq] that is the last of sequence `row`, as gather_last takes it.
__device__ __forceinline__ i64 lastRow(const int *length, int seq, i64 row) {
  return row * seq + max(0, min(length[row], seq) - 1);
}

/// v *= operand
template <int V> __device__ __forceinline__ void mul(float (&v)[V], const float (&operand)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] *= operand[i];
}

/// A factor that is the same for all elements.
template <int V> __device__ __forceinline__ void loadOne(const float *p, float (&operand)[V]) {
  const float s = *p;
#pragma unroll
  for (int i = 0; i < V; i++)
    operand[i] = s;
}

/// v *= s
template <int V> __device__ __forceinline__ void scale(float (&v)[V], float s) {
#pragma unroll
  for (int i = 0; i < V; i++)
    v[i] *= s;
}

/// Of pairs of neighbours, a gate and what it gates: the gates.
template <int V, int H> __device__ __forceinline__ void gates(const float (&v)[V], float (&g)[H]) {
#pragma unroll
  for (int i = 0; i < V / 2; i++)
    g[i] = v[2 * i];
}
/// v[i] = g[i] v[2 i + 1], of half as many elements.
template <int V, int H> __device__ __forceinline__ void gated(float (&v)[V], const float (&g)[H]) {
#pragma unroll
  for (int i = 0; i < V / 2; i++)
    v[i] = g[i] * v[2 * i + 1];
}

/// Whether an epilogue ends with a gate, which leaves V / 2 elements of V: it says `using Gated =
/// void`.
template <typename Epilogue, typename = void> inline constexpr bool isGated = false;
template <typename Epilogue>
inline constexpr bool isGated<Epilogue, typename Epilogue::Gated> = true;

/// Whether an epilogue takes neighbouring columns together, as a gate and a rotation do: it says
/// `using Paired = void`. V is even then for every call.
template <typename Epilogue, typename = void> inline constexpr bool isPaired = false;
template <typename Epilogue>
inline constexpr bool isPaired<Epilogue, typename Epilogue::Paired> = true;

/// Whether an epilogue ends with a rotation, behind what its member `before` does (rotation.cuh).
template <typename Epilogue, typename = void> inline constexpr bool isTurned = false;
template <typename Epilogue>
inline constexpr bool isTurned<Epilogue, decltype((void)&Epilogue::rotation)> = true;

/// Whether results go to all ranks (sent.cuh): it says `using Sends = void`, and puts them where
/// they belong by forRanks(). Such an epilogue is told to begin().
template <typename Epilogue, typename = void> inline constexpr bool isSent = false;
template <typename Epilogue>
inline constexpr bool isSent<Epilogue, typename Epilogue::Sends> = true;
/// Whether tiles exchange their sums with those of other ranks first (received.cuh): it says
/// `using Receives = void`, and does it all by finish(). Such an epilogue, too, is told to begin().
template <typename Epilogue, typename = void> inline constexpr bool isReceived = false;
template <typename Epilogue>
inline constexpr bool isReceived<Epilogue, typename Epilogue::Receives> = true;
/// Whether each rank ends some of the rows for all (scattered.cuh): it says `using Scatters =
/// void`. Such an epilogue, too, is told to begin(), and of a warp's last tile to end().
template <typename Epilogue, typename = void> inline constexpr bool isScattered = false;
template <typename Epilogue>
inline constexpr bool isScattered<Epilogue, typename Epilogue::Scatters> = true;
/// Of results that are what they are.
struct Finished {
  static constexpr int columnOperands = 0;
  template <int V> __device__ __forceinline__ void operator()(float (&)[V], i64, i64) const {}
};
template <typename Epilogue> __device__ __forceinline__ void begin(Epilogue &epilogue) {
  if constexpr (isSent<Epilogue> || isReceived<Epilogue> || isScattered<Epilogue>)
    epilogue.begin();
}
/// put(y), of each rank where results go to all.
template <typename Epilogue, typename Y, typename Put>
__device__ __forceinline__ void forResults(const Epilogue &epilogue, Y *y, const Put &put) {
  if constexpr (isSent<Epilogue> || isScattered<Epilogue>)
    epilogue.forRanks(y, put);
  else
    put(y);
}

/// Stores what an epilogue made of the sums of `row` from column `col` on, of n: in y[., n], or
/// behind a gate in y[., n / 2], which is only asked for even V.
template <typename Epilogue, int V, typename Y>
__device__ __forceinline__ void storeResults(Y *y, i64 row, int n, int col, const float (&v)[V]) {
  if constexpr (!isGated<Epilogue>) {
    storeFloats<V>(y + row * n + col, v);
  } else if constexpr (V > 1) {
    float half[V / 2];
#pragma unroll
    for (int i = 0; i < V / 2; i++)
      half[i] = v[i];
    storeFloats<V / 2>(y + row * (n / 2) + col / 2, half);
  }
}

/// The same in y of each rank where results go to all.
template <typename Epilogue, int V, typename Y>
__device__ __forceinline__ void storeResults(const Epilogue &epilogue, Y *y, i64 row, int n,
                                             int col, const float (&v)[V]) {
  forResults(epilogue, y, [&](Y *to) { storeResults<Epilogue>(to, row, n, col, v); });
}

} // namespace gpt2c::epilogue
