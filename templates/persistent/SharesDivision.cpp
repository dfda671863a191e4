#include "templates/persistent/SharesDivision.h"

#include <algorithm>
#include <array>

namespace gpt2c::shares {

/// Slots are no larger than the widest tile and this: larger ones leave too few for a stage.
static constexpr int aimedSlotBytes = 9 * 1024;
/// Keys that the bytes of a step are counted for.
static constexpr int usualKeys = 512;

int residentClusters(int ranks) {
  constexpr std::array<int, mostRanks + 1> most = {0, 132, 66, 39, 30, 22, 17, 15, 15};
  return ranks < 1 || ranks > mostRanks ? 0 : most[ranks];
}

/// Whether a warp that waits for a slot has itself read what was in it a lap before, or all have.
static bool fits(const Product &p, int slots) {
  return p.slots <= slots || (slots % p.chunks == 0 && slots / p.chunks * p.each % warps == 0);
}

/// Sizes of the ring for `ranks` and `clusters`; false: a stage does not fit.
static bool chooseRing(Division &d, int context, int records, int64_t sharedBytes) {
  const int slice = sliceOf(d.width, d.ranks), share = largestShare(d.hidden, d.leastClusters);
  auto tileOfFirst = [&] { return product(tileRows, slice, d.firstChunks, 0).tileBytes; };
  for (d.firstChunks = 1; tileOfFirst() > aimedSlotBytes;)
    ++d.firstChunks;
  d.slotBytes = std::max({tileOfFirst(), tileBytesOf(share), tileBytesOf(d.headDim)});
  // A little more, if two narrow tiles fit then.
  for (int narrow : {tileOfFirst(), tileBytesOf(d.headDim)})
    if (narrow < d.slotBytes && 2 * narrow > d.slotBytes && 8 * narrow <= 5 * d.slotBytes)
      d.slotBytes = 2 * narrow;
  for (d.lastChunks = 1; product(tileRows, d.width, d.lastChunks, 0).tileBytes > d.slotBytes;)
    ++d.lastChunks;
  d.slots = 64;
  const int64_t room = (sharedBytes - otherBytes(d, records)) / d.slotBytes;
  d.slots =
      int(std::min<int64_t>({room, d.slots, warps * d.lastChunks})) / d.lastChunks * d.lastChunks;
  if (d.slots <= 0)
    return false;
  const Products p = productsOf(d);
  const int keyTiles = ceilDiv(ceilDiv(context, tileRows), d.ranks);
  return 2 * ceilDiv(keyTiles, p.keys.each) <= d.slots && p.output.padded / 2 <= warps * 32 &&
         fits(p.head, d.slots) && fits(p.projection, d.slots) && fits(p.hidden, d.slots) &&
         fits(p.output, d.slots);
}

std::optional<Division> divide(Division shape, int context, int records, int64_t sharedBytes) {
  std::optional<Division> best;
  double least = 0;
  if (shape.width % 8 || shape.hidden % 8 || shape.headDim % 8 || shape.headDim > 256)
    return best;
  for (int ranks = mostRanks; ranks > 0; --ranks) {
    Division d = shape;
    d.ranks = ranks;
    d.clusters = std::min({residentClusters(ranks), mostSources, d.hidden / groupOf(d.hidden)});
    // GPUs differ in how many clusters they hold.
    d.leastClusters = std::max(d.heads, d.clusters - d.clusters / 16);
    if (d.clusters < d.heads || sliceCount(d.width, ranks, ranks - 1) <= 0 ||
        !chooseRing(d, context, records, sharedBytes))
      continue;
    const double slice = sliceOf(d.width, ranks);
    const double bytes = 8 * slice * d.headDim +
                         4.0 * std::min(context, usualKeys) * d.headDim / ranks +
                         4 * slice * largestShare(d.hidden, d.clusters);
    if (!best || bytes < least) {
      best = d;
      least = bytes;
    }
  }
  return best;
}

} // namespace gpt2c::shares
