// linear for many rows, operands fp16 or bf16, sm_90a alone: Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// A block takes tiles of 128 x BN one after the other, every gridDim.x-th, row by row: blocks that
// run together read the same rows of X. W that L2 does not hold would come from memory for each of
// them, so RasterGroup rows of tiles go column by column then. Two warpgroups take turns: while one
// finishes its tile (epilogue and stores), the other multiplies the next, so the tensor cores do
// not stand still between tiles. A thread of a third has TMA fill a ring of Stages k-tiles of 64
// columns of K, ahead over the ends of tiles; the order of the k-tiles is what makes the warpgroups
// take turns. The other warps of the third bring what epilogues need to shared memory: operands of
// columns, and of a norm what belongs to rows. Norm and statistics are as in linear_tma.cuh; of
// rows that leave in lines of tiles that do not divide N, statistics are of parts of 64 columns.
//
// Cooperative: both warpgroups have 64 rows of each tile. Tiles may be wider then, and wider ones
// read less of shared memory for what they multiply, but nothing hides their ends beside the ring.
//
// With Residual, R[M,N] is added: a tile's part of it comes through the ring ahead of the tile's
// k-tiles, and the accumulators begin with it. Otherwise residualMap may be any map.
//
// Config: X (__half or __nv_bfloat16), Y (float or X's type), BN (a multiple of 16 that wgmma
// lists, at most 192; Cooperative: 8, at most 256), Stages, RasterGroup, Cooperative, Residual (Y
// and R in X's type, N and BN multiples of 64, and no norm).
// Kernel: xMap X[M,K] in boxes of 128 rows, wMap W[N,K] in boxes of BN rows, with Residual
// residualMap R[M,N] in boxes of 128 rows, y Y[M,N], m, backwards (1 for the last tile first),
// then the operands of the epilogue, of the norm and of the statistics. K is a multiple of 8.
// Grid: up to ceil(M / 128) * ceil(N / BN), one block for each SM; block:
// LinearTmaPersistent<C>::threads; dynamic shared: LinearTmaPersistent<C>::sharedBytes. Bytes:
// 2 (M K + N K) + sizeof(Y) M N + epilogue operands; flops: 2 M N K.
#pragma once

#include "templates/device/tma_pipeline.cuh"
#include "templates/device/wgmma.cuh"
#include "templates/linear/parts/epilogue.cuh"
#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_lines.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct LinearTmaPersistent {
  static constexpr int BM = 128, BK = 64;
  static constexpr bool whole = C::N % C::BN == 0;
  /// Whether rows leave in lines of 64 columns.
  static constexpr bool boxes = C::N % 64 == 0 && C::BN % 64 == 0;
  static constexpr bool lines =
      sizeof(typename C::Y) == 2 && (boxes || (C::Cooperative && whole && C::N % 8 == 0));
  static constexpr int groupRows = C::Cooperative ? 64 : BM; // of a tile
  static constexpr int threads = 384;
  static constexpr int ringBytes = C::Stages * (BM + C::BN) * BK * 2;
  static constexpr int sharedBytes =
      ringBytes + (lines ? 8 * tile::halvesBytes : 0) + 1024; // k-tiles begin at 1 KiB
  static_assert(C::BN % (C::Cooperative ? 8 : 16) == 0 && C::BN <= (C::Cooperative ? 256 : 192) &&
                C::Stages >= 2 && ((lines && boxes) || !C::Residual));
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Rows that are there when the predecessor has ended; others: templates/exchange/row_shares.cuh.
struct AllRows {
  static constexpr bool areShared = false;
};

/// The parameters of the kernel; `block` of `blocks`.
template <typename C, typename Epilogue, typename Norm, typename Statistics, typename Rows>
struct LinearTmaPersistentParams {
  const TensorMap &xMap, &wMap, &residualMap;
  typename C::Y *y;
  int m, backwards, block, blocks;
  void *dynamicShared;
  const Epilogue &epilogue;
  const Norm &norm;
  const Statistics &statistics;
  const Rows &rows;
};

