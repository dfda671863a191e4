#include "schedule/cost/LinkRates.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace gpt2c {

// Where the measured hops lie.
constexpr double few = 8192, many = 51'200, most = 204'800;
// That have a place each in a round.
constexpr int64_t mostWords = 1 << 17;

static double between(double x, double x0, double y0, double x1, double y1) {
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

double LinkRates::allReduce(int64_t halves, int64_t ranks) const {
  if (ranks <= 1)
    return 0;
  // Two halves are a word, and every rank sends its numbers to every other.
  if (double(halves) * double(ranks - 1) <= most)
    return words(llvm::divideCeil(halves, 2), ranks);
  // A ring moves 2 (ranks - 1) / ranks of the bytes, which is all of them on two.
  const double moved = double(halves) * 2 * double(ranks - 1) / double(ranks);
  return std::max(collective, collectiveOfMany + perHalf * moved);
}

double LinkRates::words(int64_t count, int64_t ranks) const {
  const double sent = 2 * double(count) * double(ranks - 1);
  if (sent <= few)
    return hop;
  if (sent <= many)
    return between(sent, few, hop, many, hopOfMany);
  return between(sent, many, hopOfMany, most, hopOfMost);
}

double LinkRates::exchange(int64_t count, int64_t ranks) const {
  const double sent = double(count) * double(ranks - 1);
  return count <= mostWords ? hop + 8 * sent / bytes : 10 * hop + 4 * sent / (bytes / 2);
}

constexpr double memory = 3e6; // bytes a microsecond, of launches

double LinkRates::sentSums(int64_t count, int64_t ranks, double product) const {
  const double sent = 2 * double(count) * double(ranks - 1) / bytes,
               added = 2 * double(count) * double(ranks + 2) / memory;
  return 2 * hop + std::max(0.0, sent - product) + added;
}

double LinkRates::scatteredSums(int64_t count, int64_t ranks, double product) const {
  const double others = double(ranks - 1) / double(ranks),
               moved = 2 * double(count) * others / bytes, hidden = product / double(ranks),
               added = 2 * double(count) / memory;
  return hop + 2 * std::max(0.0, moved - hidden) + added;
}

double LinkRates::receivedSums(int64_t count, int64_t ranks) const {
  return hop + 4 * double(count) * double(ranks - 1) / bytes;
}

double LinkRates::sumApart(int64_t count, int64_t ranks, double product, double launch) const {
  return launch + std::min(exchange(count, ranks), sentSums(count, ranks, product));
}

double LinkRates::sumBehind(int64_t count, int64_t ranks, double product, double launch) const {
  // Tiles of one wave receive; of more, rows are divided.
  return std::min(sumApart(count, ranks, product, launch),
                  count <= 2 * mostWords ? receivedSums(count, ranks)
                                         : scatteredSums(count, ranks, product));
}

double LinkRates::handOver(int64_t halves) const { return hop + 2 * double(halves) / bytes; }

} // namespace gpt2c
