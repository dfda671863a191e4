// linear for few rows (decode): Y[M,N] = epilogue(norm(X)[M,K] * W[N,K]^T), M <= Rows <= 8
//
// A memory-bound kernel: W is read once, 16 bytes a lane, streaming. KSplit warps share the K range
// of Cols columns of Y; each lane keeps Cols x Rows sums, which are reduced over the warp and then
// over the KSplit warps in order. The first loads of W are in flight before X is touched, also
// across a programmatic dependent launch. X is staged once per block in shared memory when it fits
// (always with a fused norm), else read through L1.
//
// Fused norm: see normalised_rows.cuh.
//
// Weights of four bits, less their zero points, are summed up for as many k as a lane has at once,
// which are of one group, before its scale multiplies the sum.
//
// Config: X, Y (float or __half), W (either, a byte, or Int4x8), Rows (1..8), Cols, KSplit, Warps
// (a multiple of KSplit), K (static), WGroup and WZeros (of Int4x8), Norm
//   (NormKind::None, Layer, Rms), P (type of gain and bias).
// Kernel: x X[M,K], w W[N,K], y Y[M,N], m, n, then with WGroup wScale f32[N,K/WGroup], with WZeros
// wZero i8 of the same shape (without WGroup i8[N]), then with a norm gain P[K], shift P[K] (null:
// none), epsilon; then the
//   operands of the epilogue.
// Grid: ceil(N / RowDot<C>::colsPerBlock); block: RowDot<C>::threads; dynamic shared:
// RowDot<C>::sharedBytes. Bytes: N K sizeof(W) + M K sizeof(X) + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/linear/parts/epilogue.cuh"
#include "templates/linear/parts/normalised_rows.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct RowDot {
  static constexpr int threads = 32 * C::Warps;
  static constexpr int colsPerBlock = C::Warps / C::KSplit * C::Cols;
  static constexpr int each = Operand<typename C::W>::each; // elements in a W
  static constexpr int vector =
      vectorWidth(C::WGroup > 0 ? C::WGroup : C::K, elementsPer16Bytes<typename C::W>() * each);
  static constexpr int stride = 32 * vector * C::KSplit; // elements of K between a lane's chunks
  static constexpr int chunks = ceilDiv(C::K, stride);   // chunks of a lane
  static constexpr int kTile = minInt(chunks, maxInt(1, 16 / C::Cols)); // chunks in flight
  static constexpr int xBytes = C::Rows * C::K * (int)sizeof(typename C::X);
  static constexpr bool staged = C::Norm != NormKind::None || xBytes <= 32 * 1024;
  static constexpr int sharedBytes = staged ? (xBytes + 15) / 16 * 16 : 0;
  static_assert(C::Warps % C::KSplit == 0 && C::Rows >= 1 && C::Rows <= 8);
  static_assert(vector % each == 0 && (each > 1 || (C::WGroup == 0 && !C::WZeros)));
};

