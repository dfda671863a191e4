// How the shape of a decode step is divided over thread block clusters: for every width, nothing is
// left out or counted twice, and what a block has fits it.
#include "templates/decode_step/shares/SharesDivision.h"

#include <gtest/gtest.h>

using namespace gpt2c::shares;

namespace {

const gpt2c::Target target = gpt2c::Target::of({"sm_90a"});
const int64_t sharedBytes = target.sharedBytes - 1024;

Division shape(int heads, int headDim, int hidden, int vocabulary = 50257) {
  return {.width = heads * headDim,
          .heads = heads,
          .headDim = headDim,
          .hidden = hidden,
          .vocabulary = vocabulary};
}

/// Of rotary heads, some of which share keys, and gated MLPs.
Division llama(int heads, int keyHeads, int headDim, int hidden, int vocabulary = 32000) {
  Division d = shape(heads, headDim, hidden, vocabulary);
  d.keyHeads = keyHeads;
  d.rotary = headDim / 2;
  d.gated = true;
  return d;
}

/// Whether columns of parts follow each other and end at n.
template <typename Part> void expectWhole(int n, int parts, Storage weights, Part &&part) {
  int at = 0;
  for (int i = 0; i < parts; ++i) {
    const Range r = part(i);
    EXPECT_EQ(r.begin, at);
    EXPECT_GT(r.count, 0) << "part " << i << " of " << parts << " of " << n;
    EXPECT_EQ(r.count % weights.vector(), 0); // whole vectors of 16 bytes
    at += r.count;
  }
  EXPECT_EQ(at, n);
}

/// `laps`: its tiles are whole in the ring, of which a slot may have several readers.
void expectProduct(const Product &p, int rows, int k, const Division &d, bool laps = true) {
  EXPECT_GE(p.tiles * tileRows, rows);
  EXPECT_LT((p.tiles - 1) * tileRows, rows);
  // Chunks hold all columns, none is empty, and all begin at vectors of 16 bytes.
  EXPECT_GE(p.chunks * p.columns, k);
  EXPECT_LT((p.chunks - 1) * p.columns, k);
  EXPECT_EQ(bytesOf(p.columns, p.bits) % 16, 0);
  EXPECT_GE(p.padded, p.columns);
  EXPECT_GE(p.pitch, bytesOf(p.padded, p.bits) + 4 * p.words);
  EXPECT_EQ(p.pitch % 16, 0);
  if (p.step > 0) {
    // Scales are those of whole steps of four lanes, and eight lanes read as much of rows g and g +
    // 1 from different banks.
    EXPECT_EQ(p.step % 32, 0);
    EXPECT_EQ(p.words * p.step, p.columns);
    EXPECT_EQ(p.pitch % (2 * bytesOf(32, p.bits)), bytesOf(32, p.bits));
  } else {
    EXPECT_EQ(bytesOf(p.padded, p.bits) % 64, 0);
    // Eight lanes read 64 bytes of rows 2 g and 2 g + 2: in different banks.
    EXPECT_EQ(2 * p.pitch % 128, 64);
  }
  EXPECT_LE(p.each * p.tileBytes, d.slotBytes);
  EXPECT_EQ(arrivals % p.each, 0);
  EXPECT_TRUE(p.chunks == 1 || p.each == 1);
  EXPECT_EQ(p.slots, (p.tiles + p.each - 1) / p.each * p.chunks);
  // A warp that waits for a slot in the second lap of a stage has read it in the first, or warps
  // meet where the ring has been read, which has whole tiles.
  if (!laps)
    return;
  if (d.gated || d.grouped() || d.rows > 1)
    EXPECT_LE(p.chunks, d.slots);
  else if (p.slots > d.slots)
    for (int tile = 0; tile < p.tiles; ++tile)
      for (int other = tile + 1; other < p.tiles; ++other)
        for (int j = 0; j < p.chunks; ++j)
          if (other / p.each * p.chunks + j == tile / p.each * p.chunks + j + d.slots &&
              other % p.each == tile % p.each) {
            EXPECT_EQ(tile % gpt2c::shares::warps, other % gpt2c::shares::warps);
          }
}

/// Slots of that many keys, and of their values.
int slotsOfKeys(const Division &d, int keys) {
  const int tiles = ceilDiv(ceilDiv(keys, tileRows), d.ranks);
  return 2 * ceilDiv(tiles, productsOf(d).keys.each);
}

void expectSound(const Division &d, int records) {
  SCOPED_TRACE("width " + std::to_string(d.width) + ", heads of " + std::to_string(d.headDim));
  EXPECT_GE(d.ranks, 1);
  EXPECT_LE(d.ranks, mostRanks);
  EXPECT_GE(d.leastClusters, d.busy());
  EXPECT_EQ(d.heads % d.keyHeads, 0);
  const int group = d.heads / d.keyHeads;
  if (d.keysEach == 1) // a cluster's heads share keys
    EXPECT_EQ(group % d.headsEach, 0);
  else
    EXPECT_EQ(d.headsEach, d.keysEach * group);
  EXPECT_TRUE(d.rows == 1 ? d.keysEach == 1 : d.ranks == d.rows);
  EXPECT_LE(d.headsEach, gpt2c::shares::warps);
  EXPECT_LE(d.leastClusters, d.clusters);
  EXPECT_LE(d.clusters, std::min(int(target.clusters(d.ranks)), mostSources));
  const int slice = d.slice();
  expectWhole(d.width, d.ranks, d.weights,
              [&](int i) { return Range{i * slice, sliceCount(d.width, d.ranks, i, d.weights)}; });
  for (int clusters = d.leastClusters; clusters <= d.clusters; ++clusters) {
    auto share = [&](int i) { return d.hiddenOf(clusters, i); };
    expectWhole(d.hidden, clusters, d.weights, share);
    for (int i = 0; i < clusters; ++i)
      EXPECT_LE(share(i).count, d.share(d.leastClusters));
  }
  const Products p = productsOf(d);
  const int share = d.share(d.leastClusters);
  expectProduct(p.head, (d.headsEach + 2 * d.keysEach) * d.headDim, slice, d);
  expectProduct(p.projection, slice, d.headsEach * d.headDim, d);
  expectProduct(p.hidden, (d.gated ? 2 : 1) * share, slice, d);
  expectProduct(p.output, slice, share, d);
  expectProduct(p.keys, tileRows, d.headDim, d);
  expectProduct(p.logits, tileRows, d.width, d, false);
  if (d.rows == 1) {
    EXPECT_GE(d.slots, 2); // for a lap of keys, and of values
  } else {                 // a slot has keys with their values
    EXPECT_LE(keyPairBytes(d.headDim), d.slotBytes);
    EXPECT_EQ(2 * rowPitch(operandColumns(p.head)) % 128, 64);
    EXPECT_GE(rowPitch(operandColumns(p.head)), operandColumns(p.head));
  }
  // Of the vocabulary it has one reader.
  EXPECT_EQ(d.slots % slotWarps(d.slots), 0);
  EXPECT_LE(int64_t(d.slots) * d.slotBytes + otherBytes(d, records), sharedBytes);
}

TEST(SharesDivision, EveryWidthAndHeadIsWhole) {
  int divided = 0, ofBytes = 0, several = 0;
  for (int headDim : {32, 40, 64, 72, 80, 96, 128, 160, 192, 256})
    for (int heads = 1; heads <= 32; ++heads)
      for (int hidden : {4 * heads * headDim, 3 * heads * headDim + 8, heads * headDim}) {
        const auto d = divide(shape(heads, headDim, hidden), 1024, 99, target);
        if (!d)
          continue;
        ++divided;
        expectSound(*d, 99);
        for (int size : {1, 2}) {
          Division rows = shape(heads, headDim, hidden);
          rows.rows = 8;
          rows.weights.bits = rows.last.bits = 8 * size;
          if (const auto ofRows = divide(rows, 1024, 99, target)) {
            ++several;
            expectSound(*ofRows, 99);
          }
        }
        Division bytes = shape(heads, headDim, hidden);
        bytes.weights.bits = bytes.last.bits = 8;
        if (const auto ofInt8 = divide(bytes, 1024, 99, target)) {
          ++ofBytes;
          expectSound(*ofInt8, 99);
          EXPECT_EQ(productsOf(*ofInt8).keys.bits, 16);
        }
      }
  EXPECT_GT(divided, 500);
  EXPECT_GT(ofBytes, 200);
  EXPECT_GT(several, 300);
}

TEST(SharesDivision, WeightsInGroupsHaveTheirScalesBesideThem) {
  int divided = 0;
  for (int group : {32, 64, 128, 256})
    for (int bits : {4, 8})
      for (int rows : {1, 8})
        for (Division d : {shape(12, 64, 3072), shape(16, 64, 4096), shape(25, 64, 6400),
                           llama(32, 8, 64, 8192, 128256), llama(24, 8, 128, 8192, 128256)}) {
          d.weights = {bits, group};
          d.last = {8, bits == 8 ? group : 0};
          d.rows = rows;
          const auto found = divide(d, 1024, 63, target);
          if (!found)
            continue;
          ++divided;
          expectSound(*found, 63);
          const Products p = productsOf(*found);
          // A part of a row begins where its first scale does.
          for (const Product &of : {p.head, p.hidden})
            EXPECT_EQ(found->slice() % of.step, 0);
          EXPECT_EQ(found->headsEach * found->headDim % p.projection.step, 0);
          EXPECT_EQ(found->hiddenOf(found->clusters, 1).begin % p.output.step, 0);
          for (const Product &of : {p.head, p.hidden, p.projection, p.output}) {
            EXPECT_EQ(group % of.step, 0);
            EXPECT_EQ(of.columns % of.step, 0);
          }
          EXPECT_EQ(p.logits.step > 0, bits == 8);
        }
  EXPECT_GT(divided, 60);
}

/// Bytes aside all is as of unpacked weights, so that sums have the order of those.
TEST(SharesDivision, PackedWeightsAreDividedAsOthers) {
  int suit = 0;
  for (Division d : {llama(32, 8, 64, 8192, 128256), llama(24, 8, 128, 8192, 128256),
                     llama(32, 8, 128, 14336, 128256), llama(28, 4, 128, 18944, 152064),
                     llama(16, 8, 64, 3072), llama(12, 2, 128, 8960), llama(9, 3, 64, 1536),
                     llama(8, 2, 32, 704), shape(12, 64, 3072), shape(25, 64, 6400)})
    for (int rows : {1, 8}) {
      d.rows = rows;
      const std::optional<Division> plain = divide(d, 1024, 40, target);
      if (!plain)
        continue;
      const Division both = packed(*plain, true, true);
      EXPECT_FALSE(packed(*plain, false, true).weights.isPacked());
      EXPECT_FALSE(packed(*plain, true, false).last.isPacked());
      EXPECT_EQ(both.slotBytes, plain->slotBytes);
      EXPECT_EQ(both.slots, plain->slots);
      EXPECT_EQ(otherBytes(both, 40), otherBytes(*plain, 40));
      const Products p = productsOf(*plain), q = productsOf(both);
      for (auto of : {&Products::head, &Products::projection, &Products::hidden, &Products::output,
                      &Products::keys, &Products::logits}) {
        const Product &x = p.*of, &y = q.*of;
        EXPECT_EQ(x.columns, y.columns);
        EXPECT_EQ(x.chunks, y.chunks);
        EXPECT_EQ(x.padded, y.padded);
        EXPECT_EQ(x.each, y.each);
        EXPECT_EQ(x.slots, y.slots);
        EXPECT_LE(y.each * y.tileBytes, both.slotBytes);
        if (y.bits != packedBits)
          continue;
        ++suit;
        EXPECT_EQ(y.stored % packedBlock, 0);
        EXPECT_GE(y.stored, y.padded);
        EXPECT_GE(y.pitch, bytesOf(y.stored, y.bits) + 4 * y.words);
        EXPECT_GE(y.words * packedGroup, y.columns);
        // Eight lanes read 32 bytes of every second row, from different banks.
        EXPECT_EQ(2 * y.pitch % 64, 32);
      }
      for (int clusters = plain->leastClusters; clusters <= plain->clusters; ++clusters)
        for (int i = 0; i < clusters; ++i)
          EXPECT_EQ(plain->hiddenOf(clusters, i).begin, both.hiddenOf(clusters, i).begin);
    }
  EXPECT_GE(suit, 50);
}

TEST(SharesDivision, GptsAreDividedAsMeasured) {
  struct Case {
    int heads, headDim, layers, ranks, clusters;
  };
  for (const Case &c : {Case{16, 64, 24, 6, 17}, Case{20, 64, 36, 5, 22}, Case{25, 64, 48, 4, 30},
                        Case{12, 80, 12, 8, 15}, Case{11, 64, 10, 8, 15}}) {
    const auto d =
        divide(shape(c.heads, c.headDim, 4 * c.heads * c.headDim), 1024, 3 + 2 * c.layers, target);
    ASSERT_TRUE(d) << c.heads;
    EXPECT_EQ(d->ranks, c.ranks);
    EXPECT_EQ(d->clusters, c.clusters);
    expectSound(*d, 3 + 2 * c.layers);
  }
}

TEST(SharesDivision, HeadsThatShareKeysStayTogether) {
  int divided = 0, several = 0;
  for (int headDim : {16, 32, 64, 80, 128})
    for (int keyHeads : {1, 2, 3, 4, 5, 8})
      for (int group : {1, 2, 3, 4, 7, 8, 16})
        for (int hidden : {4 * keyHeads * group * headDim, 2 * keyHeads * group * headDim + 8}) {
          const auto d =
              divide(llama(keyHeads * group, keyHeads, headDim, hidden), 512, 35, target);
          if (!d)
            continue;
          ++divided;
          expectSound(*d, 35);
          Division rows = llama(keyHeads * group, keyHeads, headDim, hidden);
          rows.rows = 8;
          if (const auto ofRows = divide(rows, 512, 35, target)) {
            ++several;
            expectSound(*ofRows, 35);
          }
        }
  EXPECT_GT(divided, 200);
  EXPECT_GT(several, 100);
}

TEST(SharesDivision, ALlamaHasItsHeadsInEightOfFifteenClusters) {
  const auto d = divide(llama(32, 8, 64, 8192, 128256), 512, 35, target);
  ASSERT_TRUE(d);
  expectSound(*d, 35);
  EXPECT_EQ(d->ranks, 8);
  EXPECT_EQ(d->clusters, 15);
  EXPECT_EQ(d->headsEach, 4);
  EXPECT_EQ(d->busy(), 8);
}

TEST(SharesDivision, ClustersWithKeysOfSeveralSequencesHaveFewerHiddenColumns) {
  for (Division d : {shape(16, 64, 4096), llama(32, 8, 64, 8192, 128256)}) {
    const auto one = divide(d, 1024, 51, target);
    ASSERT_TRUE(one);
    EXPECT_EQ(one->busyShare, evenShare);
    d.rows = 8;
    const auto rows = divide(d, 1024, 51, target);
    ASSERT_TRUE(rows);
    expectSound(*rows, 51);
    EXPECT_EQ(rows->busy(), 8);
    const int busy = rows->hiddenOf(rows->clusters, 0).count,
              other = rows->hiddenOf(rows->clusters, rows->clusters - 1).count;
    EXPECT_GT(busy, other / 4);
    EXPECT_LT(busy, other);
  }
}

TEST(SharesDivision, MoreKeysThanARingHoldsComeInLaps) {
  for (Division d : {llama(9, 3, 64, 1536, 49152), llama(32, 8, 64, 8192, 128256),
                     llama(24, 8, 128, 8192, 128256), shape(16, 64, 4096), shape(5, 128, 2560)}) {
    const auto shorter = divide(d, 512, 63, target), longer = divide(d, 1 << 17, 63, target);
    ASSERT_TRUE(shorter && longer) << d.width;
    expectSound(*longer, 63);
    EXPECT_LE(slotsOfKeys(*shorter, 512), shorter->slots);
    EXPECT_LE(slotsOfKeys(*longer, 512), longer->slots);
  }
}

TEST(SharesDivision, HeadsMayBeOfAnyWidthBesideTheRest) {
  for (int width : {640, 1024, 2560})
    for (int headDim : {64, 128, 256}) {
      Division d = llama(8, 4, headDim, 2 * width);
      d.width = width;
      const auto divided = divide(d, 4096, 63, target);
      ASSERT_TRUE(divided) << width << " " << headDim;
      expectSound(*divided, 63);
    }
}

TEST(SharesDivision, SomeShapesHaveNone) {
  EXPECT_FALSE(divide(shape(33, 64, 4 * 33 * 64), 1024, 99, target)); // heads
  EXPECT_FALSE(divide(shape(4, 60, 960), 1024, 99, target));          // no vectors
  EXPECT_FALSE(divide(shape(4, 264, 1056), 1024, 99, target));        // wide heads
  EXPECT_FALSE(divide(shape(12, 64, 3072), 1024, 2000, target));      // records
  EXPECT_FALSE(divide(llama(5, 2, 64, 1280), 512, 35, target));       // uneven groups
  Division bytes = shape(4, 40, 640); // a head is no multiple of 16 bytes
  bytes.weights.bits = bytes.last.bits = 8;
  EXPECT_FALSE(divide(bytes, 1024, 99, target));
  Division turns = llama(4, 2, 64, 1024);
  turns.rotary = 33; // more pairs than a head has
  EXPECT_FALSE(divide(turns, 512, 35, target));
}

} // namespace
