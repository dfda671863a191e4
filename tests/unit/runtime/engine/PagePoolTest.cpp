#include "runtime/engine/PagePool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

namespace gpt2c::rt {
namespace {

using Text = std::vector<int32_t>;

constexpr int32_t kSize = 2;

uint64_t constantHash(PageEntry, std::span<const int32_t>) { return 7; }

int32_t takeOne(PagePool &pool) {
  EXPECT_TRUE(pool.reserve(1));
  return pool.take();
}

/// A page of `tokens` behind `parent`, used.
int32_t published(PagePool &pool, PageEntry parent, Text tokens) {
  return pool.publish(takeOne(pool), parent, tokens);
}

TEST(PagePool, PromisesNoMoreThanThereIs) {
  PagePool pool(3, kSize);
  EXPECT_EQ(pool.unreserved(), 3);
  EXPECT_TRUE(pool.reserve(2));
  EXPECT_FALSE(pool.reserve(2));
  EXPECT_EQ(pool.unreserved(), 1);
  EXPECT_EQ(pool.used(), 0);
  int32_t a = pool.take(), b = pool.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.used(), 2);
  EXPECT_EQ(pool.reserved(), 0);
  EXPECT_EQ(pool.unreserved(), 1);
  EXPECT_TRUE(pool.reserve(1));
  pool.unreserve(1);
  EXPECT_EQ(pool.unreserved(), 1);
  pool.release(a);
  EXPECT_EQ(pool.unreserved(), 2);
}

TEST(PagePool, FindsByTokensAndParent) {
  PagePool pool(4, kSize);
  int32_t a = published(pool, 0, {1, 2});
  int32_t b = published(pool, pool.entryOf(a), {3, 4});
  EXPECT_EQ(pool.find(0, Text{1, 2}), a);
  EXPECT_EQ(pool.find(pool.entryOf(a), Text{3, 4}), b);
  EXPECT_EQ(pool.find(0, Text{3, 4}), -1); // the same tokens behind others
  EXPECT_EQ(pool.find(0, Text{1, 3}), -1);
  pool.share(a);
  EXPECT_EQ(pool.readers(a), 2);
  pool.release(a);
  pool.release(b);
  pool.release(a);
  EXPECT_EQ(pool.used(), 0);
  EXPECT_TRUE(pool.isIdle(a));
  EXPECT_EQ(pool.find(0, Text{1, 2}), a); // idle pages are found, too
}

TEST(PagePool, CollisionsOfTheHashAreNoHits) {
  PagePool pool(4, kSize, constantHash);
  int32_t a = published(pool, 0, {1, 2}), b = published(pool, 0, {5, 6});
  EXPECT_EQ(pool.find(0, Text{1, 2}), a);
  EXPECT_EQ(pool.find(0, Text{5, 6}), b);
  EXPECT_EQ(pool.find(0, Text{2, 1}), -1);
  EXPECT_EQ(pool.find(pool.entryOf(a), Text{5, 6}), -1);
}

TEST(PagePool, BlankPagesFirstThenTheLeastRecentlyUsed) {
  PagePool pool(4, kSize);
  int32_t a = published(pool, 0, {1, 1}), b = published(pool, 0, {2, 2}),
          c = published(pool, 0, {3, 3});
  pool.release(b);
  pool.release(a);
  pool.release(c);
  pool.share(b); // used once more: the most recent now
  pool.release(b);
  EXPECT_EQ(pool.stats().forgotten, 0);
  int32_t blank = takeOne(pool);
  EXPECT_TRUE(blank != a && blank != b && blank != c);
  EXPECT_EQ(pool.stats().forgotten, 0);
  EXPECT_EQ(takeOne(pool), a);
  EXPECT_EQ(pool.stats().forgotten, 1);
  EXPECT_EQ(pool.find(0, Text{1, 1}), -1);
  EXPECT_EQ(takeOne(pool), c);
  EXPECT_EQ(takeOne(pool), b);
  EXPECT_FALSE(pool.reserve(1));
}

TEST(PagePool, NothingIsFoundBehindAForgottenEntry) {
  PagePool pool(2, kSize, constantHash);
  int32_t a = published(pool, 0, {1, 1});
  const PageEntry first = pool.entryOf(a);
  int32_t b = published(pool, first, {2, 2});
  pool.release(a); // the wrong order on purpose: the parent goes first
  int32_t again = takeOne(pool);
  EXPECT_EQ(again, a);
  again = pool.publish(again, 0, Text{1, 1});
  EXPECT_NE(pool.entryOf(again), first);
  EXPECT_EQ(pool.find(pool.entryOf(again), Text{2, 2}), -1);
  EXPECT_EQ(pool.find(first, Text{2, 2}), b);
}

TEST(PagePool, EqualPagesBecomeOne) {
  PagePool pool(3, kSize);
  int32_t a = published(pool, 0, {1, 2});
  EXPECT_EQ(published(pool, 0, {1, 2}), a);
  EXPECT_EQ(pool.readers(a), 2);
  EXPECT_EQ(pool.used(), 1);
  EXPECT_EQ(pool.stats().merged, 1);
  pool.release(a);
  pool.release(a);
  EXPECT_EQ(published(pool, 0, {1, 2}), a); // also with an idle one
  EXPECT_EQ(pool.readers(a), 1);
  EXPECT_EQ(pool.used(), 1);
}

TEST(PagePool, MergesWithAnIdlePageWhereAllOthersArePromised) {
  PagePool pool(2, kSize);
  int32_t a = published(pool, 0, {1, 2});
  pool.release(a);
  int32_t b = takeOne(pool);
  ASSERT_NE(a, b);
  ASSERT_TRUE(pool.reserve(1));
  EXPECT_EQ(pool.publish(b, 0, Text{1, 2}), a);
  EXPECT_EQ(pool.take(), b);
}

TEST(PagePool, ForgetsAll) {
  PagePool pool(2, kSize);
  pool.release(published(pool, 0, {1, 2}));
  pool.forgetAll();
  EXPECT_EQ(pool.find(0, Text{1, 2}), -1);
  takeOne(pool);
  takeOne(pool);
  EXPECT_EQ(pool.stats().forgotten, 0);
}

/// The pool as its header says it: pages in vectors, texts in full.
class NaivePool {
public:
  struct Page {
    int readers = 0;
    std::optional<Text> text; ///< from the first token on
    int64_t givenBack = 0;
  };