/// Scale and zero point of a lane's weights on their way.
template <bool Present> struct RowDotGroup {
  float scale = 1.0f, zero = 0.0f;
};
template <> struct RowDotGroup<false> {};

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearRowDot(const typename C::X *x, const typename C::W *__restrict__ w, typename C::Y *y,
             Extent extent, WeightScales scales, RowNorm<typename C::P> norm, int tileN,
             char *shared, const Epilogue &epilogue) {
  const int m = extent.m, n = extent.n;
  const typename C::P *const gain = norm.gain, *const shift = norm.shift;
  const float epsilon = norm.epsilon;
  using L = RowDot<C>;
  using X = typename C::X;
  constexpr int v = L::vector;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = warp / C::KSplit, part = warp % C::KSplit;
  const int col0 = tileN * L::colsPerBlock + group * C::Cols;
  const int k0 = (part * 32 + lane) * v;

  using W = Operand<typename C::W>;
  Pack<typename C::W, v / L::each> weights[L::kTile][C::Cols];
  constexpr bool nibbles = L::each > 1;
  RowDotGroup<nibbles> groups[L::kTile][C::Cols];
  auto fetch = [&](int first) {
#pragma unroll
    for (int s = 0; s < L::kTile; s++)
#pragma unroll
      for (int c = 0; c < C::Cols; c++) {
        int k = k0 + (first + s) * L::stride;
        if (col0 + c < n && k < C::K) {
          weights[s][c] =
              loadPackStreaming<v / L::each>(w + ((i64)(col0 + c) * C::K + k) / L::each);
          if constexpr (nibbles) {
            constexpr int size = C::WGroup > 0 ? C::WGroup : C::K;
            const i64 group = (i64)(col0 + c) * (C::K / size) + k / size;
            if constexpr (C::WGroup > 0)
              groups[s][c].scale = scales.scale[group];
            if constexpr (C::WZeros)
              groups[s][c].zero = (float)scales.zero[group];
          }
        }
      }
  };
  fetch(0);
  if (lane < C::Cols && col0 + lane < n)
    epilogue.prefetchColumn(col0 + lane);
  prefetchNorm<C>(gain, shift);
  waitForPredecessor();
  releaseSuccessor();

  X *rows = reinterpret_cast<X *>(shared);
  if constexpr (L::staged) {
    stageRows<C>(rows, x, m, gain, shift, epsilon);
    __syncthreads();
  }
  const X *source = L::staged ? rows : x;

  float acc[C::Cols][C::Rows] = {};
#pragma unroll 1
  for (int first = 0; first < L::chunks; first += L::kTile) {
    if (first > 0)
      fetch(first);
#pragma unroll
    for (int s = 0; s < L::kTile; s++) {
      int k = k0 + (first + s) * L::stride;
      if (k < C::K) {
#pragma unroll
        for (int r = 0; r < C::Rows; r++) {
          if (C::Rows > 1 && r >= m)
            break;
          float a[v];
          loadFloats<v>(source + r * C::K + k, a);
#pragma unroll
          for (int c = 0; c < C::Cols; c++)
            if (col0 + c < n) {
              if constexpr (nibbles) {
                float part = 0.0f;
#pragma unroll
                for (int j = 0; j < v; j++)
                  part = fmaf(W::at(weights[s][c].at(j / L::each).word, j % L::each) -
                                  groups[s][c].zero,
                              a[j], part);
                acc[c][r] = fmaf(part, groups[s][c].scale, acc[c][r]);
              } else {
#pragma unroll
                for (int j = 0; j < v; j++)
                  acc[c][r] = fmaf(weights[s][c].get(j), a[j], acc[c][r]);
              }
            }
        }
      }
    }
  }

#pragma unroll
  for (int c = 0; c < C::Cols; c++)
#pragma unroll
    for (int r = 0; r < C::Rows; r++)
      acc[c][r] = warpReduce<Sum>(acc[c][r]);

  constexpr int together = epilogue::isPaired<Epilogue> ? 2 : 1; // columns that are ended
  static_assert(C::Cols % together == 0);
  auto finish = [&](int c, int r, float(&out)[together]) {
    epilogue(out, (i64)r, (i64)(col0 + c));
    epilogue::storeResults<Epilogue>(y, (i64)r, n, col0 + c, out);
  };
  if constexpr (C::KSplit == 1) {
    // Lane i finishes sum i, so that the epilogue of all sums runs side by side.
    float mine = 0.0f;
#pragma unroll
    for (int c = 0; c < C::Cols; c++)
#pragma unroll
      for (int r = 0; r < C::Rows; r++)
        if (lane == c * C::Rows + r)
          mine = acc[c][r];
    static_assert(C::Cols * C::Rows <= 32);
    int c = lane / C::Rows, r = lane % C::Rows;
    float out[together] = {mine};
    if constexpr (together > 1)
      out[1] = __shfl_down_sync(fullWarp, mine, C::Rows);
    if (c < C::Cols && r < m && col0 + c < n && c % together == 0)
      finish(c, r, out);
  } else {
    __shared__ float parts[C::Warps][C::Cols * C::Rows];
    if (lane == 0)
#pragma unroll
      for (int i = 0; i < C::Cols * C::Rows; i++)
        parts[warp][i] = acc[i / C::Rows][i % C::Rows];
    __syncthreads();
    if (part == 0)
      for (int i = lane; i < C::Cols / together * C::Rows; i += 32) {
        int c = i / C::Rows * together, r = i % C::Rows;
        float sum[together] = {};
#pragma unroll
        for (int p = 0; p < C::KSplit; p++)
#pragma unroll
          for (int j = 0; j < together; j++)
            sum[j] += parts[group * C::KSplit + p][(c + j) * C::Rows + r];
        if (r < m && col0 + c < n)
          finish(c, r, sum);
      }
  }
}

} // namespace tile
} // namespace gpt2c
