// linear for some rows and very many columns, a vocabulary, on sm_90a alone:
// Y[M,N] = epilogue(X[M,K] * W[N,K]^T), X and W fp16 or bf16, or W int8 beside X in fp16
//
// Nothing but reading W should take time. A block takes tiles of BM x BN one after the other, every
// gridDim.x-th, the tiles of a column of them behind each other. BM / 64 warpgroups multiply, each
// 64 x BN; a thread of another warp has TMA fill a ring of Stages k-tiles of 64 columns
// of K, ahead over the ends of tiles, which are short: the weights of the next tile come meanwhile.
// The first ones come before the kernel waits for its predecessor. int8 weights come through a ring
// of their own and are made halves on the way (dequantised_k_tiles.cuh).
//
// Best: argmax_parts' keys of the results are left behind, one for each row and column of tiles,
// and y may be null. Of rows that `choices` has drawn these are the keys of sample_row.cuh, found
// by noise that is computed before the sums of a tile are: drawn_tile.cuh.
//
// Config: X (__half or __nv_bfloat16), W (X's type, or signed char beside __half), Y (float or X's
// type), N, K (a multiple of 8, of 16 for int8 W), BM (64 or 128), BN (a multiple of 16 that wgmma
// lists, at most 192), Stages, RawStages (those of int8 W), XRows (as in linear_tma),
// Best.
// Kernel: xMap X[M,K] in boxes of XRows rows, wMap W[N,K] in boxes of BN rows (of int8 W, as
// halves [N,K/2]), y Y[M,N], m, then with Best best u64[M, ceil(N / BN)] and choices SampleRow[M]
// or null, then the operands of the epilogue.
// Grid: up to ceil(M / BM) * ceil(N / BN), one block for each multiprocessor; block:
// LinearStreamTma<C>::threads; dynamic shared: LinearStreamTma<C>::sharedBytes.
// Bytes: sizeof(W) N K + 2 M K + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "templates/linear/parts/dequantised_k_tiles.cuh"
#include "templates/linear/parts/drawn_tile.cuh"
#include "templates/linear/parts/operands.cuh"
#include "templates/tokens/token_ops.cuh"

namespace gpt2c {

template <typename C> struct LinearStreamTma {
  static constexpr bool int8 = Operand<typename C::W>::scaled;
  static constexpr int groups = C::BM / 64, consumers = 128 * groups;
  static constexpr int converters = int8 ? 128 : 0;
  static constexpr int threads = consumers + converters + (int8 ? 64 : 32);
  static constexpr int tilesN = ceilDiv(C::N, C::BN);
  using Noise = TileNoise<C::BN / 8, consumers>;
  static constexpr int kTileBytes =
      C::Stages * (C::BM + C::BN) * 128 + (int8 ? C::RawStages * C::BN * 128 : 0);
  static constexpr int sharedBytes =
      kTileBytes + (C::Best ? Noise::bytes : 0) + 1024; // k-tiles begin at 1 KiB
  static_assert(C::BM % 64 == 0 && C::BN % 16 == 0 && C::Stages >= (int8 ? 3 : 2));
};

namespace tile {

/// The key of the largest of a lane's values of a row, those of columns col + 8 j + e; what lies
/// from `n` on does not count.
template <int Tiles, typename Y>
__device__ __forceinline__ u64 laneLargest(const float (&acc)[Tiles][4], int h, int col, int n) {
  float largest = 0.0f;
  int at = -1;
#pragma unroll
  for (int j = 0; j < Tiles; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float v = toFloat(fromFloat<Y>(acc[j][h * 2 + e]));
      const bool better = (v > largest || (at < 0 && v == v)) && col + j * 8 + e < n;
      largest = better ? v : largest;
      at = better ? col + j * 8 + e : at;
    }
  return at < 0 ? 0 : argmaxKey(largest, at);
}

template <typename C, typename Epilogue>
__device__ __forceinline__ void linearStreamTma(const TensorMap &xMap, const TensorMap &wMap,
                                                typename C::Y *y, int m, Largest largest, Turn turn,
                                                void *dynamicShared, const Epilogue &epilogue) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  u64 *const best = largest.best;
  const int *const choices = largest.choices;
  const int block = turn.block, blocks = turn.blocks;
  using L = LinearStreamTma<C>;
  using KTiles = DequantisedKTiles<typename C::W, C::BM, C::BN, C::Stages, C::RawStages,
                                   L::consumers / 32, L::converters / 128, C::XRows>;
  __shared__ typename KTiles::Barriers barriers;
  __shared__ alignas(16) float columns[maxInt(1, Epilogue::columnOperands)][C::BN];
  __half *const shared = alignedKTiles(dynamicShared);
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
  constexpr int kTiles = L::int8 ? ceilDiv(C::K, 128) * 2 : ceilDiv(C::K, 64), tiles64 = C::BN / 8;
  const int tilesM = ceilDiv(m, C::BM), tiles = tilesM * L::tilesN;
  if (threadIdx.x == 0)
    barriers.init();
  __syncthreads();

