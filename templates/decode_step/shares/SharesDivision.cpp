#include "templates/decode_step/shares/SharesDivision.h"

#include <algorithm>
#include <array>

namespace gpt2c::shares {

/// Slots are no larger than the widest tile and this: larger ones leave too few for a stage.
static constexpr int aimedSlotBytes = 9 * 1024;
/// Keys that the bytes of a step are counted for.
static constexpr int usualKeys = 512;
/// Heads of several sequences that share keys: columns of an instruction.
static constexpr int mostGroup = 8;
/// Sequences of a cluster with heads: a word of partial sums has two.
static constexpr int leastRowsEach = 2;
/// Chunks of a row of an MLP's second product.
static constexpr int mostChunks = 8;

/// Whether a warp that waits for a slot has itself read what was in it a lap before, or all have.
static bool fits(const Product &p, int slots) {
  return p.slots <= slots || (slots % p.chunks == 0 && slots / p.chunks * p.each % warps == 0);
}
/// Whether products lap the ring as they may: warps meet there in steps of a gated or grouped shape
/// (Step::multiply).
static bool meets(const Division &d) { return d.gated || d.grouped() || d.rows > 1; }

/// Whether the warps read the products of the layers as one of these says.
static bool areRead(const Division &d, int slots) {
  const Products p = productsOf(d);
  const std::array read = {p.head, p.projection, p.hidden, p.output};
  return std::all_of(read.begin(), read.end(), [&](const Product &of) {
    return meets(d) ? of.chunks <= slots : fits(of, slots);
  });
}

/// The number of slots for slotBytes: many, which most warps may have in turn; 0: nothing fits.
static int slotsOf(const Division &d, int records, int64_t sharedBytes) {
  constexpr int enough = 8; // warps
  Division ring = d;
  ring.slots = 64;
  const int most =
      int(std::min<int64_t>((sharedBytes - otherBytes(ring, records)) / d.slotBytes, ring.slots));
  int best = std::max(most, 0), value = 0;
  for (int slots = most; slots > most - warps && slots > 0; --slots)
    if (int v = slots * std::min(slotWarps(slots), int(enough)); v > value && areRead(d, slots))
      best = slots, value = v;
  return best;
}

/// Sizes of the ring, whose chunks of second products are known; false: there is no room.
static bool chooseSlots(Division &d, int records, int64_t sharedBytes) {
  const int ofFirst = firstProduct(d, tileRows, d.firstChunks).tileBytes,
            ofSecond = projectionProduct(d, d.projectionChunks).tileBytes,
            ofOutput = outputProduct(d, d.outputChunks).tileBytes;
  d.slotBytes = std::max({ofFirst, ofOutput, ofSecond, tileBytesOf(d.headDim)});
  if (d.rows > 1)
    d.slotBytes = std::max(d.slotBytes, keyPairBytes(d.headDim));
  // A little more, if two narrow tiles fit then.
  for (int narrow : {ofFirst, ofSecond})
    if (narrow < d.slotBytes && 2 * narrow > d.slotBytes && 8 * narrow <= 5 * d.slotBytes)
      d.slotBytes = 2 * narrow;
  for (d.lastChunks = 1; lastProduct(d, d.lastChunks).tileBytes > d.slotBytes;)
    ++d.lastChunks;
  d.slots = slotsOf(d, records, sharedBytes);
  return d.slots > 0;
}
/// Bytes of a layer's weights that the ring holds, on average; of several sequences fewer where
/// warps have no slots of their own.
static double heldBytes(const Division &d) {
  const Products p = productsOf(d);
  double bytes = 0, slots = 0;
  for (const Product &of : {p.head, p.projection, p.hidden, p.output}) {
    bytes += of.bits / 8.0 * of.rows * of.chunks * of.columns;
    slots += of.slots;
  }
  return bytes / slots * d.slots * (d.rows > 1 ? std::min(d.slots, warps) / double(warps) : 1);
}

/// Sizes of the ring for `ranks` and `clusters`; false: a stage does not fit. `keys`: of one
/// sequence, that are in the ring at once.
static bool chooseRing(Division &d, int keys, int records, int64_t sharedBytes) {
  for (d.firstChunks = 1; firstProduct(d, tileRows, d.firstChunks).tileBytes > aimedSlotBytes;)
    ++d.firstChunks;
  if (!meets(d)) {
    if (!chooseSlots(d, records, sharedBytes))
      return false;
  } else {
    // Chunks of second products, as many as leave the most weights in the ring.
    d.slots = 0;
    Division best = d;
    for (d.projectionChunks = 1;
         projectionProduct(d, d.projectionChunks).tileBytes > aimedSlotBytes;)
      ++d.projectionChunks;
    const int share = d.share(d.leastClusters);
    auto isWhole = [&](const Product &p) { return (p.chunks - 1) * p.columns < share; };
    for (d.outputChunks = 1;
         d.outputChunks <= mostChunks && isWhole(outputProduct(d, d.outputChunks));
         ++d.outputChunks)
      if (chooseSlots(d, records, sharedBytes) &&
          (best.slots == 0 || heldBytes(d) > heldBytes(best)))
        best = d;
    d = best;
    if (d.slots == 0)
      return false;
  }
  const Products p = productsOf(d);
  const int keyTiles = ceilDiv(ceilDiv(keys, tileRows), d.ranks);
  return (d.rows > 1 ? p.logits.chunks <= d.slots
                     : 2 * ceilDiv(keyTiles, p.keys.each) <= d.slots) &&
         operandColumns(p.output) / 2 <= warps * 32 && areRead(d, d.slots);
}

/// Bytes of a slice's weights. What a scale's sum takes counts as 16 of them.
static double sliceBytes(const Division &d) {
  const Product p = firstProduct(d, tileRows, 1);
  return d.slice() * d.weights.bits / 8.0 + 16.0 * p.words;
}

/// Bytes of keys and values that a block with heads reads for sequences of so many.
static double keyBytes(const Division &d, int keys) {
  return 4.0 * keys * d.headDim * d.keysEach * d.ownRows() / (d.rows > 1 ? d.keyParts() : d.ranks);
}

/// Of several sequences clusters with heads read so much more, their keys, that others finish long
/// before them: those have more of the hidden columns, by half of what a ring holds, as it is
/// filled while they wait. False: as many are no division.
static bool chooseBusyShare(Division &d) {
  const int others = d.clusters - d.busy();
  if (others == 0)
    return true;
  const double keys = keyBytes(d, usualKeys),
               weights = 2.0 * sliceBytes(d) * (d.headsEach + d.keysEach) * d.headDim,
               column = double(d.gated ? 3 : 2) * sliceBytes(d),
               more = std::min(std::min(0.5 * d.slots * d.slotBytes, keys + weights) / column,
                               0.5 * d.hidden / d.clusters),
               busy = (d.hidden - others * more) / d.clusters;
  d.busyShare = std::clamp(int(evenShare * busy / (busy + more)), 1, evenShare);
  for (int clusters = d.leastClusters; clusters <= d.clusters; ++clusters)
    for (int i = 0; i < clusters; ++i)
      if (d.hiddenOf(clusters, i).count <= 0)
        return false;
  return true;
}

Division packed(const Division &plain, bool layers, bool vocabulary) {
  auto isWhole = [](int columns) { return columns % packedBlock == 0; };
  auto fits = [](const Division &d) {
    const Products p = productsOf(d);
    for (const Product &of : {p.head, p.projection, p.hidden, p.output, p.logits})
      if (of.each * of.tileBytes > d.slotBytes)
        return false;
    return true;
  };
  Division d = plain;
  if (layers && isWhole(d.width) && isWhole(d.heads * d.headDim) && isWhole(d.hidden))
    d.weights = {packedBits};
  if (!fits(d))
    d.weights = plain.weights;
  const Division ofLayers = d;
  if (vocabulary && isWhole(d.width))
    d.last = {packedBits};
  return fits(d) ? d : ofLayers;
}

BlockBytes blockBytes(const Division &d, int context) {
  const double slice = d.slice(), weights = sliceBytes(d);
  const double keys = keyBytes(d, std::min(context, usualKeys));
  const double sources = d.clusters + d.headGroups(),
               looked = (d.rows > 1 ? 2 * d.rows : 4) * slice * sources * d.members;
  if (!meets(d))
    return {keys, 4 * weights * d.headDim + 2 * weights * d.share(d.clusters), looked};
  const double attention = 2 * weights * (d.headsEach + d.keysEach) * d.headDim,
               column = (d.gated ? 3 : 2) * weights;
  // Partial sums, where a shape may have many clusters with few heads.
  const double sums = d.rows > 1 ? 0 : 4 * slice * sources;
  return {keys, attention + column * d.hiddenOf(d.clusters, 0).count + sums, looked};
}

std::optional<Division> divide(Division shape, int context, int records, const Target &target,
                               int mostRowParts) {
  const int64_t sharedBytes =
      int64_t(target.sharedBytes) - 1024; // beside the kernel's own variables
  std::optional<Division> best;
  double least = 0;
  if (shape.keyHeads == 0)
    shape.keyHeads = shape.heads;
  const int vector = shape.weights.vector(); // what is copied at once
  if (shape.width % vector || shape.width % shape.last.vector() || shape.hidden % vector ||
      shape.headDim % vector || shape.headDim > 256 || shape.heads % shape.keyHeads ||
      shape.rotary % 2 || 2 * shape.rotary > shape.headDim)
    return best;
  const int group = shape.heads / shape.keyHeads;
  auto consider = [&](int ranks, int headsEach, int keysEach, int rowParts, int keys) {
    Division d = shape;
    d.ranks = ranks;
    d.headsEach = headsEach;
    d.keysEach = keysEach;
    d.rowParts = rowParts;
    d.clusters = std::min(
        {int(target.clusters(ranks)), mostSources, d.hidden / groupOf(d.hidden, d.weights)});
    // GPUs differ in how many clusters they hold.
    d.leastClusters = std::max(d.busy(), d.clusters - d.clusters / 16);
    // All members have as many, as each reads the sums of all clusters: those that any GPU holds.
    if (d.members > 1)
      d.clusters -= d.clusters / 16;
    if (d.clusters < d.busy() || sliceCount(d.width, ranks, ranks - 1, d.weights) <= 0 ||
        !chooseRing(d, keys, records, sharedBytes))
      return;
    if (Division uneven = d;
        d.rows > 1 && chooseBusyShare(uneven) && chooseRing(uneven, keys, records, sharedBytes))
      d = uneven;
    // Partial sums are looked at until all have come.
    constexpr double ofSums = 3;
    const BlockBytes bytes = blockBytes(d, context);
    const double all = bytes.keys + bytes.others + (d.rows > 1 ? ofSums * bytes.sums : 0);
    if (!best || all < least) {
      best = d;
      least = all;
    }
  };
  if (shape.rows > 1) {
    // A block has sequences, and all heads of its cluster.
    if (shape.headDim % tileRows || shape.headDim > 128)
      return best;
    for (int parts = 1; parts <= mostRowParts && shape.rows / parts >= leastRowsEach; parts *= 2) {
      for (int each = std::min(group, mostGroup); each > 0; --each)
        if (group % each == 0)
          consider(mostRanks, each, 1, parts, 0);
      for (int keys = 2; keys * group <= warps && group <= mostGroup; ++keys)
        consider(mostRanks, keys * group, keys, parts, 0);
    }
    return best;
  }
  // More keys than the ring holds come in laps, between which warps meet: where a division holds
  // all, or else those that are usual, no other is asked.
  for (int keys : {context, std::min(context, usualKeys), 1}) {
    for (int ranks = mostRanks; ranks > 0; --ranks)
      for (int each = std::min(group, warps); each > 0; --each)
        if (group % each == 0)
          consider(ranks, each, 1, 1, keys);
    if (best)
      break;
  }
  return best;
}

} // namespace gpt2c::shares
