// Where the pages of an engine lie: on the device, in host memory, or in both.
//
// A pool of pages (PagePool) may be larger than the device. Its pages are numbered from 0 and have
// a frame, the number of a page of the device, only while they are there. Whose turn it is pins its
// pages: they get frames, what they hold comes back, and they stay. The others keep theirs until
// somebody needs the room; then the one that was unpinned longest ago goes first.
//
// A page that is full is never written again, so what host memory has of it stays good when it
// comes back, and it leaves a second time without a copy. Such a copy makes room when host memory
// is short.
//
// Where calls read pages in host memory where they lie (PagedState::readsHostPages), a page that
// holds something can be read at any time, pinned or not. Those that somebody reads so leave behind
// those that nobody does.
//
// There is always a way on: frames and host pages are more than the pool's pages, so one is free or
// will be when the copies under way have ended.
#pragma once

#include "runtime/device/Backend.h"

#include <deque>
#include <map>
#include <set>
#include <vector>

namespace gpt2c::rt {

/// Driven by an engine, from its thread. Pages are those of the pool unless named frames.
class PageSwap {
public:
  /// As pagedState() of the backend says; it outlives this.
  explicit PageSwap(Backend &backend);
  /// Waits for the copies under way.
  ~PageSwap();
  PageSwap(const PageSwap &) = delete;
  PageSwap &operator=(const PageSwap &) = delete;

  /// How many pages the pool may have.
  static int32_t pagesOf(const PagedState &state);
  /// Frames for pages that are not pinned. No more may be pinned.
  int32_t unpinned() const { return frames_ - pinned_; }
  bool isPinned(int32_t page) const { return pages_[size_t(page)].pins > 0; }
  /// On the device, and nothing of it is still on its way there.
  bool isHere(int32_t page) const {
    const Page &p = pages_[size_t(page)];
    return p.frame >= 0 && p.moves != In;
  }
  /// Where a call finds what the page holds, as Segment::pages says it: of a page that is here, or
  /// of any where calls read host memory.
  int32_t placeOf(int32_t page) const {
    return isHere(page) ? pages_[size_t(page)].frame : frames_ + pages_[size_t(page)].host;
  }

  /// One more reader whose turn it is. advance() gives the page a frame.
  void pin(int32_t page);
  void unpin(int32_t page);
  /// One more reader that takes the page, which is full, where it is. One pinned it at least once.
  void read(int32_t page);
  void unread(int32_t page);
  /// Begins to copy a page that somebody reads to a frame whose page, if any, nobody pins or reads.
  /// True where it is here or on its way then; else there is no such frame, or other copies have to
  /// end first.
  bool bring(int32_t page);
  /// The page is full: nothing is written into it any more.
  void seal(int32_t page) { pages_[size_t(page)].isFull = true; }
  /// What the page, which is not pinned, holds means nothing any more.
  void drop(int32_t page);
  /// `page`, which is not here, holds the same as `from`, which is and is dropped: it takes over
  /// the frame. Its own pins stay.
  void takeOver(int32_t page, int32_t from);

  /// Takes note of copies that have ended, gives frames to pinned pages, and begins the copies that
  /// bring them back or make room.
  Status advance();
  /// The same behind the end of a copy, where one is under way.
  Status wait();
  bool isMoving() const { return !flying_[In].empty() || !flying_[Out].empty(); }
  /// All pages are dropped, whatever pins there were, behind the end of all copies.
  void reset();

  int32_t hostPagesUsed() const { return hosts_ - int32_t(freeHosts_.size()); }
  /// Copies that have ended, and their seconds.
  const MovedPages &moved() const { return moved_; }

private:
  enum Way : uint8_t { In, Out, Stays };
  struct Page {
    int32_t frame = -1, host = -1; ///< -1: none
    int32_t pins = 0, readers = 0;
    bool isFull = false;
    bool waits = false; ///< it is in waiting_
    Way moves = Stays;
    uint64_t left = 0;       ///< when it was unpinned; of one that is read isRead besides
    uint64_t generation = 0; ///< another one when what it holds is another
  };
  /// Who frees its frame and its host page is known when it has ended.
  struct Flying {
    int32_t page, frame, host;
    bool isFull;
    uint64_t generation;
  };

  Status take(bool waits);
  void landed(Way way, const Flying &f);
  void settle(int32_t page);
  void restamp(int32_t page);
  bool giveFrame(int32_t page);
  bool makeRoom();
  int32_t takeHost();
  int32_t leaving() const;
  void clear(Page &p);

  Backend &backend_;
  int32_t frames_, hosts_, pinned_ = 0;
  std::vector<Page> pages_;
  std::vector<int32_t> freeFrames_, freeHosts_;
  std::deque<int32_t> waiting_; ///< pinned pages without a frame
  /// By Page::left: here, neither pinned nor moving.
  std::map<uint64_t, int32_t> evictable_;
  std::set<int32_t> both_;       ///< full pages here with a copy in host memory
  std::deque<Flying> flying_[2]; ///< by Way
  std::vector<PageMove> begun_;  ///< in this advance()
  uint64_t clock_ = 0;
  MovedPages before_, moved_;
};

} // namespace gpt2c::rt
