// Which pages of a KV state are whose, and which tokens those that are nobody's still hold.
//
// A page is in one of three states:
//   blank   nobody's, and its contents mean nothing;
//   idle    nobody's, but it holds the keys and values of known tokens behind known tokens;
//   used    one or more sequences read it.
// Blank and idle pages are available: a page that is taken is a blank one where there is any, else
// the idle one that was given back longest ago, whose contents are then forgotten.
//
// Contents are found by what they are (prefix cache). A full page is an entry: its tokens and the
// entry of the page before it. Two entries are the same when their tokens are, compared one by one,
// and when their parents are the same entry; the hash of both only finds candidates. So two equal
// entries stand behind the same text from its first token on. Entries are numbered and no number
// comes twice: what stood behind a forgotten entry is never found again.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace gpt2c::rt {

/// The number of an entry. 0: the beginning of every text.
using PageEntry = uint64_t;

struct PagePoolStats {
  int64_t forgotten = 0; ///< entries whose page was taken for other tokens
  int64_t published = 0;
  int64_t merged = 0; ///< pages that publish() gave back, since another one held their tokens
};

/// Bookkeeping alone: no memory of a device is touched.
class PagePool {
public:
  using Hash = uint64_t (*)(PageEntry parent, std::span<const int32_t> tokens);

  /// `hash` is for tests of collisions.
  PagePool(int32_t pages, int32_t pageTokens, Hash hash = hashOf);

  int32_t pages() const { return int32_t(count_.size()); }
  int32_t pageTokens() const { return pageTokens_; }
  int32_t used() const { return pages() - available_; }
  /// Pages that reserve() can still promise.
  int32_t unreserved() const { return available_ - reserved_; }
  int32_t reserved() const { return reserved_; }
  const PagePoolStats &stats() const { return stats_; }

  /// Promises `count` pages to later calls of take(). False, and nothing is promised, when there
  /// are not so many.
  bool reserve(int32_t count);
  /// Gives back promises.
  void unreserve(int32_t count);
  /// A page for one sequence, of those promised.
  int32_t take();

  /// The page that holds these pageTokens() tokens behind `parent`, -1: none.
  int32_t find(PageEntry parent, std::span<const int32_t> tokens) const;
  /// One more sequence reads a page that find() found. An idle page is used from now on: where
  /// that would break a promise, give the promise of one page back first, or see that
  /// unreserved() is above 0.
  void share(int32_t page);
  /// One sequence fewer reads it. Pages of one sequence are given back last page first: then no
  /// entry is forgotten before those behind it.
  void release(int32_t page);
  /// As release(), of a page that the caller is alone with; what it holds is forgotten.
  void discard(int32_t page);

  /// The beginning of texts that share no page with others.
  PageEntry newRoot() { return ++lastEntry_; }
  /// What the page is behind, of a page with an entry; 0 also of any other.
  PageEntry parentOf(int32_t page) const { return entry_[page] ? parent_[page] : 0; }

  /// What the page holds, of a page that was published or found; 0 of any other.
  PageEntry entryOf(int32_t page) const { return entry_[page]; }
  bool isIdle(int32_t page) const { return count_[page] == 0; }
  bool isBlank(int32_t page) const { return count_[page] == 0 && !entry_[page]; }
  /// How many sequences read it.
  int32_t readers(int32_t page) const { return count_[page]; }

  /// The page, which the caller took and is alone with, is full: it holds `tokens` behind `parent`,
  /// a page that the caller reads as well, and nothing is written into it any more. Returns the
  /// page to go on with: where another one holds the same already, that one, shared, and `page` is
  /// given back.
  int32_t publish(int32_t page, PageEntry parent, std::span<const int32_t> tokens);

  /// Forgets every entry: for a device whose memory may hold anything. No page may be used.
  void forgetAll();

  /// XXH3 over the tokens with the parent's number as the seed.
  static uint64_t hashOf(PageEntry parent, std::span<const int32_t> tokens);

private:
  std::span<const int32_t> tokensOf(int32_t page) const {
    return {tokens_.data() + size_t(page) * size_t(pageTokens_), size_t(pageTokens_)};
  }
  void forget(int32_t page);
  void link(int32_t page);
  void unlink(int32_t page);

  int32_t pageTokens_;
  Hash hash_;
  int32_t available_, reserved_ = 0;
  PageEntry lastEntry_ = 0;
  std::vector<int32_t> blank_;         ///< a stack
  std::vector<int32_t> count_;         ///< of each page: its readers
  std::vector<PageEntry> entry_;       ///< of each page, 0: none
  std::vector<PageEntry> parent_;      ///< of each page with an entry
  std::vector<int32_t> tokens_;        ///< [pages, pageTokens], of pages with an entry
  std::vector<int32_t> before_, next_; ///< idle pages as a list, given back longest ago first
  int32_t first_ = -1, last_ = -1;
  std::unordered_multimap<uint64_t, int32_t> found_; ///< hash of an entry to its page
  PagePoolStats stats_;
};

} // namespace gpt2c::rt
