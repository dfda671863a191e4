// How a decode step of any shape is divided over thread block clusters (shares/shares.cuh), for
// host and device: C++17, without any other header.
//
// A cluster of `ranks` blocks has a head, or some that share keys and values, or none, and a share
// of the hidden columns of the MLP; a block of it has a slice of the columns of x. Of several
// sequences some clusters may have the same heads, each for a part of the sequences. Products are
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
/// Sequences that are columns of one instruction: as many as a cluster has blocks then.
constexpr int columnRows = 8;
constexpr int mostRows = 2 * columnRows;
/// Times that the readers of a slot arrive at its barrier, all together.
constexpr int arrivals = 4;

GPT2C_BOTH constexpr int ceilDiv(int a, int b) { return (a + b - 1) / b; }
GPT2C_BOTH constexpr int roundUp(int n, int to) { return ceilDiv(n, to) * to; }
GPT2C_BOTH constexpr int least(int a, int b) { return a < b ? a : b; }
GPT2C_BOTH constexpr int commonDivisor(int a, int b) {
  return b == 0 ? a : commonDivisor(b, a % b);
}
GPT2C_BOTH constexpr int bytesOf(int elements, int bits) { return elements * bits / 8; }

/// Of bf16 that is packed without loss (runtime/plan/PackedWeight.h): blocks of a row, and what
/// shares a word of it at most.
constexpr int packedBits = 12, packedBlock = 32, packedGroup = 256;

/// How weights are stored.
struct Storage {
  int bits = 16;
  int group = 0; ///< elements of a row that share a scale; 0: they have none, or one for a row
  GPT2C_BOTH constexpr bool isPacked() const { return bits == packedBits; }
  /// Elements of 16 bytes; in groups also what four lanes read of a row. What is packed is divided
  /// as it would be unpacked.
  GPT2C_BOTH constexpr int vector() const {
    return isPacked() ? 8 : group > 0 && bits > 4 ? 32 : 128 / bits;
  }
  /// The same with the groups that rows of k elements have.
  GPT2C_BOTH constexpr Storage ofRow(int k) const {
    return isPacked() ? Storage{bits, commonDivisor(packedGroup, k)} : *this;
  }
};

/// Rows of weights in the ring. Lanes 4 apart read neighbouring pairs of rows, 64 bytes each, so a
/// pair's distance is an odd multiple of 64 bytes: eight lanes read from different banks. Of
/// weights in groups they read 32 columns each: the even rows of a tile come first, and a row's
/// distance is an odd multiple of so many bytes. Behind such a row are its scales, a word for
/// `step` columns. Packed ones are in the order of others, with the words of their groups behind.
struct Product {
  int rows, chunks;
  int bits;    ///< of a weight
  int columns; ///< of a chunk
  int padded;  ///< the same with zeros behind them, as four lanes read them
  int stored;  ///< of a row of the ring: of packed ones whole blocks
  int step;    ///< columns of a scale; 0: there are none
  int words;   ///< scales of a chunk's row, or words of its groups
  int pitch;   ///< bytes from row to row
  int tileBytes;
  int tiles;
  int each; ///< tiles of a slot
  int slots;
};
GPT2C_BOTH constexpr int pitchOf(int padded, int bits, int words) {
  const int bytes = bytesOf(padded, bits), read = bytesOf(32, bits);
  return words > 0 ? roundUp(bytes + 4 * words - read, 2 * read) + read : bytes + 32;
}
/// Of keys.
GPT2C_BOTH constexpr int tileBytesOf(int columns) {
  return tileRows * pitchOf(roundUp(columns, 32), 16, 0);
}
/// `begin`: what the first column of a part of a row of weights is always a multiple of.
GPT2C_BOTH constexpr Product product(int rows, int k, int chunks, int slotBytes, Storage weights,
                                     int begin) {
  if (weights.isPacked()) {
    // A chunk's row has all blocks and groups that it may be in. Eight lanes read 32 bytes of four
    // pairs of rows, then 16 of eight.
    Product p = product(rows, k, chunks, slotBytes, Storage{}, begin);
    const int ahead = commonDivisor(weights.group, commonDivisor(begin, p.columns));
    p.bits = weights.bits;
    p.stored = p.padded + (ahead % packedBlock == 0 ? 0 : packedBlock);
    p.words = ceilDiv(weights.group - ahead + p.columns, weights.group);
    p.pitch = roundUp(bytesOf(p.stored, p.bits) + 4 * p.words - 16, 64) + 16;
    p.tileBytes = tileRows * p.pitch;
    return p;
  }
  Product p = {};
  p.rows = rows;
  p.chunks = chunks;
  p.bits = weights.bits;
  p.columns =
      roundUp(ceilDiv(k, chunks), (chunks > 1 ? 2 : 1) * weights.vector()); // whole sectors of L2
  p.stored = p.padded = weights.group > 0 ? p.columns : roundUp(p.columns, 4 * weights.vector());
  if (weights.group > 0) {
    p.step = commonDivisor(weights.group, commonDivisor(begin, p.columns));
    p.words = p.columns / p.step;
  }
  p.pitch = pitchOf(p.padded, p.bits, p.words);
  p.tileBytes = tileRows * p.pitch;
  p.tiles = ceilDiv(rows, tileRows);
  p.each = chunks > 1 ? 1 : slotBytes >= 4 * p.tileBytes ? 4 : slotBytes >= 2 * p.tileBytes ? 2 : 1;
  p.slots = ceilDiv(p.tiles, p.each) * chunks;
  return p;
}

