// How a decode step of any shape is divided over thread block clusters (shares/shares.cuh), for
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
/// Columns from `begin` on.
struct Range {
  int begin, count;
};

/// Parts of equal size, of which the last has the rest.
GPT2C_BOTH constexpr int sliceOf(int n, int parts, int size) {
  return roundUp(ceilDiv(n, parts), 16 / size);
}
GPT2C_BOTH constexpr int sliceCount(int n, int parts, int i, int size) {
  const int slice = sliceOf(n, parts, size), left = n - i * slice;
  return left < 0 ? 0 : least(slice, left);
}

constexpr int evenShare = 256;

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
  int rows = 1;     ///< sequences: 1, or as many as a cluster has blocks
  int keysEach = 1; ///< heads of keys of a cluster; of one sequence always one
  int busyShare = evenShare;
  int pageColumns = 0; ///< of the table of a state in pages; else 0
  /// GPUs' shares of one step, each in a kernel of this division: heads, hidden columns and
  /// vocabulary are one's. 1: it is alone.
  int members = 1;

  /// Whether heads share keys or turn: attention is that of shares/groups.cuh.
  GPT2C_BOTH constexpr bool grouped() const { return rotary > 0 || keyHeads != heads; }
  /// Clusters with heads: the first ones.
  GPT2C_BOTH constexpr int busy() const { return ceilDiv(heads, headsEach); }
  /// Hidden columns of a cluster: whole groups. `busyShare` is what a cluster with heads has of them
  /// beside the `evenShare` of one without.
  GPT2C_BOTH constexpr Range hiddenOf(int ofClusters, int cluster) const {
    const int group = groupOf(hidden, weightSize), begin = before(cluster),
              end = before(cluster + 1), all = before(ofClusters);
    const long long groups = hidden / group;
    const int first = (int)(groups * begin / all) * group;
    return {first, (int)(groups * end / all) * group - first};
  }
  /// The most of a cluster.
  GPT2C_BOTH constexpr int share(int ofClusters) const {
    int most = 0;
    for (int i = 0; i < ofClusters; ++i)
      if (hiddenOf(ofClusters, i).count > most)
        most = hiddenOf(ofClusters, i).count;
    return most;
  }
  GPT2C_BOTH constexpr int slice() const { return sliceOf(width, ranks, weightSize); }

private:
  /// Shares of the clusters ahead of one.
  GPT2C_BOTH constexpr int before(int cluster) const {
    const int ofHeads = least(cluster, busy());
    return ofHeads * busyShare + (cluster - ofHeads) * evenShare;
  }
};

struct Products {
  Product head, projection, hidden, output, keys, logits;
};
GPT2C_BOTH constexpr Products productsOf(const Division &d) {
  const int slice = d.slice(), share = d.share(d.leastClusters), size = d.weightSize;
  return {
      product((d.headsEach + 2 * d.keysEach) * d.headDim, slice, d.firstChunks, d.slotBytes, size),
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

/// Elements of two bytes from row to row of an operand of several rows: lanes read 64 bytes of two
/// neighbouring rows at once, from different banks.
GPT2C_BOTH constexpr int rowPitch(int columns) { return roundUp(columns - 32, 64) + 32; }
/// The same of a slice of x in fp32, of which lanes read 32 bytes of eight rows.
GPT2C_BOTH constexpr int plainPitch(int slice) { return roundUp(slice, 32) + 8; }
/// Bytes of a tile of keys and one of values, which a slot has side by side.
GPT2C_BOTH constexpr int keyPairBytes(int headDim) { return 2 * tileBytesOf(headDim, 2); }
/// Warps that read keys, values and the vocabulary for several sequences: a slot is always the same
/// one's.
GPT2C_BOTH constexpr int keyWarps(int slots) {
  int n = least(warps, slots);
  while (slots % n != 0)
    --n;
  return n;
}

/// Of what a block knows of the other members.
GPT2C_BOTH constexpr int memberBytes(const Division &d) {
  return d.members > 1 ? 16 * d.members + 32 : 0;
}
/// Bytes of shared memory beside the ring; records: of a step.
GPT2C_BOTH constexpr int otherBytesOfRows(const Division &d, int records) {
  const Products p = productsOf(d);
  const int rows = d.rows, ofMlp = d.ranks * 4 * tileRows * p.hidden.tiles + d.ranks * 8,
            whole = rows * (2 * rowPitch(operandColumns(p.logits)) + d.ranks * 8);
  return records * 128 + d.ranks * 4 * tileRows * p.head.tiles + // sums
         (ofMlp > whole ? ofMlp : whole) +
         2 * rows *
             (rowPitch(operandColumns(p.head)) + rowPitch(operandColumns(p.output)) +
              rowPitch(operandColumns(p.projection))) +
         4 * rows * plainPitch(d.slice()) +          // x
         warps * d.headsEach * (d.headDim * 4 + 8) + // parts of attention
         d.keysEach * d.headDim * 4 +
         d.headsEach * (roundUp(d.headDim, 32) * 2 + 8) + // of the new token
         8 * d.rotary + warps * rows * 8 + 16 * d.slots + 4 * d.pageColumns + memberBytes(d) + 2048;
}
GPT2C_BOTH constexpr int otherBytes(const Division &d, int records) {
  if (d.rows > 1)
    return otherBytesOfRows(d, records);
  const Products p = productsOf(d);
  const int slice = d.slice();
  return records * 128 +                                                   //
         d.ranks * 4 * tileRows * (p.head.tiles + p.hidden.tiles) +        // sums
         d.ranks * (d.headsEach * (d.headDim * 4 + 8) + 4 * 8) +           // parts
         (warps + helpers) * (d.headDim * 4 + 8) + (d.headsEach - 1) * 8 + // of warps
         2 * (operandColumns(p.logits) + operandColumns(p.head)) +         // x
         2 * (operandColumns(p.output) + (d.grouped() ? operandColumns(p.projection) : 0)) +
         8 * d.rotary + 4 * slice + 16 * d.slots + 4 * d.pageColumns + memberBytes(d) + 1024;
}

} // namespace gpt2c::shares

#undef GPT2C_BOTH