/// A block's roles: a producer of the ring, helpers that stage operands, and two consumers.
template <typename C, typename Epilogue, typename Norm, typename Statistics, typename Rows>
struct LinearTmaPersistentBlock {
  using L = LinearTmaPersistent<C>;
  /// Warpgroups that have a share of a tile.
  static constexpr int shares = C::Cooperative ? 2 : 1, turns = 2 / shares;
  using Ring = KTileRing<L::BM, C::BN, C::Stages, 4 * shares>;
  static constexpr bool hasNorm = Norm::ofRows;
  static constexpr int columnOperands = Epilogue::columnOperands + Norm::columnOperands;
  static constexpr bool hasOperands = hasNorm || columnOperands > 0; // that helpers stage
  static constexpr int helpers = 96;                                 // threads
  // A tile's stages in the ring: those of R, each of some boxes of 64 columns, then its k-tiles.
  static constexpr int boxBytes = L::BM * 128, boxesOfStage = Ring::kTileBytes / boxBytes;
  static constexpr int boxes = C::Residual ? C::BN / 64 : 0;
  static constexpr int before = ceilDiv(boxes, boxesOfStage);
  static constexpr int kTiles = (C::K + L::BK - 1) / L::BK, steps = before + kTiles;
  static constexpr int tilesN = ceilDiv(C::N, C::BN);
  using Columns = float[2][maxInt(1, columnOperands)][C::BN];
  using NormRows = typename Norm::Row[2][hasNorm ? L::BM : 1];
  using Pair = Barrier[2]; // of either consumer

  using Params = LinearTmaPersistentParams<C, Epilogue, Norm, Statistics, Rows>;
  static constexpr bool scatters = gpt2c::epilogue::isScattered<Epilogue>;

  const Params p;
  // Shared memory.
  Ring &ring;
  Pair &done, &staged, &used;
  Columns &columns;
  NormRows &normRows;
  __half *shared;

  int group, warp, lane, tiles;
  int firstTile; // the row of tiles that comes first, where rows have an order

  __device__ __forceinline__ LinearTmaPersistentBlock(const Params &p, Ring &ring, Pair &done,
                                                      Pair &staged, Pair &used, Columns &columns,
                                                      NormRows &normRows)
      : p(p), ring(ring), done(done), staged(staged), used(used), columns(columns),
        normRows(normRows) {}

  __device__ __forceinline__ void run() {
    begin();
    if (group == 2) {
      releaseRegisters<(Rows::areShared || scatters ? 32 : 24)>();
      if (threadIdx.x % 128 == 0)
        produce();
      else if (warp > 0 && hasOperands)
        stageOperands();
    } else {
      claimRegisters<240>();
      consume();
    }
  }

  __device__ __forceinline__ void begin() {
    shared = alignedKTiles(p.dynamicShared);
    // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
    group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
    warp = threadIdx.x / 32 % 4;
    lane = threadIdx.x % 32;
    tiles = ceilDiv(p.m, L::BM) * tilesN;
    if constexpr (scatters)
      firstTile = p.epilogue.first(tiles / tilesN);
    else if constexpr (Rows::areShared)
      firstTile = p.rows.first(tiles / tilesN);
    if (threadIdx.x == 0) {
      ring.init();
      for (int i = 0; i < 2; i++) {
        done[i].init(4);
        staged[i].init(helpers);
        used[i].init(4 * shares);
      }
      fenceBarrierInit();
    }
    __syncthreads();
  }
  __device__ __forceinline__ int place(int tile) const {
    return p.backwards ? tiles - 1 - tile : tile;
  }
  __device__ __forceinline__ int firstRow(int tile) const { return tileRow(tile) * L::BM; }
  __device__ __forceinline__ int tileRow(int tile) const {
    const int at = place(tile);
    if constexpr (C::RasterGroup == 1)
      return inOrder(at / tilesN);
    const int band = at / (C::RasterGroup * tilesN);
    return inOrder(band * C::RasterGroup + at % (C::RasterGroup * tilesN) % rowsOf(band));
  }
  __device__ __forceinline__ int inOrder(int row) const {
    if constexpr (!scatters && !Rows::areShared)
      return row;
    const int rows = tiles / tilesN, turned = row + firstTile;
    return turned < rows ? turned : turned - rows;
  }
  __device__ __forceinline__ int firstColumn(int tile) const {
    const int at = place(tile);
    if constexpr (C::RasterGroup == 1)
      return at % tilesN * C::BN;
    return at % (C::RasterGroup * tilesN) / rowsOf(at / (C::RasterGroup * tilesN)) * C::BN;
  }
  /// The rows of tiles of a band.
  __device__ __forceinline__ int rowsOf(int band) const {
    return min(C::RasterGroup, tiles / tilesN - band * C::RasterGroup);
  }

