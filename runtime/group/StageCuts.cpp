#include "runtime/group/StageCuts.h"

#include <numeric>

namespace gpt2c::rt {

/// Cuts so that no stage has more than `most`; empty: it cannot be.
static std::vector<int64_t> dealWithin(std::span<const int64_t> bytes, int64_t stages,
                                       int64_t most) {
  std::vector<int64_t> cuts;
  const auto layers = int64_t(bytes.size());
  int64_t sum = 0;
  for (int64_t l = 0; l < layers; ++l) {
    const int64_t cutsLeft = stages - 1 - int64_t(cuts.size()), own = bytes[size_t(l)];
    // A stage ends where it is full, or where each layer that is left has to be a stage.
    if (l > 0 && cutsLeft > 0 && (sum + own > most || layers - l <= cutsLeft)) {
      cuts.push_back(l);
      sum = 0;
    }
    sum += own;
    if (sum > most)
      return {};
  }
  return cuts;
}

std::vector<int64_t> dealLayers(std::span<const int64_t> bytes, int64_t stages) {
  if (stages == 1)
    return {};
  int64_t low = 0, high = std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (dealWithin(bytes, stages, middle).empty())
      low = middle + 1;
    else
      high = middle;
  }
  return dealWithin(bytes, stages, high);
}

} // namespace gpt2c::rt
