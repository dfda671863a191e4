// What a block has and does for several sequences at once, see persistent_cluster_batch.cuh.
#pragma once

#include "persistent_cluster_stream.cuh"

namespace gpt2c::clusters {

constexpr int rows = 8; ///< of x, one for each block of a cluster

/// Elements of T from one row in shared memory to the next, so that vectors of 16 bytes that a
/// quarter of a warp reads, four of each of two rows, are in different banks.
template <typename T> constexpr int rowPitch(int n) {
  return n * (int)sizeof(T) % 128 == 64 ? n : n + 64 / (int)sizeof(T);
}

template <typename C> struct Shared<C, decltype((void)C::Sequences)> {
  using L = Layout<C>;
  using T = typename C::T;
  alignas(128) char ring[C::Slots][L::slotBytes];
  alignas(16) Record records[C::Records];
  /// Sums of first products of this block's sequence, with the statistics of its row of x.
  template <int Rows> struct Sums {
    float sum[ranks][Rows];
    float2 statistics[ranks];
  };
  struct alignas(16) Halves {
    Sums<L::headRows> head;
    Sums<L::hidden> mlp;
  };
  struct alignas(16) Whole {
    T x[rows][rowPitch<T>(C::D)];
    float2 statistics[rows][ranks];
  };
  /// The whole of x comes when the sums of the last MLP have been read.
  union {
    Halves half;
    Whole whole;
  };
  struct alignas(16) Parts {
    float out[L::warps + 1][headDim];
    float2 softmax[L::warps + 1]; ///< maximum (base 2) and sum
  };
  /// Of attention: what each warp has of it; of an MLP: sums of the second half of the hidden
  /// columns.
  union {
    Parts parts;
    float4 second[L::slice / 16][32];
  };
  alignas(16) T x[rows][rowPitch<T>(L::slice)]; ///< with the gain
  alignas(16) T query[headDim];                 ///< of this block's sequence
  alignas(16) T hidden[rows][rowPitch<T>(L::hidden)];
  alignas(16) T out[rows][rowPitch<T>(headDim)]; ///< what the blocks have of attention
  float2 softmax[ranks];
  alignas(16) float plain[rows][rowPitch<float>(L::slice)]; ///< x without the gain
  u64 best[rows][L::warps];
  u64 full[C::Slots], empty[C::Slots];
  u64 arrived[5];
  u64 chosen; ///< the step's tokens have been
  int unit[C::Slots];
  int vocabularySlots;
  int id[rows], past[rows];
};
enum { AtHidden = AtWhole + 1 };

/// Where rows of Columns weights are in a slot, so that what the lanes of a quarter of a warp read
/// of rows 2 g and the next even one, pieces of four vectors, is in different banks.
template <typename C, int Columns> struct StripOrder {
  static constexpr int piece = 32 * (int)sizeof(typename C::W), pieces = Columns / 32;
  static constexpr bool even = pieces % 2 == 0; ///< else rows begin in different banks
  static constexpr int mask = even ? minInt(pieces, 128 / piece) - 1 : 0;

  static __device__ __forceinline__ int exchanged(int i) {
    return even ? i : (i & ~3) | (i & 1) << 1 | (i >> 1 & 1);
  }
  /// The row in place i and the place of row i.
  static __device__ __forceinline__ int rowAt(int i) { return exchanged(i); }
  static __device__ __forceinline__ int placeOf(int i) { return exchanged(i); }
  /// The chunk of 16 bytes of the row in place i that is the slot's chunk `chunk` of it.
  static __device__ __forceinline__ int chunkAt(int i, int chunk) {
    return chunk ^ (rowAt(i) >> 1 & mask) * (piece / 16);
  }
  /// Where piece i of a row is.
  static __device__ __forceinline__ int pieceOf(int row, int i) { return i ^ (row >> 1 & mask); }
};

#if __CUDA_ARCH__ >= 900

/// The keys of this block: those of its sequence, or a share of them where sequences are fewer than
/// blocks.
template <typename C> struct RowKeys {
  static constexpr int shares = ranks / C::Sequences;
  int first, count, tiles, pairs; ///< pairs: slots of keys, each with one of values behind it
  __device__ __forceinline__ RowKeys(int past, int share) {
    const int all = ceilDiv(past, keyTile);
    first = all * share / shares * keyTile;
    count = min(past, all * (share + 1) / shares * keyTile) - first;
    tiles = ceilDiv(count, keyTile);
    pairs = ceilDiv(tiles, Layout<C>::slotTiles);
  }
};

/// The best logit of each block for a row.
template <typename C>
__device__ __forceinline__ u64 *rowChoices(const Record &step, unsigned third, int row) {
  return blockChoices<C>(step, 4) + (third * rows + row) * persistent::maxBlocks;
}

template <typename C> struct RowsStep : Step<C> {
  using Base = Step<C>;
  using L = Layout<C>;
  using T = typename C::T;
  using W = typename C::W;
  using Base::warps, Base::shared, Base::warp, Base::lane, Base::g, Base::t, Base::cluster,
      Base::rank, Base::offset, Base::slot, Base::lap, Base::turn, Base::advance, Base::distance,
      Base::slotAt, Base::waitSlot, Base::waitArrival, Base::refresh, Base::moments, Base::gather;
  using typename Base::Constants;
  using typename Base::Moments;

  int batch = 1;
  float2 residual;

  // The ring
  // -----------------------------------------------------------------------------------------------

  /// A slot is free when this many have given it back.
  static constexpr int users = L::slotTiles;

  __device__ __forceinline__ void giveBack(int i, int times) const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(
                     sharedAddress(&shared.empty[slotAt(i)])),
                 "r"(times)
                 : "memory");
  }
  /// Gives the next n slots back for all, behind a barrier of those who have read them.
  __device__ __forceinline__ void giveBackAll(int n) {
    if (lane < n)
      giveBack(lane, users);
    __syncwarp();
    advance(n);
  }

  // Products: 16 rows of weights of a warp times the rows of x
  // -----------------------------------------------------------------------------------------------

  /// Rows 2 g and 2 g + 1 of a tile from column `column` on, once they are there.
  template <int K, int Pitch>
  __device__ __forceinline__ void loadStrip(typename Base::template Tile<K, Pitch> &to, int first,
                                            int tile, int column = 0) const {
    using Order = StripOrder<C, Pitch>;
    constexpr int each = L::slotWeights / Pitch;
    static_assert(each % 8 == 0);
    waitSlot(first + tile * 16 / each);
    if (each % 16 != 0)
      waitSlot(first + (tile * 16 + 15) / each);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int row = tile * 16 + 2 * g + j, place = Order::placeOf(row % each);
      const char *from = shared.ring[slotAt(first + row / each)] + place * Pitch * (int)sizeof(W);
#pragma unroll
      for (int i = 0; i < K / 32; i++) {
        const char *at = from + Order::pieceOf(row, column / 32 + i) * Order::piece;
        if constexpr (sizeof(W) == 2) {
          to.w[i][j] = reinterpret_cast<const uint4 *>(at)[t];
        } else {
          const uint2 word = reinterpret_cast<const uint2 *>(at)[t];
          const quantised::HalfPairs a = quantised::halves(word.x), b = quantised::halves(word.y);
          to.w[i][j] = {a.low, a.high, b.low, b.high};
        }
      }
    }
  }
  /// x: vector i of the lane's, of row g.
  template <typename P, typename X>
  static __device__ __forceinline__ void multiply(const P &tile, float (&out)[4], X &&x) {
    constexpr int chains = P::pieces % 2 ? 3 : 4;
    float sum[chains][4] = {};
#pragma unroll
    for (int i = 0; i < P::pieces; i++) {
      const uint4 b = x(i);
      const unsigned low[4] = {tile.w[i][0].x, tile.w[i][1].x, tile.w[i][0].y, tile.w[i][1].y};
      const unsigned high[4] = {tile.w[i][0].z, tile.w[i][1].z, tile.w[i][0].w, tile.w[i][1].w};
      mma16816(sum[2 * i % chains], low, b.x, b.y);
      mma16816(sum[(2 * i + 1) % chains], high, b.z, b.w);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      out[j] = sum[0][j];
#pragma unroll
      for (int c = 1; c < chains; c++)
        out[j] += sum[c][j];
    }
  }
  template <int Pitch>
  __device__ __forceinline__ auto rowsIn(const T (&x)[rows][Pitch], int column = 0) const {
    return [at = reinterpret_cast<const uint4 *>(&x[g][column]) + t](int i) { return at[i * 4]; };
  }
  /// The sums of row n of x go to block n.
  template <typename Sums>
  __device__ __forceinline__ void sendRowSums(const float (&sum)[4], Sums &to, u64 *barrier,
                                              int tile) {
    const unsigned at = sharedAddress(&to.sum[rank][tile * 16 + 2 * g]),
                   done = sharedAddress(barrier);
    const unsigned low = distance(2 * t), high = distance(2 * t + 1);
    send(at + low, sum[0], sum[2], done + low);
    send(at + high, sum[1], sum[3], done + high);
  }
  template <int N> struct FirstProducts {
    static constexpr int tiles = N / 16, count = ceilDiv(tiles, warps);
    typename Base::template Tile<L::slice> weights[count];
    __device__ __forceinline__ explicit FirstProducts(RowsStep &step) {
      // Without a condition, else what is not loaded would have to be kept.
#pragma unroll
      for (int i = 0; i < count; i++)
        step.loadStrip(weights[i], 0, min(step.warp + i * warps, tiles - 1));
      step.advance(N / 64);
    }
    template <typename Sums>
    __device__ __forceinline__ void multiply(RowsStep &step, Sums &sums, int at) const {
#pragma unroll
      for (int i = 0; i < count; i++)
        if (const int tile = step.warp + i * warps; tile < tiles) {
          float sum[4];
          RowsStep::multiply(weights[i], sum, step.rowsIn(step.shared.x));
          step.sendRowSums(sum, sums, &step.shared.arrived[at], tile);
        }
    }
  };
  /// Publishes sums of 16 columns of x: 8 bytes a lane, columns 2 g and the next of rows 2 t and
  /// the next.
  __device__ __forceinline__ void publishRows(const Record &half, int tile, const float (&sum)[4],
                                              float2 scale) {
    char *const to = half.pointer<char>(Partials) + offset +
                     ((cluster * ranks + rank) * L::slice / 16 + tile) * 256 + lane * 8;
    persistent::publishPair(to, (u64)persistent::channelWord(sum[2] * scale.y, sum[3] * scale.y)
                                        << 32 |
                                    persistent::channelWord(sum[0] * scale.x, sum[1] * scale.x));
  }
  /// 16 bytes, of which each of the four lanes of one g has a word, to all blocks.
  __device__ __forceinline__ void sendVector(unsigned word, unsigned to, int barrier) {
    uint4 v;
    v.x = __shfl_sync(fullWarp, word, g * 4);
    v.y = __shfl_sync(fullWarp, word, g * 4 + 1);
    v.z = __shfl_sync(fullWarp, word, g * 4 + 2);
    v.w = __shfl_sync(fullWarp, word, g * 4 + 3);
    const unsigned low = distance(t), high = distance(t + 4),
                   done = sharedAddress(&shared.arrived[barrier]);
    send(to + low, v, done + low);
    send(to + high, v, done + high);
  }

  // x: a lane has a pair of columns of a row
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ int column() const {
    return (warp * 4 + lane % 8 / 2) * 2;
  } ///< of the slice
  __device__ __forceinline__ int row() const { return lane % 2 * 4 + lane / 16 * 2 + lane / 8 % 2; }
  __device__ __forceinline__ void embedRows(const Record &r, int step) {
    const int id = shared.id[row()],
              position = max(0, min(shared.past[row()] + step, r.integer(Context) - 1));
    const int at = rank * L::slice + column();
    float v[2];
    loadFloats<2>(r.pointer<const typename C::Embedding>(First) + (i64)id * C::D + at, v);
    if constexpr (C::Groups > 0) {
      const float scale =
          r.pointer<const float>(FirstScales)[(i64)id * C::Groups + at / (C::D / C::Groups)];
      v[0] *= scale;
      v[1] *= scale;
    }
    if constexpr (C::Position) {
      float w[2];
      loadFloats<2>(r.pointer<const T>(Second) + (i64)position * C::D + at, w);
      v[0] += w[0];
      v[1] += w[1];
    }
    residual = {v[0], v[1]};
  }
  __device__ __forceinline__ void receiveRows(const Record &half) {
    constexpr int loads = ceilDiv(C::Heads, 4);
    const int source = lane / 8;
    const uint4 *from =
        reinterpret_cast<const uint4 *>(half.pointer<const char>(Partials) + offset) +
        (source * ranks + rank) * L::slice + warp * 8 + lane % 8;
    const float2 bias =
        persistent::loadEarly(half.pointer<const float>(SecondBias) + rank * L::slice + column());
    uint4 v[loads] = {};
    Patience patience;
    bool missing;
    do {
      missing = false;
#pragma unroll
      for (int i = 0; i < loads; i++)
        persistent::loadGroup(v[i], from + i * 4 * ranks * L::slice,
                              source + i * 4 < C::Heads && (v[i].y == 0 || v[i].w == 0));
#pragma unroll
      for (int i = 0; i < loads; i++)
        missing |= source + i * 4 < C::Heads && (v[i].y == 0 || v[i].w == 0);
      patience.spend();
    } while (__any_sync(fullWarp, missing));
    float2 sum[4] = {};
#pragma unroll
    for (int i = 0; i < loads; i++) {
      const unsigned word[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float2 a = __half22float2(*reinterpret_cast<const __half2 *>(&word[j]));
        sum[j].x += a.x;
        sum[j].y += a.y;
      }
    }
    // Of words 0 .. 3: columns 0 and 1 of rows 0 and 1, then of rows 2 and 3.
    const bool late = lane & 16, odd = lane & 8;
    float2 two[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float2 give = late ? sum[j] : sum[2 + j], keep = late ? sum[2 + j] : sum[j];
      two[j] = {keep.x + __shfl_xor_sync(fullWarp, give.x, 16),
                keep.y + __shfl_xor_sync(fullWarp, give.y, 16)};
    }
    residual.x += (odd ? two[0].y : two[0].x) +
                  __shfl_xor_sync(fullWarp, odd ? two[0].x : two[0].y, 8) + bias.x;
    residual.y += (odd ? two[1].y : two[1].x) +
                  __shfl_xor_sync(fullWarp, odd ? two[1].x : two[1].y, 8) + bias.y;
  }
  template <bool Gained> __device__ __forceinline__ float2 loadRowGain(const Record &half) const {
    if constexpr (!Gained)
      return {1.0f, 1.0f};
    float v[2];
    loadFloats<2>(half.pointer<const T>(Gain) + rank * L::slice + column(), v);
    return {v[0], v[1]};
  }
  __device__ __forceinline__ void storeRows(float2 gain) {
    *reinterpret_cast<float2 *>(&shared.plain[row()][column()]) = residual;
    const float v[2] = {residual.x * gain.x, residual.y * gain.y};
    storeFloats<2>(&shared.x[row()][column()], v);
  }
  /// Mean and sum of squared differences of the lane's row, g.
  __device__ __forceinline__ float2 rowStatistics(NormKind norm) const {
    constexpr int vectors = L::slice / 16;
    float4 v[vectors];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < vectors; i++) {
      v[i] = *reinterpret_cast<const float4 *>(&shared.plain[g][(i * 4 + t) * 4]);
      sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    float mean = 0.0f;
    if (norm == NormKind::Layer)
      mean = warpReduce<Sum, 4>(sum) * (1.0f / L::slice);
#pragma unroll
    for (int i = 0; i < vectors; i++) {
      squares = fmaf(v[i].x - mean, v[i].x - mean, squares);
      squares = fmaf(v[i].y - mean, v[i].y - mean, squares);
      squares = fmaf(v[i].z - mean, v[i].z - mean, squares);
      squares = fmaf(v[i].w - mean, v[i].w - mean, squares);
    }
    return {mean, warpReduce<Sum, 4>(squares)};
  }
  /// Those of row n to block n.
  __device__ __forceinline__ void sendRowStatistics(const float2 *to, int barrier) const {
    const float2 v = rowStatistics(C::Norm);
    if (t == 0)
      send(remote(sharedAddress(to + rank), g), v.x, v.y,
           remote(sharedAddress(&shared.arrived[barrier]), g));
  }

  // MLP
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void mlpRows(const Record &half) {
    auto &sums = shared.half.mlp;
    constexpr int outTiles = L::slice / 16, columns = L::hidden / 2,
                  middle = ceilDiv(L::hidden / 2, 32);
    static_assert(2 * outTiles == warps && middle <= warps && L::hidden % 64 == 0);
    const int pair = threadIdx.x, tile = warp % outTiles, part = warp / outTiles;
    Constants c;
    if (warp < middle)
      c = Base::constants(half, cluster * L::hidden + 2 * pair);
    const float2 outScales = Base::secondScales(half, tile);
    typename Base::template Tile<columns, L::hidden> weights;
    loadStrip(weights, 0, tile, part * columns);
    advance(L::outputSlots);
    waitArrival(&shared.arrived[AtMlp], turn & 1);
    if (threadIdx.x == 0)
      persistent::barrierExpect(&shared.arrived[AtMlp], ranks * (L::hidden * 4 + 8));
    if (warp < middle) {
      const float2 v = gather(sums.sum, 2 * pair, c, moments(sums.statistics, half));
      float out[2] = {v.x, v.y};
      C::activate(out);
      sendVector(packHalves(out[0], out[1]), sharedAddress(&shared.hidden[rank][pair / 4 * 8]),
                 AtHidden);
    }
    waitArrival(&shared.arrived[AtHidden], turn & 1);
    if (threadIdx.x == 0)
      persistent::barrierExpect(&shared.arrived[AtHidden], rows * L::hidden * (int)sizeof(T));
    float sum[4];
    multiply(weights, sum, rowsIn(shared.hidden, part * columns));
    if (part == 1)
      shared.second[tile][lane] = {sum[0], sum[1], sum[2], sum[3]};
    Base::template sync<3, warps + 1>();
    if (part == 0) {
      const float4 other = shared.second[tile][lane];
      sum[0] += other.x;
      sum[1] += other.y;
      sum[2] += other.z;
      sum[3] += other.w;
      publishRows(half, tile, sum, outScales);
    }
  }

  __device__ __forceinline__ void attentionRows(const Record &half, int past);
  __device__ __forceinline__ void newToken(const Record &half, int past);
  __device__ __forceinline__ void vocabularyRows(const Record &record);
  __device__ __forceinline__ void compute(int layers, int steps);
  __device__ __forceinline__ void help(int layers, int steps);
};
#endif
} // namespace gpt2c::clusters