/// Columns of a group that stays together: a sector of L2, if n is a multiple.
GPT2C_BOTH constexpr int groupOf(int n, Storage weights) {
  return (n % (2 * weights.vector()) == 0 ? 2 : 1) * weights.vector();
}
/// Columns from `begin` on.
struct Range {
  int begin, count;
};

/// Parts of equal size, of which the last has the rest: of weights in groups an eighth larger at
/// most, if fewer are divided then.
GPT2C_BOTH constexpr int sliceOf(int n, int parts, Storage weights) {
  const int each = ceilDiv(n, parts);
  int unit = weights.vector();
  while (weights.group % (2 * unit) == 0 && weights.group > 0 &&
         8 * roundUp(each, 2 * unit) <= 9 * each)
    unit *= 2;
  return roundUp(each, unit);
}
GPT2C_BOTH constexpr int sliceCount(int n, int parts, int i, Storage weights) {
  const int slice = sliceOf(n, parts, weights), left = n - i * slice;
  return left < 0 ? 0 : least(slice, left);
}

constexpr int evenShare = 256;

/// The shape of a step, and how it is divided.
struct Division {
  int width, heads, headDim, hidden, vocabulary;
  Storage weights = {}; ///< of the layers
  Storage last = {};    ///< of the vocabulary
  int keyHeads = 0;     ///< of keys and values, each of heads / keyHeads heads
  int rotary = 0;       ///< pairs of a head that turn with the position
  bool gated = false;   ///< of the MLP's hidden columns each is made of two rows, gate and value
  int headsEach = 1;    ///< of a cluster, all with the same keys
  int ranks = 0, clusters = 0;
  int leastClusters = 0;                      ///< with which it runs, too
  int firstChunks = 0;                        ///< of the columns of first products
  int projectionChunks = 1, outputChunks = 1; ///< of second ones
  int lastChunks = 0;                         ///< of those of the vocabulary
  int slotBytes = 0, slots = 0;
  int rows = 1;     ///< sequences: 1, 8 or 16; of several a cluster has eight blocks
  int keysEach = 1; ///< heads of keys of a cluster; of one sequence always one
  int rowParts = 1; ///< clusters of the same heads, each of as many of the sequences
  int busyShare = evenShare;
  int pageColumns = 0; ///< of the table of a state in pages; else 0
  /// GPUs' shares of one step, each in a kernel of this division: heads, hidden columns and
  /// vocabulary are one's. 1: it is alone.
  int members = 1;

