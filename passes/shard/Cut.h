// How the columns of a value are dealt to ranks.
#pragma once

#include "ir/HeadDeal.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpt2c {

/// Of a value a rank has these of its columns, the elements behind its rows: units of `unit`
/// columns, listed as rank_part has them. A column of zeros that is no column of the value (-1, or
/// what lies behind the last one) may hold any finite number where it was computed.
struct Cut {
  int64_t unit = 0;
  std::vector<int64_t> units; ///< [ranks, units of a rank]
  bool operator==(const Cut &) const = default;

  size_t ofRank(int64_t ranks) const { return units.size() / size_t(ranks); }
  /// Columns of a rank.
  int64_t width(int64_t ranks) const { return unit * int64_t(ofRank(ranks)); }
};

/// `count` columns one behind the other, as many for each rank and a multiple of `step`: the last
/// ranks get those that are missing as zeros. Empty units where a rank would have nothing else.
Cut contiguousCut(int64_t count, int64_t ranks, int64_t step = 1);

/// Whether each of `count` columns is one rank's alone.
bool dealsOnce(const Cut &cut, int64_t count);

/// The columns begin .. end - 1 of a value that is cut so: where a rank has them among its own, and
/// how they are cut. Empty units where they are not beside each other, or not at one place.
struct CutSlice {
  int64_t begin = 0; ///< of a rank's columns
  Cut cut;
};
CutSlice sliceOf(const Cut &cut, int64_t ranks, int64_t begin, int64_t end);

/// Of rows that hold all heads of queries, then of keys, then of values.
Cut packedCut(const HeadDeal &deal, int64_t heads, int64_t keyHeads, int64_t headDim);

} // namespace gpt2c