  // The producer
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void produce() {
    constexpr int first = minInt(C::Stages, steps);
    for (int step = before; step < first; step++)
      loadW(step, firstColumn(p.block), step);
    waitForPredecessor();
    releaseSuccessor();
    Rows rows = p.rows;
    await(rows, p.block);
    for (int step = 0; step < minInt(before, first); step++)
      loadResidual(step, firstRow(p.block), firstColumn(p.block), step);
    for (int step = before; step < first; step++)
      loadX(step, firstRow(p.block), step);
    int stage = first % C::Stages, round = first / C::Stages;
    for (int tile = p.block, step = first; tile < tiles; tile += p.blocks, step = 0) {
      const int row = firstRow(tile), column = firstColumn(tile);
      await(rows, tile);
      for (; step < steps; step++) {
        if (round > 0)
          ring.empty[stage].wait((round - 1) % 2);
        if (step < before) {
          loadResidual(stage, row, column, step);
        } else {
          loadW(stage, column, step);
          loadX(stage, row, step);
        }
        if (++stage == C::Stages)
          stage = 0, round++;
      }
    }
  }
  /// The rows of a tile that others have ended.
  __device__ __forceinline__ void await(Rows &rows, int tile) const {
    if constexpr (Rows::areShared)
      rows.await(tileRow(tile), tiles / tilesN);
  }
  __device__ __forceinline__ void loadX(int stage, int row, int step) {
    ring.loadX(shared, stage, p.xMap, row, (step - before) * L::BK);
  }
  __device__ __forceinline__ void loadW(int stage, int column, int step) {
    ring.loadW(shared, stage, p.wMap, column, (step - before) * L::BK);
  }
  __device__ __forceinline__ void loadResidual(int stage, int row, int column, int step) {
    const int box = step * boxesOfStage, count = min(boxesOfStage, boxes - box);
    ring.full[stage].expect(count * boxBytes);
    for (int i = 0; i < count; i++)
      copyBox(reinterpret_cast<char *>(shared) + stage * Ring::kTileBytes + i * boxBytes,
              p.residualMap, row, column + (box + i) * 64, ring.full[stage]);
  }

  // The helpers
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void stageOperands() {
    waitForPredecessor();
    const int thread = threadIdx.x % 128 - 32;
    Rows rows = p.rows;
    for (int turn = 0, tile = p.block; tile < tiles; turn++, tile += p.blocks) {
      const int to = turn % 2, row0 = firstRow(tile), col0 = firstColumn(tile);
      if constexpr (hasNorm)
        await(rows, tile);
      if (turn > 1)
        used[to].wait((turn / 2 - 1) % 2);
      Epilogue epilogue = p.epilogue;
      Norm norm = p.norm;
      epilogue.stageColumns(columns[to], col0, C::N, thread, helpers);
      norm.stageColumns(columns[to] + Epilogue::columnOperands, col0, C::N, thread, helpers);
      copyAsyncCommit();
      if constexpr (hasNorm)
#pragma unroll 1
        for (int row = thread / 4; row - thread / 4 < L::BM; row += helpers / 4) {
          const typename Norm::Row r = p.norm.row(p.norm.load(row0 + row, p.m));
          if (row < L::BM && thread % 4 == 0)
            normRows[to][row] = r;
        }
      copyAsyncWait<0>();
      staged[to].arrive();
    }
  }

  // The consumers
  // -----------------------------------------------------------------------------------------------

  using Consumer = typename Ring::Consumer;
  static constexpr int rowBlocks = L::groupRows / 64;
  using Accumulators = float[rowBlocks][1][C::BN / 8][4]; // rows 0 and 64 on
  // Of the ring, for the tile at hand.
  int stage, parity;

