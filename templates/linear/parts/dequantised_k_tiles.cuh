// The k-tiles of a product whose weights may be int8: KTileRing's of X and W in fp16, filled by the
// TMA. int8 weights come in k-tiles of 128 bytes, 128 columns of K, through a ring of their
// own, and warpgroups that take turns make two k-tiles of halves of each. Those that multiply see
// no difference.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/device/tma_pipeline.cuh"

namespace gpt2c {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The first row and column of a tile; no row: there is none.
struct TilePlace {
  int row, column;
};
/// The k-tiles of K that a tile has; for int8 weights both are even, with k-tiles of zeros behind
/// K.
struct KTileRange {
  int first, count;
};

/// Warps: those that hand each k-tile back. Converters: warpgroups. Copies end in any order, and a
/// parity tells a phase from the next alone, so who waits for a raw k-tile has to have seen the one
/// before at its stage: RawStages is a multiple of Converters, or no stage is used again.
template <typename W, int BM, int BN, int Stages, int RawStages, int Warps, int Converters,
          int XRows = BM>
struct DequantisedKTiles {
  static constexpr bool int8 = Operand<W>::scaled;
  using Ring = KTileRing<BM, BN, Stages, Warps, XRows>;
  using Consumer = typename Ring::Consumer;
  static constexpr int rawBytes = BN * 128;

  struct Barriers {
    Ring kTiles;
    Barrier rawFull[maxInt(RawStages, 1)], rawEmpty[maxInt(RawStages, 1)];

    /// By one thread; a barrier of the block has to follow.
    __device__ __forceinline__ void init() {
      kTiles.init();
      if constexpr (int8) {
        for (int s = 0; s < Stages; s++)
          kTiles.full[s].init(1 + 4);
        for (int s = 0; s < RawStages; s++) {
          rawFull[s].init(1);
          rawEmpty[s].init(4);
        }
        fenceBarrierInit();
      }
    }
  };
  __device__ __forceinline__ static char *raw(void *shared, int stage) {
    return static_cast<char *>(shared) + Stages * Ring::kTileBytes + stage * rawBytes;
  }

  /// By one thread: fills the k-tiles of tile after tile, int8 weights excepted. place(i): that of
  /// the i-th.
  template <typename Place>
  __device__ __forceinline__ static void load(Barriers &b, void *shared, const TensorMap &xMap,
                                              const TensorMap &wMap, KTileRange kTiles,
                                              Place &&place) {
    prefetchMap(xMap);
    auto loadW = [&](int stage, int column, int kTile) {
      if constexpr (int8)
        b.kTiles.full[stage].expect(XRows * 128);
      else
        b.kTiles.loadW(shared, stage, wMap, column, (kTiles.first + kTile) * 64);
    };
    auto loadX = [&](int stage, int row, int kTile) {
      b.kTiles.loadX(shared, stage, xMap, row, (kTiles.first + kTile) * 64);
    };
    TilePlace at = place(0);
    const int first = minInt(Stages, kTiles.count);
    for (int kTile = 0; kTile < first; kTile++)
      loadW(kTile, at.column, kTile);
    waitForPredecessor();
    releaseSuccessor();
    for (int kTile = 0; kTile < first; kTile++)
      loadX(kTile, at.row, kTile);
    int stage = first % Stages, round = first / Stages, kTile = first;
    for (int i = 0; at.row >= 0; kTile = 0, at = place(++i))
      for (; kTile < kTiles.count; kTile++) {
        if (round > 0)
          b.kTiles.empty[stage].wait((round - 1) % 2);
        loadW(stage, at.column, kTile);
        loadX(stage, at.row, kTile);
        if (++stage == Stages)
          stage = 0, round++;
      }
  }
  /// The same for int8 weights, which wait for nobody.
  template <typename Place>
  __device__ __forceinline__ static void loadRaw(Barriers &b, void *shared, const TensorMap &wMap,
                                                 KTileRange kTiles, Place &&place) {
    int stage = 0, round = 0;
    TilePlace at = place(0);
    for (int i = 0; at.row >= 0; at = place(++i))
      for (int kTile = 0; kTile < kTiles.count; kTile += 2) {
        if (round > 0)
          b.rawEmpty[stage].wait((round - 1) % 2);
        b.rawFull[stage].expect(rawBytes);
        copyBox(raw(shared, stage), wMap, at.column, (kTiles.first + kTile) * 32, b.rawFull[stage]);
        if (++stage == RawStages)
          stage = 0, round++;
      }
  }