  explicit NaivePool(int32_t pages) : pages(size_t(pages)) {}

  int32_t find(const Text &text) const {
    for (size_t i = 0; i < pages.size(); ++i)
      if (pages[i].text == text)
        return int32_t(i);
    return -1;
  }
  int32_t used() const {
    return int32_t(std::ranges::count_if(pages, [](auto &p) { return p.readers > 0; }));
  }
  /// Which idle page goes first; -1: any blank one.
  int32_t oldest() const {
    int32_t best = -1;
    for (size_t i = 0; i < pages.size(); ++i) {
      if (pages[i].readers > 0)
        continue;
      if (!pages[i].text)
        return -1;
      if (best < 0 || pages[i].givenBack < pages[size_t(best)].givenBack)
        best = int32_t(i);
    }
    return best;
  }
  void release(int32_t page) {
    if (--pages[size_t(page)].readers == 0)
      pages[size_t(page)].givenBack = ++clock;
  }

  std::vector<Page> pages;
  int64_t clock = 0;
};

struct Sequence {
  Text text;
  std::vector<int32_t> pages;
  int32_t reserved = 0;
};

/// Sequences of few different texts come, grow and go; every answer of the pool is compared.
void playRandomly(uint32_t seed, int32_t pages, PagePool::Hash hash) {
  std::mt19937 random(seed);
  auto below = [&](uint32_t n) { return int32_t(random() % n); };
  PagePool pool(pages, kSize, hash);
  NaivePool naive(pages);
  std::vector<Sequence> live;
  auto entryBehind = [&](const Sequence &s) {
    return s.pages.empty() ? 0 : pool.entryOf(s.pages.back());
  };
  for (int step = 0; step < 2000; ++step) {
    if (live.empty() || below(4) == 0) { // a new one
      Sequence s;
      s.reserved = 1 + below(6);
      if (!pool.reserve(s.reserved))
        continue;
      live.push_back(s);
    } else if (below(4) == 0) { // one goes, last page first
      const size_t i = size_t(below(uint32_t(live.size())));
      pool.unreserve(live[i].reserved);
      for (; !live[i].pages.empty(); live[i].pages.pop_back()) {
        naive.release(live[i].pages.back());
        pool.release(live[i].pages.back());
      }
      live.erase(live.begin() + int64_t(i));
    } else { // one grows by a page, found or taken
      Sequence &s = live[size_t(below(uint32_t(live.size())))];
      if (s.reserved == 0)
        continue;
      const Text tokens{below(2), below(2)};
      Text text = s.text;
      text.insert(text.end(), tokens.begin(), tokens.end());
      const int32_t known = naive.find(text);
      ASSERT_EQ(pool.find(entryBehind(s), tokens), known);
      const bool share = known >= 0 && below(2);
      --s.reserved;
      int32_t page = known;
      if (share) {
        pool.unreserve(1);
        pool.share(known);
        ++naive.pages[size_t(known)].readers;
      } else {
        const int32_t oldest = naive.oldest();
        page = pool.take();
        ASSERT_TRUE(oldest < 0 || page == oldest);
        NaivePool::Page &taken = naive.pages[size_t(page)];
        ASSERT_EQ(taken.readers, 0);
        taken = {.readers = 1, .text = {}, .givenBack = 0};
        const int32_t other = naive.find(text); // the take may have forgotten it
        const int32_t kept = pool.publish(page, entryBehind(s), tokens);
        ASSERT_EQ(kept, other >= 0 ? other : page);
        if (other >= 0) {
          naive.release(page);
          ++naive.pages[size_t(other)].readers;
        } else {
          naive.pages[size_t(page)].text = text;
        }
        page = kept;
      }
      s.text = text;
      s.pages.push_back(page);
    }
    int32_t reserved = 0;
    for (const Sequence &s : live)
      reserved += s.reserved;
    ASSERT_EQ(pool.used(), naive.used());
    ASSERT_EQ(pool.reserved(), reserved);
    ASSERT_EQ(pool.unreserved(), pages - naive.used() - reserved);
    ASSERT_GE(pool.unreserved(), 0);
    for (int32_t p = 0; p < pages; ++p) {
      ASSERT_EQ(pool.readers(p), naive.pages[size_t(p)].readers);
      ASSERT_EQ(pool.entryOf(p) != 0, naive.pages[size_t(p)].text.has_value());
    }
  }
}

TEST(PagePool, AgreesWithANaiveModel) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    playRandomly(seed, 2 + int32_t(seed % 23), seed % 3 ? PagePool::hashOf : constantHash);
    if (HasFatalFailure())
      return;
  }
}

} // namespace
} // namespace gpt2c::rt
