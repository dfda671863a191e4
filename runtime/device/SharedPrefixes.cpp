#include "runtime/device/SharedPrefixes.h"

#include <algorithm>
#include <numeric>

namespace gpt2c::rt {
namespace {

/// What a launch in front of each layer's attention costs at most, as bytes that a multiprocessor
/// reads from L2 meanwhile: 3 us of 38 GB/s.
constexpr int64_t launchBytes = 114'000;
/// Pages that a tile has to save for what its queries and its part of the sums take.
constexpr int64_t pagesOfTile = 4;

/// Pages [from, to) that sequences [first, last) of the order begin with alike, beside those of the
/// prefixes it stands in.
struct Prefix {
  int32_t first, last, from, to;
  int32_t within;     ///< its place among the prefixes; -1: it stands in none
  int32_t below = 0;  ///< the most prefixes that stand in one another within it
  int32_t chunks = 0; ///< parts that its pages are computed in
  int32_t size() const { return last - first; }
  int32_t pages() const { return to - from; }
};

int32_t ceilDiv(int64_t a, int64_t b) { return int32_t((a + b - 1) / b); }

/// Finds the prefixes of a call, outer ones before those within them.
class PrefixTree {
public:
  PrefixTree(std::span<const int32_t> positions, std::span<const int32_t> tables, int32_t columns,
             const PrefixLimits &limits)
      : positions_(positions), tables_(tables), columns_(columns), limits_(limits),
        order_(positions.size()), alike_(positions.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, [&](int32_t a, int32_t b) {
      return std::ranges::lexicographical_compare(pagesOf(a), pagesOf(b));
    });
    for (size_t i = 0; i + 1 < order_.size(); ++i)
      alike_[i] = common(order_[i], order_[i + 1]);
    add(0, int32_t(order_.size()), 0, -1);
  }
  std::vector<Prefix> &prefixes() { return prefixes_; }
  std::span<const int32_t> sequencesOf(const Prefix &p) const {
    return std::span(order_).subspan(size_t(p.first), size_t(p.size()));
  }

private:
  /// Those that are full.
  std::span<const int32_t> pagesOf(int32_t b) const {
    return tables_.subspan(size_t(b) * size_t(columns_),
                           size_t(std::min(positions_[size_t(b)] / limits_.pageTokens, columns_)));
  }
  int32_t common(int32_t a, int32_t b) const {
    const auto first = pagesOf(a), second = pagesOf(b);
    return int32_t(std::ranges::mismatch(first, second).in1 - first.begin());
  }
  /// Of sequences [first, last) of the order, which begin with the same `from` pages; returns how
  /// many prefixes stand in one another there.
  int32_t add(int32_t first, int32_t last, int32_t from, int32_t within) {
    if (last - first < 2)
      return 0;
    const auto of = std::span(alike_).subspan(size_t(first), size_t(last - first - 1));
    const int32_t to = std::ranges::min(of);
    const int64_t saved = int64_t(last - first - 1) * (to - from);
    const bool isOne = saved >= pagesOfTile * ceilDiv(last - first, limits_.members);
    const auto at = int32_t(prefixes_.size());
    if (isOne)
      prefixes_.push_back({first, last, from, to, within});
    int32_t below = 0;
    for (int32_t begin = first, i = first; i < last; ++i)
      if (i + 1 == last || alike_[size_t(i)] == to) {
        below = std::max(below, add(begin, i + 1, isOne ? to : from, isOne ? at : within));
        begin = i + 1;
      }
    if (isOne)
      prefixes_[size_t(at)].below = below;
    return below + isOne;
  }

  std::span<const int32_t> positions_, tables_;
  int32_t columns_;
  const PrefixLimits &limits_;
  std::vector<int32_t> order_;
  std::vector<int32_t> alike_; ///< pages that a sequence of the order and the next begin with alike
  std::vector<Prefix> prefixes_;
};

/// In how many parts each prefix is computed, so that the tiles of all are about what the device
/// computes at a time; 0: in none, as its sequences have no part left.
void divide(std::vector<Prefix> &prefixes, const PrefixLimits &limits) {
  int64_t work = 0; // pages of tiles
  for (const Prefix &p : prefixes)
    work += int64_t(ceilDiv(p.size(), limits.members)) * p.pages();
  const int32_t pages = std::max(1, ceilDiv(work, std::max(limits.blocks, 1)));
  std::vector<int32_t> left(prefixes.size());
  for (size_t i = 0; i < prefixes.size(); ++i) {
    Prefix &p = prefixes[i];
    const int32_t room = p.within < 0 ? mostPrefixParts : left[size_t(p.within)];
    const int32_t own = std::max(room - p.below, std::min(room, 1));
    p.chunks = std::min(own, ceilDiv(p.pages(), pages));
    left[i] = room - p.chunks;
  }
}

} // namespace

SharedPrefixes sharedPrefixes(std::span<const int32_t> positions, std::span<const int32_t> tables,
                              int32_t columns, const PrefixLimits &limits) {
  SharedPrefixes out;
  out.sequences.assign(2 * positions.size(), 0);
  PrefixTree tree(positions, tables, columns, limits);
  std::vector<Prefix> &prefixes = tree.prefixes();
  int64_t saved = 0; // pages that are not read again
  for (const Prefix &p : prefixes)
    saved += int64_t(p.size() - 1) * p.pages();
  if (saved * limits.pageBytes < launchBytes * limits.multiprocessors)
    return out;
  divide(prefixes, limits);
  for (const Prefix &p : prefixes) {
    const std::span<const int32_t> all = tree.sequencesOf(p);
    const int32_t each = ceilDiv(p.size(), limits.members),
                  chunks = std::min(p.chunks, (limits.tiles - out.count) / each),
                  own = out.sequences[2 * size_t(all[0])],
                  part = out.sequences[2 * size_t(all[0]) + 1];
    // What is within one that has no tiles has none either: own keys are in one piece.
    if (chunks < 1 || own != p.from * limits.pageTokens)
      continue;
    for (int32_t c = 0; c < chunks; ++c) {
      const int32_t begin = p.from + int32_t(int64_t(p.pages()) * c / chunks),
                    end = p.from + int32_t(int64_t(p.pages()) * (c + 1) / chunks);
      for (int32_t first = 0; first < p.size(); first += limits.members) {
        const int32_t count = std::min(limits.members, p.size() - first);
        out.tiles.insert(out.tiles.end(), {begin, end - begin, part + c, count});
        const auto some = all.subspan(size_t(first), size_t(count));
        out.tiles.insert(out.tiles.end(), some.begin(), some.end());
        out.tiles.resize(size_t(++out.count) * size_t(prefixTileHead + limits.members));
      }
    }
    for (int32_t b : all) {
      out.sequences[2 * size_t(b)] = p.to * limits.pageTokens;
      out.sequences[2 * size_t(b) + 1] = part + chunks;
    }
  }
  return out;
}

} // namespace gpt2c::rt
