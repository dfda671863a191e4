// The order in which warps fill the rings of persistent kernels: in no order of events does one
// take a slot that has not been read.
#include "templates/decode_step/common/ring.h"

#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

using gpt2c::persistent::slotsUntil;

namespace {

/// A ring whose readers meet after every `window` slots and read those between in any order, and
/// loading warps that fill slots when a barrier of two parities says that these have been read.
class Ring {
public:
  /// owner(i): of the loading warps that which fills slot number i since the beginning.
  Ring(int slots, int window, int loaders, std::function<int(int)> owner)
      : slots_(slots), window_(window), owner_(std::move(owner)), next_(loaders) {}

  /// Whether, in some order of events of the first `laps` laps, a slot is filled too early.
  bool overtakes(int laps) {
    end_ = laps * slots_;
    for (size_t w = 0; w < next_.size(); ++w)
      next_[w] = following(int(w), 0);
    return search();
  }

private:
  int following(int warp, int i) const {
    while (i < end_ && owner_(i) != warp)
      ++i;
    return i;
  }
  bool isRead(int i) const {
    return i < begin_ || (i < begin_ + window_ && (read_ >> (i - begin_) & 1));
  }
  bool isFilled(int i) const { return next_[owner_(i)] > i; }
  int reads(int slot) const {
    int n = 0;
    for (int i = slot; i < end_; i += slots_)
      n += isRead(i);
    return n;
  }

  bool search() {
    std::vector<int> state = next_;
    state.push_back(begin_);
    state.push_back(int(read_));
    if (!seen_.insert(state).second)
      return false;
    for (size_t w = 0; w < next_.size(); ++w) {
      const int i = next_[w], lap = i / slots_, n = i < end_ ? reads(i % slots_) : 0;
      if (i == end_ || n % 2 != lap % 2) // the barrier's parity
        continue;
      if (n < lap)
        return true;
      next_[w] = following(int(w), i + 1);
      const bool found = search();
      next_[w] = i;
      if (found)
        return true;
    }
    for (int j = 0; j < window_ && begin_ + j < end_; ++j) {
      if (isRead(begin_ + j) || !isFilled(begin_ + j))
        continue;
      const auto before = std::pair(begin_, read_);
      read_ |= 1u << j;
      if (read_ == (1u << window_) - 1) {
        begin_ += window_;
        read_ = 0;
      }
      const bool found = search();
      std::tie(begin_, read_) = before;
      if (found)
        return true;
    }
    return false;
  }

  int slots_, window_, end_ = 0, begin_ = 0;
  unsigned read_ = 0;
  std::function<int(int)> owner_;
  std::vector<int> next_; ///< of each warp
  std::set<std::vector<int>> seen_;
};

TEST(PersistentRing, ASlotIsAlwaysTheSameWarps) {
  for (int slots : {4, 7, 8, 16})
    for (int warp = 0; warp < 3; ++warp)
      for (int slot = 0; slot < slots; ++slot) {
        EXPECT_EQ(slotsUntil(slot, warp, 3) == 0, slot % 3 == warp);
        EXPECT_EQ((slot + slotsUntil(slot, warp, 3)) % 3, warp);
      }
}

TEST(PersistentRing, NoWarpTakesASlotThatHasNotBeenRead) {
  for (int slots : {4, 5, 7, 8}) {
    auto own = [&](int i) {
      for (int warp = 0; warp < 3; ++warp)
        if (slotsUntil(i % slots, warp, 3) == 0)
          return warp;
      return -1;
    };
    EXPECT_FALSE(Ring(slots, slots, 3, own).overtakes(3)) << slots;
  }
  // Warps in turn, through laps that are no multiple of them: as many slots as half a layer has in
  // fp32, and so near each other that none is ahead.
  auto turns = [](int i) { return i % 3; };
  EXPECT_TRUE(Ring(8, 8, 3, turns).overtakes(3));
  EXPECT_FALSE(Ring(8, 4, 3, turns).overtakes(3));
  EXPECT_FALSE(Ring(6, 6, 3, turns).overtakes(3));
}

} // namespace