  if (threadIdx.x >= L::consumers + L::converters) {
    auto place = [&](int i) -> TilePlace {
      const int tile = block + i * blocks;
      return tile < tiles ? TilePlace{tile % tilesM * C::BM, tile / tilesM * C::BN}
                          : TilePlace{-1, 0};
    };
    if (threadIdx.x % 64 == 0)
      KTiles::load(barriers, shared, xMap, wMap, {0, kTiles}, place);
    if (L::int8 && threadIdx.x % 64 == 32)
      KTiles::loadRaw(barriers, shared, wMap, {0, kTiles}, place);
    return;
  }
  if constexpr (L::int8)
    if (threadIdx.x >= L::consumers) {
      KTiles::convert(barriers, shared, group - L::groups,
                      (tiles - block + blocks - 1) / blocks * kTiles, kTiles);
      return;
    }

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const typename KTiles::Consumer consumer(barriers.kTiles, shared, group * 64);
  const typename L::Noise noise{
      reinterpret_cast<unsigned *>(reinterpret_cast<char *>(shared) + L::kTileBytes)};
  int stage = 0, parity = 0;
#pragma unroll 1
  for (int tile = block; tile < tiles; tile += blocks) {
    const int row0 = tile % tilesM * C::BM + warp * 16 + lane / 4, tileN = tile / tilesM;
    const int col0 = tileN * C::BN;
    Epilogue end = epilogue;
    if constexpr (Epilogue::columnOperands > 0) {
      asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory"); // those before are read
      end.stageColumns(columns, col0, C::N, threadIdx.x, L::consumers);
      copyAsyncCommit();
    }
    const int col1 = col0 + lane % 4 * 2;
    if (C::Best && choices != nullptr) {
      __syncwarp();
#pragma unroll 1
      for (int h = 0; h < 2; h++)
        if (const SampleRow *how =
                row0 + h * 8 < m ? sampling::drawnRow(choices, row0 + h * 8) : nullptr)
          noise.fill(h, *how, col1);
      __syncwarp();
    }
    if (tile == block)
      waitForPredecessor(); // which has no say in how rows are chosen
    float acc[tiles64][4];
    int before = 0;
#pragma unroll 1 // stages of a tile begin anywhere in the ring
    for (int kTile = 0; kTile < kTiles; kTile++) {
      consumer.wait(stage, parity);
      multiplyKTile<typename C::X>(acc, consumer.xAt(stage), consumer.wAt(stage), kTile > 0);
      wgmmaWait<1>();
      if (kTile > 0)
        consumer.handBack(before);
      before = stage;
      if (++stage == C::Stages)
        stage = 0, parity ^= 1;
    }
    wgmmaWait<0>();
    consumer.handBack(before);
    if constexpr (Epilogue::columnOperands > 0) {
      copyAsyncWait<0>();
      asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory");
    }
    Nominee drawn[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = row0 + h * 8;
#pragma unroll
      for (int j = 0; j < tiles64; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float v[1] = {acc[j][h * 2 + e]};
          end(v, (i64)min(row, m - 1), (i64)min(col1 + j * 8 + e, C::N - 1));
          acc[j][h * 2 + e] = v[0];
        }
      if (row < m && (!C::Best || y != nullptr)) {
        typename C::Y *const to = y + (i64)row * C::N;
#pragma unroll
        for (int j = 0; j < tiles64; j++)
#pragma unroll
          for (int e = 0; e < 2; e++)
            if (col1 + j * 8 + e < C::N)
              to[col1 + j * 8 + e] = fromFloat<typename C::Y>(acc[j][h * 2 + e]);
      }
      if constexpr (C::Best) {
        const SampleRow *const how = row < m ? sampling::drawnRow(choices, row) : nullptr;
        u64 key = 0;
        if (how == nullptr) {
          key = laneLargest<tiles64, typename C::Y>(acc, h, col1, C::N);
        } else {
          if (C::N % C::BN != 0 && col0 + C::BN > C::N)
#pragma unroll
            for (int j = 0; j < tiles64; j++)
#pragma unroll
              for (int e = 0; e < 2; e++)
                if (col1 + j * 8 + e >= C::N)
                  acc[j][h * 2 + e] = negativeInfinity();
          drawn[h] = nominate<typename C::Y>(how, acc, h, col1, noise);
        }
        __syncwarp();
#pragma unroll
        for (int step = 1; step < 4; step *= 2)
          key = max(key, __shfl_xor_sync(fullWarp, key, step));
        if (lane % 4 == 0 && row < m && how == nullptr)
          best[(i64)row * L::tilesN + tileN] = key;
      }
    }
    if (C::Best && choices != nullptr) {
      const u64 key = drawnAmong<typename C::Y>(drawn, acc, col1, C::N, noise);
      const int h = lane % 4;
      if (h < 2 && (h == 0 ? drawn[0].how : drawn[1].how) != nullptr)
        best[(i64)(row0 + h * 8) * L::tilesN + tileN] = key;
    }
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c
