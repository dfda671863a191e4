#include "schedule/cost/StepCost.h"

#include <algorithm>
#include <cmath>

namespace gpt2c {

int64_t layerWeightBytes(const DecoderShape &s) {
  const int64_t attention = (2 * s.heads + 2 * s.keyHeads) * s.headDim * s.width,
                mlp = (s.gated ? 3 : 2) * s.width * s.hidden;
  return storedBytes(s.weights, attention + mlp);
}

int64_t vocabularyBytes(const DecoderShape &s) {
  return storedBytes(s.lastWeights, s.vocabulary * s.width);
}

/// Weights of a byte of quantised ones, each of which has to become a float: what that takes counts
/// for weights, not for their bytes.
static double conversions(DType weights) {
  return isQuantised(weights) ? 8.0 / infoOf(weights).bits : 0;
}

/// Of bf16 in 12 bits: what the vocabulary takes beside bf16, and to unpack a byte of the layers.
static constexpr double packedPart = 1.05, packedConversions = 1.3;

/// Bytes of a layer's weights whose rows are no whole sectors of memory: what lanes and copies read
/// of a row is then parts of sectors that the next row is in, too.
static double oddWeightBytes(const DecoderShape &s) {
  constexpr int64_t sector = 32;
  auto ofRows = [&](int64_t n, int64_t k) {
    return storedBytes(s.weights, k) % sector ? double(storedBytes(s.weights, n * k)) : 0.0;
  };
  return ofRows((s.heads + 2 * s.keyHeads) * s.headDim, s.width) +
         ofRows(s.width, s.heads * s.headDim) + ofRows((s.gated ? 2 : 1) * s.hidden, s.width) +
         ofRows(s.width, s.hidden);
}

/// Keys and values of a layer, of all sequences.
static double keyBytes(const DecoderShape &s, int64_t rows) {
  return 2.0 * double(rows * usualKeys * s.keyHeads * s.headDim * byteSize(s.type));
}

/// As launches whose products are tiles or rings: they take what their weights do, and attention
/// what the keys of all sequences do, of wide heads at half the rate.
static double tiledStepMicroseconds(const DecoderShape &s, int64_t rows, const TargetRates &rates) {
  const double megabyte = 1e-6 * rates.reads(), launches = 10.8 + (s.isGrouped() ? 1.0 : 0),
               perMegabyte = 0.277 + 0.1 * conversions(s.weights), perOdd = 0.19,
               perKeys = s.headDim <= 64 ? 0.29 : 0.47;
  return 10 * rates.launches() +
         double(s.layers.size()) * (launches * rates.launches() +
                                    (perMegabyte * double(layerWeightBytes(s)) +
                                     perOdd * oddWeightBytes(s) + perKeys * keyBytes(s, rows)) *
                                        megabyte) +
         0.35 * double(vocabularyBytes(s)) * megabyte;
}

double graphStepMicroseconds(const DecoderShape &s, int64_t rows, const TargetRates &rates) {
  // More rows may do what fewer could.
  constexpr int64_t few = 8;
  const double tiled = tiledStepMicroseconds(s, rows, rates);
  if (rows > few)
    return tiled;
  // Weights are read at 3.4 TB/s for one row and less for more, those in odd rows at half of that;
  // quantised ones meet the conversion before the memory, most of all those of the vocabulary,
  // which one row alone reads at 4.1 TB/s.
  const double doublings = std::log2(double(rows)), megabyte = 1e-6 * rates.reads();
  const double launches = 7.8 + (s.isGrouped() ? 1.6 : 0),
               perMegabyte = 0.289 + 0.03 * doublings + 0.05 * conversions(s.weights),
               perOdd = 0.28, perKeys = 0.3,
               perLast = (rows == 1 ? 0.245 : 0.33) + 0.4 * conversions(s.lastWeights);
  return std::min(tiled, 8.5 * rates.launches() +
                             double(s.layers.size()) *
                                 (launches * rates.launches() +
                                  (perMegabyte * double(layerWeightBytes(s)) +
                                   perOdd * oddWeightBytes(s) + perKeys * keyBytes(s, rows)) *
                                      megabyte) +
                             perLast * double(vocabularyBytes(s)) * megabyte);
}

double clusterStepMicroseconds(const DecoderShape &s, const BlockWork &block, bool several,
                               const TargetRates &rates) {
  // Two hops through device memory and three through a cluster a layer; then what the block reads.
  const double kilobyte = 1e-3 * rates.reads(), layers = double(s.layers.size()),
               vocabulary = double(vocabularyBytes(s)) * 1e-6 * rates.reads() *
                            (block.packedLast ? packedPart : 1),
               conversion = block.packed ? packedConversions : conversions(s.weights);
  const bool grouped = s.isGrouped();
  if (!several) {
    const double hops = (3.4 + (grouped ? 0.95 : 0) + 0.66 * block.heads) * rates.hops(),
                 converted = 0.0168 * conversion;
    // Of GPT-2's kind in floats partial sums are what takes longest for its bytes.
    const bool plain = !grouped && (block.packed || converted == 0);
    const double perKilobyte = plain ? 0.0109 : 0.0176, perSums = plain ? 0.103 : 0;
    return 4 * rates.launches() +
           layers * (hops + ((perKilobyte + converted) * block.weightBytes +
                             perKilobyte * block.keyBytes + perSums * block.sumBytes) *
                                kilobyte) +
           0.33 * vocabulary;
  }
  // A key and its value take what their rows' copies do, however long they are. Of more than eight
  // sequences a weight has two instructions.
  const double hops = 3.3 * rates.hops(), keys = block.keyBytes / (4.0 * double(s.headDim)),
               perKey = 0.0071 * rates.reads(), perSum = 0.075,
               perKilobyte = 0.0235 + 0.0074 * conversion + 0.0055 * double(block.rowGroups - 1);
  return layers * (hops + perKey * keys +
                   (perKilobyte * block.weightBytes + perSum * block.sumBytes) * kilobyte) +
         0.32 * vocabulary;
}

double exchangeMicroseconds(const DecoderShape &s, int64_t rows, const TargetRates &rates,
                            const LinkRates &link) {
  if (s.ranks == 1)
    return 0;
  const double launch = 2 * rates.launches();
  // Of more rows products send their sums, or their tiles exchange them.
  constexpr int64_t few = 16;
  const double sum = rows <= few ? link.allReduce(rows * s.width, s.ranks) + launch
                                 : link.sumBehind(rows * s.width, s.ranks, 0, launch);
  return 2 * double(s.layers.size()) * sum + link.allReduce(rows * 2, s.ranks) + launch;
}

double exchangedWordsMicroseconds(const DecoderShape &s, int64_t wordsOfSum,
                                  const LinkRates &link) {
  if (s.ranks == 1)
    return 0;
  return 2 * double(s.layers.size()) * link.words(wordsOfSum, s.ranks) + link.words(1, s.ranks);
}

} // namespace gpt2c