  __device__ __forceinline__ void nextStage() {
    if (++stage == C::Stages)
      stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void consume() {
    const int ownRow = C::Cooperative ? group * 64 : 0, first = C::Cooperative ? 0 : group;
    const Consumer consumer(ring, shared, ownRow);
    Epilogue given = p.epilogue;
    if constexpr (gpt2c::epilogue::isSent<Epilogue> || scatters) {
      waitForPredecessor();
      given.begin();
    }
    const unsigned ringAddress = keptAddress(shared) + ownRow * 128;
    char *buffer = reinterpret_cast<char *>(shared) + L::ringBytes +
                   (group * 4 + warp) * (L::lines ? halvesBytes : 0);
    for (int turn = first, tile = p.block + first * p.blocks; tile < tiles;
         turn += turns, tile += turns * p.blocks) {
      Accumulators acc;
      const int row0 = firstRow(tile) + ownRow + warp * 16, col0 = firstColumn(tile);
      // A parity tells a phase from the next alone: no waiting for stages before the other group
      // has seen its last.
      if (!C::Cooperative && turn > 0)
        done[1 - group].wait((turn - 1) / 2 % 2);
      stage = turn * steps % C::Stages, parity = turn * steps / C::Stages % 2;
      takeResidual(consumer, acc, ringAddress);
      multiply(consumer, acc, turn);
      if (!C::Cooperative && lane == 0)
        done[group].arrive();
      wgmmaWait<0>();
      consumer.handBack((stage + C::Stages - 1) % C::Stages);
      finish(acc, given, turn, tile, row0, col0, ownRow, buffer);
    }
    if constexpr (scatters)
      given.end(8 * p.blocks);
  }
  /// The accumulators begin with R. The other group's last product is still under way.
  __device__ __forceinline__ void takeResidual(const Consumer &consumer, Accumulators &acc,
                                               unsigned ringAddress) {
#pragma unroll
    for (int step = 0; step < before; step++) {
      consumer.wait(stage, parity);
      const unsigned mine = ringAddress + stage * Ring::kTileBytes + (warp * 16 + lane % 16) * 128;
#pragma unroll
      for (int box = step * boxesOfStage; box < minInt(boxes, (step + 1) * boxesOfStage); box++)
#pragma unroll
        for (int i = 0; i < rowBlocks; i++)
#pragma unroll
          for (int j = 0; j < 8; j += 2) {
            unsigned r[4]; // rows 0 and 8 on of column tile j, and of the next
            loadMatrix4(r, mine + (box - step * boxesOfStage) * boxBytes + i * 64 * 128 +
                               ((j + lane / 16) ^ lane % 8) * 16);
#pragma unroll
            for (int k = 0; k < 4; k++) {
              const float2 f = Mma<typename C::X>::unpack(r[k]);
              float *to = &acc[i][0][box * 8 + j + k / 2][k % 2 * 2];
              to[0] = f.x;
              to[1] = f.y;
            }
          }
      // What is read into registers may still be on its way, behind the other group's product: TMA
      // must not be let in before it is there.
      fenceShared();
      consumer.handBack(stage);
      nextStage();
    }
  }
  __device__ __forceinline__ void multiply(const Consumer &consumer, Accumulators &acc, int turn) {
    if constexpr (steps % C::Stages == 0 && before == 0) {
      // Stages by constants, as in linear_tma.cuh.
      constexpr int rounds = steps / C::Stages;
#pragma unroll 1
      for (int round = 0; round < rounds; round++)
#pragma unroll
        for (int s = 0; s < C::Stages; s++)
          multiply(consumer, acc, round * C::Stages + s, s, (turn * rounds + round) % 2,
                   (s + C::Stages - 1) % C::Stages);
    } else {
      int previous = stage;
#pragma unroll 1 // more would need more registers than wgmma leaves
      for (int kTile = 0; kTile < kTiles; kTile++) {
        multiply(consumer, acc, kTile, stage, parity, previous);
        previous = stage;
        nextStage();
      }
    }
  }
  static __device__ __forceinline__ void multiply(const Consumer &consumer, Accumulators &acc,
                                                  int kTile, int stage, int parity, int previous) {
    consumer.wait(stage, parity);
    const u64 x = consumer.xAt(stage);
    const bool add = C::Residual || kTile > 0;
    if constexpr (rowBlocks == 1)
      multiplyKTile<typename C::X>(acc[0][0], x, consumer.wAt(stage), add);
    else
      multiplyKTile<typename C::X>(acc[0][0], acc[1][0], x, x + 64 * 128 / 16, consumer.wAt(stage),
                                   add);
    wgmmaWait<1>();
    if (kTile > 0)
      consumer.handBack(previous);
  }
  /// Whether the tile ends here: its sums are those of all ranks then.
  __device__ __forceinline__ bool addUp(Accumulators &acc, Epilogue &epilogue, int tile,
                                        int col0) const {
    bool ends = true;
    if constexpr (scatters) {
      static_assert(L::lines && !hasNorm);
      const int row = tileRow(tile);
#pragma unroll
      for (int i = 0; i < rowBlocks; i++) {
        const int half = C::Cooperative ? group : i;
        ends = epilogue.template addUp<typename C::Y>(
            acc[i][0], ((row * tilesN + col0 / C::BN) * 2 + half) * 4 + warp, row, tiles / tilesN);
      }
      if (ends)
        epilogue.locate();
    }
    return ends;
  }
  __device__ __forceinline__ void finish(Accumulators &acc, const Epilogue &given, int turn,
                                         int tile, int row0, int col0, int ownRow, char *buffer) {
    const int slot = turn % 2; // of the operands
    Epilogue epilogue = given;
    Norm norm = p.norm;
    // These take the places, and copy nothing.
    epilogue.stageColumns(columns[slot], col0, C::N, C::BN, 1);
    norm.stageColumns(columns[slot] + Epilogue::columnOperands, col0, C::N, C::BN, 1);
    if constexpr (hasOperands)
      staged[slot].wait(turn / 2 % 2);
    typename Norm::Row rows[rowBlocks][1][2], both[rowBlocks][2];
    if constexpr (hasNorm)
#pragma unroll
      for (int i = 0; i < 2 * rowBlocks; i++)
        both[i / 2][i % 2] = rows[i / 2][0][i % 2] =
            normRows[slot][ownRow + warp * 16 + i / 2 * 64 + i % 2 * 8 + lane / 4];
    if (addUp(acc, epilogue, tile, col0))
      store(acc, epilogue, norm, rows, both, row0, col0, buffer);
    if constexpr (hasOperands) {
      __syncwarp();
      if (lane == 0)
        used[slot].arrive();
    }
  }
  __device__ __forceinline__ auto statistics(const Epilogue &epilogue) const {
    if constexpr (scatters)
      return epilogue.onRanks(p.statistics);
    else
      return p.statistics;
  }
  __device__ __forceinline__ void store(Accumulators &acc, const Epilogue &epilogue,
                                        const Norm &norm,
                                        const typename Norm::Row (&rows)[rowBlocks][1][2],
                                        const typename Norm::Row (&both)[rowBlocks][2], int row0,
                                        int col0, char *buffer) const {
    if constexpr (L::lines && gpt2c::epilogue::isGated<Epilogue>) {
      storeGatedLines<L::whole>(acc, p.y, p.m, C::N, row0, col0, buffer, epilogue, norm, both);
    } else if constexpr (L::lines) {
      storeLines<L::whole>(acc, p.y, {p.m, C::N}, row0, col0, buffer, epilogue, norm, both,
                           statistics(epilogue));
    } else {
#pragma unroll
      for (int i = 0; i < rowBlocks; i++)
        storeTile<1, (C::BN > 144 ? 1 : 9), L::whole>(acc[i], p.y, p.m, C::N, row0 + i * 64, col0,
                                                      nullptr, nullptr, 0, epilogue, norm, rows[i],
                                                      statistics(epilogue));
    }
  }
};

#endif

template <typename C, typename Epilogue, typename Norm = NoNorm, typename Statistics = NoStatistics,
          typename Rows = AllRows>
__device__ __forceinline__ void
linearTmaPersistent(const TensorMap &xMap, const TensorMap &wMap, const TensorMap &residualMap,
                    typename C::Y *y, int m, SnakeTurn turn, void *dynamicShared,
                    const Epilogue &epilogue, const Norm &norm = {},
                    const Statistics &statistics = {}, const Rows &rows = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Block = LinearTmaPersistentBlock<C, Epilogue, Norm, Statistics, Rows>;
  __shared__ typename Block::Ring ring;
  __shared__ typename Block::Pair done, staged, used;
  __shared__ alignas(16) typename Block::Columns columns;
  __shared__ typename Block::NormRows normRows;
  Block roles({xMap, wMap, residualMap, y, m, turn.backwards, turn.block, turn.blocks,
               dynamicShared, epilogue, norm, statistics, rows},
              ring, done, staged, used, columns, normRows);
  roles.run();
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c
