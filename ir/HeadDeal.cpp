#include "ir/HeadDeal.h"

#include <algorithm>

namespace gpt2c {

HeadDeal dealHeads(int64_t heads, int64_t keyHeads, int64_t ranks) {
  HeadDeal deal{ranks, {}, {}};
  const int64_t group = heads / keyHeads;
  // Ranks that share a head of keys, the heads of keys that a rank has, and of queries with each.
  const int64_t sharing = std::max<int64_t>(1, ranks / keyHeads);
  const int64_t keys = sharing > 1 ? 1 : (keyHeads + ranks - 1) / ranks;
  const int64_t queries = (group + sharing - 1) / sharing;
  for (int64_t r = 0; r < ranks; ++r)
    for (int64_t i = 0; i < keys; ++i) {
      const int64_t key = r / sharing * keys + i;
      deal.keys.push_back(key < keyHeads ? key : -1);
      for (int64_t j = 0; j < queries; ++j) {
        const int64_t query = r % sharing * queries + j;
        deal.queries.push_back(key < keyHeads && query < group ? key * group + query : -1);
      }
    }
  return deal;
}

int64_t idleRank(const HeadDeal &deal) {
  const int64_t count = deal.queriesOfRank();
  for (int64_t r = 0; r < deal.ranks; ++r)
    if (const auto first = deal.queries.begin() + r * count;
        std::all_of(first, first + count, [](int64_t h) { return h < 0; }))
      return r;
  return -1;
}

} // namespace gpt2c