  /// Whether heads share keys or turn: attention is that of shares/groups.cuh.
  GPT2C_BOTH constexpr bool grouped() const { return rotary > 0 || keyHeads != heads; }
  /// Heads of a cluster, and others: whose partial sums a sequence has.
  GPT2C_BOTH constexpr int headGroups() const { return ceilDiv(heads, headsEach); }
  /// Clusters with heads: the first ones.
  GPT2C_BOTH constexpr int busy() const { return headGroups() * rowParts; }
  /// Sequences that a cluster with heads attends for. Where they are fewer than its blocks,
  /// keyParts() of these share the keys of each; else a block has ownRows() of them.
  GPT2C_BOTH constexpr int rowsEach() const { return rows / rowParts; }
  GPT2C_BOTH constexpr int keyParts() const {
    return rows == 1 || rowsEach() >= ranks ? 1 : ranks / rowsEach();
  }
  GPT2C_BOTH constexpr int ownRows() const { return rowsEach() <= ranks ? 1 : rowsEach() / ranks; }
  /// Of eight sequences, the columns of an instruction.
  GPT2C_BOTH constexpr int rowGroups() const { return ceilDiv(rows, columnRows); }
  /// Hidden columns of a cluster: whole groups. `busyShare` is what a cluster with heads has of
  /// them beside the `evenShare` of one without.
  GPT2C_BOTH constexpr Range hiddenOf(int ofClusters, int cluster) const {
    const int group = groupOf(hidden, weights), begin = before(cluster), end = before(cluster + 1),
              all = before(ofClusters);
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
  GPT2C_BOTH constexpr int slice() const { return sliceOf(width, ranks, weights); }

private:
  /// Shares of the clusters ahead of one.
  GPT2C_BOTH constexpr int before(int cluster) const {
    const int ofHeads = least(cluster, busy());
    return ofHeads * busyShare + (cluster - ofHeads) * evenShare;
  }
};

/// Rows of weights whose columns are the block's slice of x, what the cluster's heads attend to,
/// its hidden columns, or those of the vocabulary.
GPT2C_BOTH constexpr Product firstProduct(const Division &d, int rows, int chunks) {
  return product(rows, d.slice(), chunks, d.slotBytes, d.weights.ofRow(d.width), d.slice());
}
GPT2C_BOTH constexpr Product projectionProduct(const Division &d, int chunks) {
  const int attended = d.headsEach * d.headDim;
  return product(d.slice(), attended, chunks, d.slotBytes, d.weights.ofRow(d.heads * d.headDim),
                 attended);
}
GPT2C_BOTH constexpr Product outputProduct(const Division &d, int chunks) {
  return product(d.slice(), d.share(d.leastClusters), chunks, d.slotBytes,
                 d.weights.ofRow(d.hidden), groupOf(d.hidden, d.weights));
}
GPT2C_BOTH constexpr Product lastProduct(const Division &d, int chunks) {
  return product(tileRows, d.width, chunks, d.slotBytes, d.last.ofRow(d.width), 0);
}

struct Products {
  Product head, projection, hidden, output, keys, logits;
};
GPT2C_BOTH constexpr Products productsOf(const Division &d) {
  const int share = d.share(d.leastClusters);
  return {firstProduct(d, (d.headsEach + 2 * d.keysEach) * d.headDim, d.firstChunks),
          projectionProduct(d, d.projectionChunks),
          firstProduct(d, d.gated ? 2 * share : share, d.firstChunks),
          outputProduct(d, d.outputChunks),
          product(tileRows, d.headDim, 1, d.slotBytes, {}, 0),
          lastProduct(d, d.lastChunks)};
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
GPT2C_BOTH constexpr int keyPairBytes(int headDim) { return 2 * tileBytesOf(headDim); }
/// Warps that read the vocabulary, and keys and values of several sequences: a slot is always the
/// same one's.
GPT2C_BOTH constexpr int slotWarps(int slots) {
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
  const int rows = d.rows, heads = d.ownRows() * d.headsEach,
            // What is in one place in turn: of heads sums, parts of attention, what the new token
      // has and queries; sums of the MLP; the whole of x.
      ofHeads = d.ownRows() * d.ranks * (4 * tileRows * p.head.tiles + 8) +
                warps * heads * (d.headDim * 4 + 8) + d.ownRows() * d.keysEach * d.headDim * 4 +
                heads * (roundUp(d.headDim, 32) * 2 + 8),
            ofMlp = d.rowGroups() * d.ranks * (4 * tileRows * p.hidden.tiles + 8),
            whole = rows * (2 * rowPitch(operandColumns(p.logits)) + d.ranks * 8),
            inTurn = -least(-ofHeads, least(-ofMlp, -whole));
  return records * 128 + inTurn +
         2 * rows * (rowPitch(operandColumns(p.head)) + rowPitch(operandColumns(p.output))) +
         d.ownRows() * d.ranks * 2 * rowPitch(operandColumns(p.projection)) +
         (d.keyParts() > 1 ? d.ranks * d.headsEach * 8 : 0) + // of parts of keys
         4 * rows * plainPitch(d.slice()) +                   // x
         8 * d.ownRows() * d.rotary + warps * rows * 8 + 16 * d.slots +
         4 * d.ownRows() * d.pageColumns + memberBytes(d) + 2048;
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
