// Prefixes that sequences of a call share: what tiles cover, and when there are none.
#include "runtime/device/SharedPrefixes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace gpt2c::rt {
namespace {

constexpr int32_t pageTokens = 64;

/// Sequences of that many tokens and those pages.
struct Calls {
  std::vector<int32_t> positions;
  std::vector<std::vector<int32_t>> pages;
  PrefixLimits limits = {
      .pageTokens = pageTokens, .members = 4, .tiles = 1000, .blocks = 16, .pageBytes = 1 << 24};

  void add(int32_t position, std::vector<int32_t> of) {
    positions.push_back(position);
    of.resize(columns, -7); // of no meaning
    pages.push_back(std::move(of));
  }
  SharedPrefixes find() const {
    std::vector<int32_t> tables;
    for (const auto &row : pages)
      tables.insert(tables.end(), row.begin(), row.end());
    return sharedPrefixes(positions, tables, columns, limits);
  }
  static constexpr int32_t columns = 40;
};

struct Tile {
  int32_t from, pages, part;
  std::vector<int32_t> sequences;
};
std::vector<Tile> tilesOf(const SharedPrefixes &p, int32_t members) {
  std::vector<Tile> tiles;
  const size_t words = size_t(prefixTileHead) + size_t(members);
  EXPECT_EQ(p.tiles.size(), size_t(p.count) * words);
  for (size_t at = 0; at < p.tiles.size(); at += words) {
    const int32_t *word = &p.tiles[at];
    EXPECT_LE(word[3], members);
    tiles.push_back({word[0], word[1], word[2], {word + 4, word + 4 + word[3]}});
  }
  return tiles;
}

/// Each sequence's keys in front of its own are computed once, of pages that are its own and full,
/// in parts that are numbered in their order.
void expectCovered(const Calls &calls, const SharedPrefixes &found) {
  std::map<int32_t, std::map<int32_t, std::pair<int32_t, int32_t>>> partsOf; // sequence -> part
  for (const Tile &t : tilesOf(found, calls.limits.members)) {
    ASSERT_FALSE(t.sequences.empty());
    ASSERT_GT(t.pages, 0);
    for (int32_t b : t.sequences) {
      EXPECT_TRUE(partsOf[b].try_emplace(t.part, t.from, t.pages).second);
      for (int32_t at = 0; at < t.from + t.pages; ++at)
        EXPECT_EQ(calls.pages[size_t(b)][size_t(at)],
                  calls.pages[size_t(t.sequences[0])][size_t(at)]);
    }
  }
  for (size_t b = 0; b < calls.positions.size(); ++b) {
    const int32_t own = found.sequences[2 * b], parts = found.sequences[2 * b + 1];
    EXPECT_LE(own, calls.positions[b] / pageTokens * pageTokens);
    EXPECT_LE(parts, mostPrefixParts);
    EXPECT_EQ(int32_t(partsOf[int32_t(b)].size()), parts);
    int32_t at = 0, number = 0;
    for (auto [part, run] : partsOf[int32_t(b)]) {
      EXPECT_EQ(part, number++);
      EXPECT_EQ(run.first, at);
      at += run.second;
    }
    EXPECT_EQ(at * pageTokens, own);
  }
}

std::vector<int32_t> run(int32_t first, int32_t count) {
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < count; ++i)
    pages.push_back(first + i);
  return pages;
}
std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t> &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(SharedPrefixes, OneOfAllSequences) {
  Calls calls;
  for (int32_t b = 0; b < 9; ++b)
    calls.add(16 * 64 + 10 + b, run(100, 16) + run(1000 + b, 1));
  const SharedPrefixes found = calls.find();
  expectCovered(calls, found);
  EXPECT_EQ(found.sequences[0], 16 * 64);
  // Three tiles for each part, so that there is work for 16 blocks.
  EXPECT_EQ(found.sequences[1], 6);
  EXPECT_EQ(found.count, 18);
}

TEST(SharedPrefixes, OnlyFullPages) {
  Calls calls;
  for (int32_t b = 0; b < 8; ++b)
    calls.add(b == 3 ? 7 * 64 - 1 : 9 * 64, run(0, 9));
  const SharedPrefixes found = calls.find();
  expectCovered(calls, found);
  EXPECT_EQ(found.sequences[2 * 3], 6 * 64);
  EXPECT_EQ(found.sequences[2 * 4], 9 * 64);
}

TEST(SharedPrefixes, OneWithinAnother) {
  Calls calls;
  for (int32_t b = 0; b < 12; ++b)
    calls.add(30 * 64, run(0, 8) + run(100 * (b / 4 + 1), 8) + run(10'000 + 50 * b, 14));
  calls.add(20 * 64, run(5'000, 20)); // shares nothing
  const SharedPrefixes found = calls.find();
  expectCovered(calls, found);
  for (size_t b = 0; b < 12; ++b)
    EXPECT_EQ(found.sequences[2 * b], 16 * 64);
  EXPECT_EQ(found.sequences[24], 0);
}

TEST(SharedPrefixes, NoneThatSaveLessThanALaunch) {
  Calls calls;
  for (int32_t b = 0; b < 4; ++b)
    calls.add(2 * 64 + b, run(0, 2) + run(10 + b, 1));
  EXPECT_EQ(calls.find().count, 2);
  calls.limits.pageBytes = 114'000 * 132 / 6 - 1; // of six pages that are not read again
  const SharedPrefixes none = calls.find();
  EXPECT_EQ(none.count, 0);
  EXPECT_EQ(none.sequences, std::vector<int32_t>(8, 0));
  EXPECT_EQ(sharedPrefixes({}, {}, 4, calls.limits).count, 0);
}

TEST(SharedPrefixes, AsManyTilesAsACallTakes) {
  Calls calls;
  for (int32_t b = 0; b < 8; ++b)
    calls.add(32 * 64, run(0, 32));
  calls.limits.tiles = 5; // two for each part
  const SharedPrefixes found = calls.find();
  expectCovered(calls, found);
  EXPECT_EQ(found.count, 4);
  calls.limits.tiles = 1;
  EXPECT_EQ(calls.find().count, 0);
}

TEST(SharedPrefixes, AnyTreeOfConversations) {
  std::mt19937 random(7);
  auto below = [&](uint32_t n) { return int32_t(random() % n); };
  for (int round = 0; round < 300; ++round) {
    Calls calls;
    calls.limits.members = 1 + below(6);
    calls.limits.tiles = 1 + below(60);
    calls.limits.blocks = 1 + below(40);
    const int32_t branches = 1 + below(4), sequences = 1 + below(40);
    for (int32_t b = 0; b < sequences; ++b) {
      std::vector<int32_t> pages;
      int32_t path = 1;
      for (int32_t at = 0; at < Calls::columns; ++at) {
        if (below(8) == 0)
          path = path * 5 + below(uint32_t(branches));
        path %= 100'003;
        pages.push_back(path * 64 + at);
      }
      calls.add(below(uint32_t(Calls::columns * pageTokens)), std::move(pages));
    }
    const SharedPrefixes found = calls.find();
    EXPECT_LE(found.count, calls.limits.tiles);
    expectCovered(calls, found);
    const SharedPrefixes again = calls.find();
    EXPECT_EQ(found.tiles, again.tiles);
    EXPECT_EQ(found.sequences, again.sequences);
    if (HasFailure())
      FAIL() << "in round " << round;
  }
}

} // namespace
} // namespace gpt2c::rt