  /// By warpgroup `converter` of those that do: of `count` k-tiles, `kTiles` of each tile, its
  /// pairs, times a factor for each element of K, of which `factors` has those of a tile, in shared
  /// memory; null: none.
  __device__ __forceinline__ static void convert(Barriers &b, void *shared, int converter,
                                                 int count, int kTiles,
                                                 const __half *factors = nullptr) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    // Eight lanes read 128 columns of a row; a store's are of either k-tile and of different banks.
    const int unit = lane % 8, odd = unit / 4, row = warp * 4 + lane / 8;
    constexpr int groups = BN / 16, chunk = groups % 4 == 0 ? 4 : groups % 3 == 0 ? 3 : groups;
#pragma unroll 1
    for (int pair = converter; 2 * pair < count; pair += Converters) {
      const int rawStage = pair % RawStages, kTile = 2 * pair;
      uint4 factor[2];
      if (factors != nullptr)
#pragma unroll
        for (int e = 0; e < 2; e++)
          factor[e] = reinterpret_cast<const uint4 *>(factors + kTile % kTiles * 64 + unit * 16)[e];
      b.rawFull[rawStage].wait(pair / RawStages % 2);
      const char *from = raw(shared, rawStage) + row * 128 + (unit ^ row % 8) * 16;
      char *to = static_cast<char *>(shared) + (kTile + odd) % Stages * Ring::kTileBytes +
                 (BM + row) * 128;
#pragma unroll
      for (int first = 0; first < groups; first += chunk) {
        // All loads come before the first store, which the compiler does not know to be elsewhere.
        uint4 v[chunk];
#pragma unroll
        for (int i = 0; i < chunk; i++)
          v[i] = *reinterpret_cast<const uint4 *>(from + (first + i) * 16 * 128);
        uint4 all[chunk][2];
#pragma unroll
        for (int i = 0; i < chunk; i++) {
          const unsigned words[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
          uint4(&halves)[2] = all[i];
          unsigned *const h = reinterpret_cast<unsigned *>(halves);
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const HalfPairs p = Operand<W>::halves(words[e]);
            h[2 * e] = p.low;
            h[2 * e + 1] = p.high;
          }
          if (factors != nullptr)
#pragma unroll
            for (int e = 0; e < 8; e++)
              reinterpret_cast<__half2 *>(halves)[e] =
                  __hmul2(reinterpret_cast<const __half2 *>(halves)[e],
                          reinterpret_cast<const __half2 *>(factor)[e]);
        }
        // The first halves are made while those before them are multiplied.
        if (first == 0)
#pragma unroll
          for (int e = 0; e < 2; e++)
            if (kTile + e >= Stages)
              b.kTiles.empty[(kTile + e) % Stages].wait(((kTile + e) / Stages - 1) % 2);
#pragma unroll
        for (int i = 0; i < chunk; i++)
#pragma unroll
          for (int e = 0; e < 2; e++)
            *reinterpret_cast<uint4 *>(to + (first + i) * 16 * 128 +
                                       ((unit % 4 * 2 + (e ^ odd)) ^ row % 8) * 16) =
                odd ? all[i][1 - e] : all[i][e];
      }
      fenceShared();
      __syncwarp();
      if (lane == 0) {
        b.kTiles.full[kTile % Stages].arrive();
        b.kTiles.full[(kTile + 1) % Stages].arrive();
        b.rawEmpty[rawStage].arrive();
      }
    }
  }
};

#endif

} // namespace gpt2c
