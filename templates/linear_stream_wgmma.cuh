// linear for up to 128 rows and very many columns, a vocabulary: Y[M,N] = epilogue(norm(X)[M,K] * W[N,K]^T),
// M <= Rows, X fp16 and W fp16 or int8, sm_90a only
//
// linear_stream with more rows than mma.sync keeps up with. All rows of X lie in shared memory, and
// the warpgroups of persistent blocks stream the weights of 64 columns after the other from device
// memory into the operand registers of wgmma, Depth loads ahead across columns, the first ones before
// the kernel waits for its predecessor. Operands as in linear_cluster: columns of Y are the rows of
// operand A, thread t of a quad loads 16 bytes of neighbouring k and feeds four of them at a time to
// one wgmma, k slots 2t, 2t+1, 2t+8, 2t+9, and X is stored in that order.
//
// A norm is taken out of the sums, so that rows need not be known before they are multiplied:
//   norm(x) W^T = ((x gain) W^T - mean c) / deviation + s,  c[n] = sum_k gain[k] W[n,k],
//   s[n] = sum_k shift[k] W[n,k],  x gain rounded to fp16.
//
// Best: argmax_parts' keys of the results are left behind, and y may be null.
//
// Config: W (__half or signed char), Y (float or __half), P (type of gain), Rows (8, 16, 32, 64 or
// 128), Groups (warpgroups), Depth (from 2 on, divides the
// 16-byte loads of a quad along K), K (static, a multiple
// of 32, or 64 for int8 W), Norm (NormKind), Best.
// Kernel: x f16[M,K], w W[N,K], y Y[M,N], m, n, then with a norm gain P[K] (null: ones), rowSums
// f32[N], c, shiftSums f32[N], s (null: zeros), epsilon, then with Best best u64[M, blocks]; then the
// operands of the epilogue.
// Grid: any; block: 128 * Groups; dynamic shared: LinearStreamWgmma<C>::sharedBytes.
// Bytes: sizeof(W) N K + 2 M K + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "linear_rows.cuh"
#include "token_ops.cuh"
#include "wgmma.cuh"

namespace gpt2c {

template <typename C> struct LinearStreamWgmma {
  static constexpr int threads = 128 * C::Groups;
  static constexpr int tiles = C::Rows / 8;
  static constexpr int unit = elementsPer16Bytes<typename C::W>();
  static constexpr int steps = unit / 4;  // of 16 k in a quad's load
  static constexpr int chunk = 4 * unit;  // k of a quad's load
  static constexpr int chunks = C::K / chunk;
  static constexpr int slabs = ceilDiv(C::K, 64);
  static constexpr int slabBytes = C::Rows * 128;
  static constexpr bool norm = C::Norm != NormKind::None;
  static constexpr int sharedBytes =
      1024 + slabs * slabBytes + (norm ? C::Rows * 8 : 0) + (C::Best ? 4 * C::Groups * C::Rows * 8 : 0);
  static_assert(C::Depth >= 2 && C::K % chunk == 0 && chunks % C::Depth == 0 && C::Rows % 8 == 0);
};

/// The largest of some values, as a number that orders them (0: NaN), and where it is.
struct Largest {
  unsigned key;
  int at;

