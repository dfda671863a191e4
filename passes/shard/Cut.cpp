#include "passes/shard/Cut.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace gpt2c {

Cut contiguousCut(int64_t count, int64_t ranks, int64_t step) {
  const int64_t unit = (count + ranks * step - 1) / (ranks * step) * step;
  Cut cut{unit, {}};
  if ((ranks - 1) * unit >= count)
    return cut;
  for (int64_t r = 0; r < ranks; ++r)
    cut.units.push_back(r);
  return cut;
}

bool dealsOnce(const Cut &cut, int64_t count) {
  std::vector<int> times((count + cut.unit - 1) / cut.unit, 0);
  for (int64_t u : cut.units)
    if (u >= 0 && (u >= int64_t(times.size()) || ++times[u] > 1))
      return false;
  return llvm::all_of(times, [](int n) { return n == 1; });
}

CutSlice sliceOf(const Cut &cut, int64_t ranks, int64_t begin, int64_t end) {
  const auto count = int64_t(cut.ofRank(ranks));
  if (begin % cut.unit != 0 || end % cut.unit != 0)
    return {};
  const int64_t low = begin / cut.unit, high = end / cut.unit;
  auto isIn = [&](int64_t u) { return u >= low && u < high; };
  int64_t first = count, last = -1;
  for (int64_t i = 0; i < int64_t(cut.units.size()); ++i)
    if (isIn(cut.units[i])) {
      first = std::min(first, i % count);
      last = std::max(last, i % count);
    }
  CutSlice out{first * cut.unit, {cut.unit, {}}};
  for (int64_t r = 0; r < ranks; ++r)
    for (int64_t i = first; i <= last; ++i) {
      const int64_t u = cut.units[r * count + i];
      if (u >= 0 && !isIn(u))
        return {};
      out.cut.units.push_back(u < 0 ? -1 : u - low);
    }
  return out;
}

Cut packedCut(const HeadDeal &deal, int64_t heads, int64_t keyHeads, int64_t headDim) {
  Cut cut{headDim, {}};
  const int64_t q = deal.queriesOfRank(), k = deal.keysOfRank();
  auto add = [&](llvm::ArrayRef<int64_t> of, int64_t offset) {
    for (int64_t h : of)
      cut.units.push_back(h < 0 ? -1 : h + offset);
  };
  for (int64_t r = 0; r < deal.ranks; ++r) {
    add(llvm::ArrayRef(deal.queries).slice(r * q, q), 0);
    add(llvm::ArrayRef(deal.keys).slice(r * k, k), heads);
    add(llvm::ArrayRef(deal.keys).slice(r * k, k), heads + keyHeads);
  }
  return cut;
}

} // namespace gpt2c
