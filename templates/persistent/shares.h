// How a decode step of any shape is divided over thread block clusters (persistent_shares.cuh), for
// host and device: C++17, without any other header.
//
// A cluster of `ranks` blocks has a head, or some that share keys and values, or none, and a share
// of the hidden columns of the MLP; a block of it has a slice of the columns of x. Products are
// made in tiles of 16 rows of weights, whose columns may come in several chunks; a slot of the ring
// holds a chunk of a tile, or up to four tiles of narrow ones.
#pragma once

#ifdef __CUDACC__
#define GPT2C_BOTH __host__ __device__
#else
#define GPT2C_BOTH
#endif

namespace gpt2c::shares {

constexpr int warps = 12;               ///< that compute
constexpr int helpers = 1, loaders = 3; ///< warps beside them
constexpr int threads = 32 * (warps + helpers + loaders);
constexpr int tileRows = 16; ///< also keys of a tile
constexpr int mostRanks = 8, mostSources = 32;
/// Times that the readers of a slot arrive at its barrier, all together.
constexpr int arrivals = 4;

GPT2C_BOTH constexpr int ceilDiv(int a, int b) { return (a + b - 1) / b; }
GPT2C_BOTH constexpr int roundUp(int n, int to) { return ceilDiv(n, to) * to; }
GPT2C_BOTH constexpr int least(int a, int b) { return a < b ? a : b; }

/// Rows of weights in the ring, `size` bytes each. Lanes 4 apart read neighbouring pairs of rows, 64
/// bytes each, so a pair's distance is an odd multiple of 64 bytes: eight lanes read from different
/// banks.
struct Product {
  int rows, chunks;
  int size;    ///< of a weight
  int columns; ///< of a chunk
  int padded;  ///< the same with zeros behind them, as four lanes read 64 bytes
  int pitch;   ///< bytes from row to row
  int tileBytes;
  int tiles;
  int each; ///< tiles of a slot
  int slots;
};
GPT2C_BOTH constexpr int tileBytesOf(int columns, int size) {
  return tileRows * (roundUp(columns * size, 64) + 32);
}
GPT2C_BOTH constexpr Product product(int rows, int k, int chunks, int slotBytes, int size) {
  Product p = {};
  p.rows = rows;
  p.chunks = chunks;
  p.size = size;
  p.columns = roundUp(ceilDiv(k, chunks), (chunks > 1 ? 32 : 16) / size); // whole sectors of L2
  p.padded = roundUp(p.columns, 64 / size);
  p.pitch = p.padded * size + 32;
  p.tileBytes = tileBytesOf(p.columns, size);
  p.tiles = ceilDiv(rows, tileRows);
  p.each = chunks > 1 ? 1 : slotBytes >= 4 * p.tileBytes ? 4 : slotBytes >= 2 * p.tileBytes ? 2 : 1;
  p.slots = ceilDiv(p.tiles, p.each) * chunks;
  return p;
}

/// Columns of a group that stays together: a sector of L2, if n is a multiple.
GPT2C_BOTH constexpr int groupOf(int n, int size) { return (n * size % 32 == 0 ? 32 : 16) / size; }
/// What of a vector of n columns part i of `parts` has: whole groups, as equal as they can be.
struct Range {
  int begin, count;
};
GPT2C_BOTH constexpr Range shareOf(int n, int parts, int i, int size) {
  const int group = groupOf(n, size), begin = (int)((long long)(n / group) * i / parts),
            end = (int)((long long)(n / group) * (i + 1) / parts);
  return {begin * group, (end - begin) * group};
}
/// The most columns of a share.
GPT2C_BOTH constexpr int largestShare(int n, int parts, int size) {
  return ceilDiv(n / groupOf(n, size), parts) * groupOf(n, size);
}

/// Parts of equal size, of which the last has the rest.
GPT2C_BOTH constexpr int sliceOf(int n, int parts, int size) {
  return roundUp(ceilDiv(n, parts), 16 / size);
}
GPT2C_BOTH constexpr int sliceCount(int n, int parts, int i, int size) {
  const int slice = sliceOf(n, parts, size), left = n - i * slice;
  return left < 0 ? 0 : least(slice, left);
}

/// The shape of a step, and how it is divided.
struct Division {
  int width, heads, headDim, hidden, vocabulary;
  int weightSize = 2; ///< bytes of a weight
  int keyHeads = 0;   ///< of keys and values, each of heads / keyHeads heads
  int rotary = 0;     ///< pairs of a head that turn with the position
  bool gated = false; ///< of the MLP's hidden columns each is made of two rows, gate and value
  int headsEach = 1;  ///< of a cluster, all with the same keys
  int ranks = 0, clusters = 0;
  int leastClusters = 0;                      ///< with which it runs, too
  int firstChunks = 0;                        ///< of the columns of first products
  int projectionChunks = 1, outputChunks = 1; ///< of second ones
  int lastChunks = 0;                         ///< of those of the vocabulary
  int slotBytes = 0, slots = 0;

  /// Whether heads share keys or turn: attention is that of persistent_shares_groups.cuh.
  GPT2C_BOTH constexpr bool grouped() const { return rotary > 0 || keyHeads != heads; }
  /// Clusters with heads: the first ones.
  GPT2C_BOTH constexpr int busy() const { return heads / headsEach; }
  GPT2C_BOTH constexpr int share(int ofClusters) const {
    return largestShare(hidden, ofClusters, weightSize);
  }
  GPT2C_BOTH constexpr int slice() const { return sliceOf(width, ranks, weightSize); }
};

struct Products {
  Product head, projection, hidden, output, keys, logits;
};
GPT2C_BOTH constexpr Products productsOf(const Division &d) {
  const int slice = d.slice(), share = d.share(d.leastClusters), size = d.weightSize;
  return {product((d.headsEach + 2) * d.headDim, slice, d.firstChunks, d.slotBytes, size),
          product(slice, d.headsEach * d.headDim, d.projectionChunks, d.slotBytes, size),
          product(d.gated ? 2 * share : share, slice, d.firstChunks, d.slotBytes, size),
          product(slice, share, d.outputChunks, d.slotBytes, size),
          product(tileRows, d.headDim, 1, d.slotBytes, 2),
          product(tileRows, d.width, d.lastChunks, d.slotBytes, size)};
}
/// Columns of x that the chunks of a product read, zeros behind the last one included.
GPT2C_BOTH constexpr int operandColumns(const Product &p) {
  return (p.chunks - 1) * p.columns + p.padded;
}

/// Bytes of shared memory beside the ring; records: of a step.
GPT2C_BOTH constexpr int otherBytes(const Division &d, int records) {
  const Products p = productsOf(d);
  const int slice = d.slice();
  return records * 128 +                                                   //
         d.ranks * 4 * tileRows * (p.head.tiles + p.hidden.tiles) +        // sums
         d.ranks * (d.headsEach * (d.headDim * 4 + 8) + 4 * 8) +           // parts
         (warps + helpers) * (d.headDim * 4 + 8) + (d.headsEach - 1) * 8 + // of warps
         2 * (operandColumns(p.logits) + operandColumns(p.head)) +         // x
         2 * (operandColumns(p.output) + (d.grouped() ? operandColumns(p.projection) : 0)) +
         8 * d.rotary + 4 * slice + 16 * d.slots + 1024;
}

} // namespace gpt2c::shares

#undef GPT2C_BOTH
