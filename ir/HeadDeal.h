// Which heads of attention each of several ranks has.
#pragma once

#include <cstdint>
#include <vector>

namespace gpt2c {

/// The heads that each rank has, -1 for one of zeros. Heads of queries go where the keys are that
/// they share; with fewer heads of keys than ranks, several ranks have the same keys.
struct HeadDeal {
  int64_t ranks = 0;
  std::vector<int64_t> queries, keys; ///< [ranks, heads of a rank]

  int64_t queriesOfRank() const { return int64_t(queries.size()) / ranks; }
  int64_t keysOfRank() const { return int64_t(keys.size()) / ranks; }
  bool operator==(const HeadDeal &) const = default;
};

HeadDeal dealHeads(int64_t heads, int64_t keyHeads, int64_t ranks);

/// The first rank that has no head of queries; -1: each has one.
int64_t idleRank(const HeadDeal &deal);

} // namespace gpt2c