  __device__ __forceinline__ void take(const Largest &other) {
    const bool better = other.key > key || (other.key == key && other.at < at);
    key = better ? other.key : key;
    at = better ? other.at : at;
  }
};

namespace tile {

/// The rows of X times the gain in the slabs, mean and 1 / deviation of each in `rows`.
template <typename C>
__device__ __forceinline__ void streamRows(char *slabs, float2 *rows, const __half *x, int m,
                                           const typename C::P *gain, float epsilon) {
  using L = LinearStreamWgmma<C>;
  constexpr int copiers = L::threads / 8;
  const int unit = threadIdx.x % 8;
  // Words 0 to 3 of eight k belong to a quad's thread `member`, in 16-byte units from `first` on.
  const int member = L::unit == 8 ? unit % 4 : unit / 2, first = (L::unit == 8 ? unit / 4 : unit % 2) * 4;
#pragma unroll 1
  for (int row = threadIdx.x / 8; row < C::Rows; row += copiers) {
    uint4 copied[L::slabs];
#pragma unroll
    for (int j = 0; j < L::slabs; j++)
      copied[j] = loadFromL2(x + (i64)min(row, m - 1) * C::K + min(j * 64 + unit * 8, C::K - 8));
    float sum = 0.0f, square = 0.0f;
#pragma unroll
    for (int j = 0; j < L::slabs; j++) {
      const int k = j * 64 + unit * 8;
      if (C::K % 64 != 0 && k >= C::K)
        break;
      if constexpr (L::norm) {
        Pack<__half, 8> pack{copied[j]};
#pragma unroll
        for (int e = 0; e < 8; e++) {
          sum += pack.get(e);
          square = fmaf(pack.get(e), pack.get(e), square);
        }
        if (gain != nullptr) {
          float g[8];
          loadFloats<8>(gain + k, g);
#pragma unroll
          for (int e = 0; e < 8; e++)
            pack.set(e, __float2half_rn(pack.get(e) * g[e]));
          copied[j] = pack.raw;
        }
      }
      const unsigned words[4] = {copied[j].x, copied[j].y, copied[j].z, copied[j].w};
#pragma unroll
      for (int q = 0; q < 4; q++)
        *reinterpret_cast<unsigned *>(slabs + j * L::slabBytes + row * 128 +
                                      ((first + q) ^ row % 8) * 16 + member * 4) = words[q];
    }
    if constexpr (L::norm) {
      // Rows are a multiple of four: all lanes of a warp come here together.
      sum = warpReduce<Sum, 8>(sum);
      square = warpReduce<Sum, 8>(square);
      const float mean = C::Norm == NormKind::Layer ? sum * (1.0f / C::K) : 0.0f;
      if (unit == 0)
        rows[row] = {mean, rsqrtf(fmaxf(square * (1.0f / C::K) - mean * mean, 0.0f) + epsilon)};
    }
  }
}

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearStreamWgmma(const __half *x, const typename C::W *__restrict__ w, typename C::Y *y, int m, int n,
                  const typename C::P *__restrict__ gain, const float *__restrict__ rowSums,
                  const float *__restrict__ shiftSums, float epsilon, u64 *best, int block, int blocks,
                  void *dynamicShared, const Epilogue &epilogue) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearStreamWgmma<C>;
  using W = typename C::W;
  constexpr int tiles = L::tiles, depth = C::Depth;
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int quad = lane / 4, member = lane % 4;
  const int stride = 64 * C::Groups * blocks; // columns between two turns of a warpgroup
  const int column0 = warp * 16 + quad;       // and + 8: this thread's of 64
  int col0 = 64 * (group * blocks + block);

  char *const slabs = reinterpret_cast<char *>(alignedSlabs(dynamicShared));
  float2 *const rows = reinterpret_cast<float2 *>(slabs + L::slabs * L::slabBytes);
  u64 *const keys = reinterpret_cast<u64 *>(rows + (L::norm ? C::Rows : 0));

  Pack<W, L::unit> raw[depth][2];
  // Columns outside are the last one again: their sums are not stored.
  auto address = [&](int col, int h) {
    return w + (i64)min(col + h * 8 + column0, n - 1) * C::K + member * L::unit;
  };
  auto fetch = [&](int u, const W *const (&from)[2], int chunk) {
#pragma unroll
    for (int h = 0; h < 2; h++)
      raw[u][h] = loadPackStreaming<L::unit>(from[h] + chunk * L::chunk);
  };
  const W *from[2] = {address(col0, 0), address(col0, 1)};
#pragma unroll
  for (int u = 0; u < depth - 1; u++)
    fetch(u, from, u);
  if (gain != nullptr)
    prefetchVector<L::threads>(gain, C::K);
  waitForPredecessor();
  releaseSuccessor();
  streamRows<C>(slabs, rows, x, m, gain, epsilon);
  fenceShared();
  __syncthreads();

  // Of the values of a row, one for each quad, lanes keep the largest in halves: after three
  // exchanges each has those of `kept` rows.
  constexpr int values = 2 * tiles, kept = maxInt(values / 8, 1);
  Largest largest[kept];
#pragma unroll
  for (int i = 0; i < kept; i++)
    largest[i] = {0, 0};

#pragma unroll 1
  for (; col0 < n; col0 += stride) {
    float acc[tiles][4];
    float ofColumns[2][2] = {}; // c and s
    if constexpr (L::norm)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int col = min(col0 + h * 8 + column0, n - 1);
        ofColumns[h][0] = rowSums[col];
        ofColumns[h][1] = shiftSums != nullptr ? shiftSums[col] : 0.0f;
      }
    const W *const next[2] = {address(col0 + stride, 0), address(col0 + stride, 1)};
#pragma unroll 1
    for (int first = 0; first < L::chunks; first += depth) {
      const bool last = first + depth == L::chunks;
      const W *ahead[2];
#pragma unroll
      for (int h = 0; h < 2; h++)
        ahead[h] = last ? next[h] : from[h] + (first + depth) * L::chunk;
#pragma unroll
      for (int u = 0; u < depth; u++) {
        const char *const slab = slabs + (first + u) * L::chunk / 64 * L::slabBytes;
        const int step0 = (first + u) * L::chunk % 64 / 16;
        unsigned a[L::steps][4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const uint4 &v = raw[u][h].raw;
          if constexpr (sizeof(W) == 2) {
            a[0][h] = v.x, a[0][h + 2] = v.y;
            a[1][h] = v.z, a[1][h + 2] = v.w;
          } else {
            const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int s = 0; s < L::steps; s++) {
              const quantised::HalfPairs p = quantised::halves(words[s]);
              a[s][h] = p.low, a[s][h + 2] = p.high;
            }
          }
        }
        wgmmaFence();
#pragma unroll
        for (int s = 0; s < L::steps; s++)
          wgmmaRows(acc, a[s], swizzledOperand(slab) + (step0 + s) * 2, first + u + s > 0);
        wgmmaCommit();
        wgmmaWait<1>();
        // The load before this one has been multiplied.
        if (u == 0)
          fetch(depth - 1, from, first + depth - 1);
        else
          fetch(u - 1, ahead, u - 1);
      }
    }
    wgmmaWait<0>();
#pragma unroll
    for (int h = 0; h < 2; h++)
      from[h] = next[h];

    // Value i of this thread's: epilogue, result, and the larger of its two columns.
    auto finish = [&](int i) {
      const int t = i / 2, e = i % 2, r = t * 8 + member * 2 + e;
      float2 row = {};
      if constexpr (L::norm)
        row = rows[r];
      Largest of = {0, 0};
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int col = col0 + h * 8 + column0;
        if (r >= m || col >= n)
          continue;
        float v[1] = {acc[t][h * 2 + e]};
        if constexpr (L::norm)
          v[0] = fmaf(row.y, v[0] - row.x * ofColumns[h][0], ofColumns[h][1]);
        epilogue(v, (i64)r, (i64)col);
        if (!C::Best || y != nullptr)
          storeFloats<1>(y + (i64)r * n + col, v);
        if constexpr (C::Best)
          of.take({(unsigned)(argmaxKey(toFloat(fromFloat<typename C::Y>(v[0])), 0) >> 32), col});
      }
      return of;
    };
    if constexpr (!C::Best) {
#pragma unroll
      for (int i = 0; i < values; i++)
        finish(i);
    } else {
      Largest found[values / 2];
      auto exchange = [&](const Largest &low, const Largest &high, int bit) {
        const bool upper = lane & bit;
        const Largest send = upper ? low : high;
        Largest keep = upper ? high : low;
        keep.take({__shfl_xor_sync(fullWarp, send.key, bit), __shfl_xor_sync(fullWarp, send.at, bit)});
        return keep;
      };
#pragma unroll
      for (int i = 0; i < values / 2; i++)
        found[i] = exchange(finish(i), finish(i + values / 2), 16);
      auto halve = [&](auto number, int bit) {
        constexpr int count = decltype(number)::value / 2;
#pragma unroll
        for (int i = 0; i < maxInt(count, 1); i++)
          found[i] = exchange(found[i], found[count == 0 ? i : i + count], bit);
      };
      halve(IntConstant<values / 2>{}, 8);
      halve(IntConstant<values / 4>{}, 4);
#pragma unroll
      for (int i = 0; i < kept; i++)
        if (found[i].key > largest[i].key) // columns grow
          largest[i] = found[i];
    }
  }

  if constexpr (C::Best) {
    // The value that this lane kept as number i of its own.
    const int value0 = (lane & 16 ? values / 2 : 0) + (values > 2 && lane & 8 ? values / 4 : 0) +
                       (values > 4 && lane & 4 ? values / 8 : 0);
#pragma unroll
    for (int i = 0; i < kept; i++) {
      const int value = value0 + i, r = value / 2 * 8 + member * 2 + value % 2;
      keys[(group * 4 + warp) * C::Rows + r] =
          largest[i].key == 0 ? 0 : (u64)largest[i].key << 32 | (0xffffffffu - (unsigned)largest[i].at);
    }
    __syncthreads();
    for (int r = threadIdx.x; r < m; r += L::threads) {
      u64 key = 0;
#pragma unroll
      for (int i = 0; i < 4 * C::Groups; i++)
        key = keys[i * C::Rows + r] > key ? keys[i * C::Rows + r] : key;
      best[(i64)r * blocks + block] = key;
    }
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c
