#include "runtime/engine/PageSwap.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace gpt2c::rt {

/// Frames (pages of host memory) that stay free when every page holds something, so that copies do
/// not wait for each other one by one.
static int32_t spareOf(int32_t hostPages) { return hostPages / 16 + 1; }

/// Puts pages that are read behind the others in the order of leaving.
static constexpr uint64_t isRead = uint64_t(1) << 63;

int32_t PageSwap::pagesOf(const PagedState &state) {
  return state.pages + state.hostPages - spareOf(state.hostPages);
}

PageSwap::PageSwap(Backend &backend) : backend_(backend) {
  const PagedState state = backend.pagedState();
  frames_ = state.pages;
  hosts_ = state.hostPages;
  pages_.resize(size_t(pagesOf(state)));
  for (int32_t frame = frames_; frame-- > 0;)
    freeFrames_.push_back(frame);
  for (int32_t host = hosts_; host-- > 0;)
    freeHosts_.push_back(host);
  if (Result<MovedPages> now = backend.movedPages(false))
    before_ = *now;
}

PageSwap::~PageSwap() { reset(); }

//===-- what pages hold ---------------------------------------------------------------------===//

void PageSwap::pin(int32_t page) {
  Page &p = pages_[size_t(page)];
  if (p.pins++ > 0)
    return;
  ++pinned_;
  assert(pinned_ <= frames_ && "more pages are pinned than there are frames");
  evictable_.erase(p.left);
  if (p.frame < 0 && !p.waits) {
    p.waits = true;
    waiting_.push_back(page);
  }
}

void PageSwap::unpin(int32_t page) {
  Page &p = pages_[size_t(page)];
  assert(p.pins > 0);
  if (--p.pins > 0)
    return;
  --pinned_;
  settle(page);
}

/// A page that nobody pins and nothing moves may leave.
void PageSwap::settle(int32_t page) {
  Page &p = pages_[size_t(page)];
  if (p.pins > 0 || p.frame < 0 || p.moves != Stays)
    return;
  p.left = ++clock_ | (p.readers > 0 ? isRead : 0);
  evictable_.emplace(p.left, page);
}

void PageSwap::restamp(int32_t page) {
  if (evictable_.erase(pages_[size_t(page)].left) > 0)
    settle(page);
}

void PageSwap::read(int32_t page) {
  ++pages_[size_t(page)].readers;
  restamp(page);
}

void PageSwap::unread(int32_t page) {
  assert(pages_[size_t(page)].readers > 0);
  if (--pages_[size_t(page)].readers == 0)
    restamp(page);
}

/// Gives back what the page has; copies under way give it back when they end.
void PageSwap::clear(Page &p) {
  if (p.moves == Stays) {
    if (p.frame >= 0)
      freeFrames_.push_back(p.frame);
    if (p.host >= 0)
      freeHosts_.push_back(p.host);
  }
  p.frame = p.host = -1;
  p.moves = Stays;
  p.isFull = false;
  ++p.generation;
}

void PageSwap::drop(int32_t page) {
  Page &p = pages_[size_t(page)];
  assert(p.pins == 0 && p.readers == 0);
  evictable_.erase(p.left);
  p.left = 0;
  both_.erase(page);
  clear(p);
}

void PageSwap::takeOver(int32_t page, int32_t from) {
  Page &to = pages_[size_t(page)], &old = pages_[size_t(from)];
  assert(!isHere(page) && isHere(from) && old.pins == 0);
  clear(to);
  for (Flying &f : flying_[Out])
    if (f.page == from && f.generation == old.generation)
      f.frame = -1; // it is not that copy's any more
  to.frame = std::exchange(old.frame, -1);
  to.isFull = true;
  drop(from);
  settle(page);
}

//===-- copies ------------------------------------------------------------------------------===//

void PageSwap::landed(Way way, const Flying &f) {
  Page &p = pages_[size_t(f.page)];
  if (p.generation != f.generation) {
    if (f.frame >= 0)
      freeFrames_.push_back(f.frame);
    freeHosts_.push_back(f.host);
    return;
  }
  p.moves = Stays;
  p.host = f.host;
  if (way == Out && p.pins == 0) {
    freeFrames_.push_back(std::exchange(p.frame, -1));
    return;
  }
  if (f.isFull)
    both_.insert(f.page);
  else // what is written behind its tokens makes the copy stale
    freeHosts_.push_back(std::exchange(p.host, -1));
  settle(f.page);
}

Status PageSwap::take(bool waits) {
  Result<MovedPages> now = backend_.movedPages(waits && isMoving());
  if (!now)
    return now.status();
  const MovedPages ended{now->out - before_.out, now->in - before_.in,
                         now->outSeconds - before_.outSeconds, now->inSeconds - before_.inSeconds};
  for (const auto &[way, count] :
       {std::pair(In, ended.in - moved_.in), {Out, ended.out - moved_.out}})
    for (int64_t i = 0; i < count; ++i) {
      const Flying f = flying_[way].front();
      flying_[way].pop_front();
      landed(way, f);
    }
  moved_ = ended;
  return {};
}

/// A page in host memory that nothing needs, -1: none.
int32_t PageSwap::takeHost() {
  if (!freeHosts_.empty()) {
    const int32_t host = freeHosts_.back();
    freeHosts_.pop_back();
    return host;
  }
  if (both_.empty())
    return -1;
  Page &p = pages_[size_t(*both_.begin())];
  both_.erase(both_.begin());
  return std::exchange(p.host, -1);
}

/// False where no frame is free.
bool PageSwap::giveFrame(int32_t page) {
  Page &p = pages_[size_t(page)];
  if (p.pins == 0 || p.frame >= 0) {
    p.waits = false;
    settle(page);
    return true;
  }
  if (freeFrames_.empty())
    return false;
  p.frame = freeFrames_.back();
  freeFrames_.pop_back();
  p.waits = false;
  if (p.host < 0)
    return true; // it holds nothing yet
  p.moves = In;
  flying_[In].push_back({page, p.frame, p.host, p.isFull, p.generation});
  begun_.push_back({p.frame, p.host, false});
  return true;
}

bool PageSwap::bring(int32_t page) {
  constexpr size_t mostAtOnce = 8; // so that whoever's turn comes does not wait long
  const auto spare = size_t(spareOf(frames_));
  Page &p = pages_[size_t(page)];
  if (p.frame >= 0)
    return true;
  if (p.host < 0 || !waiting_.empty() || flying_[In].size() + flying_[Out].size() >= mostAtOnce)
    return false;
  const bool mayLeave = !evictable_.empty() && evictable_.begin()->first < isRead;
  if (freeFrames_.size() <= spare && !(mayLeave && makeRoom()))
    return false;
  if (freeFrames_.size() <= spare)
    return false;
  p.frame = freeFrames_.back();
  freeFrames_.pop_back();
  p.moves = In;
  flying_[In].push_back({page, p.frame, p.host, p.isFull, p.generation});
  begun_.push_back({p.frame, p.host, false});
  return true;
}

/// How many frames the copies under way will give back.
int32_t PageSwap::leaving() const {
  return int32_t(std::ranges::count_if(flying_[Out], [&](const Flying &f) {
    const Page &p = pages_[size_t(f.page)];
    return f.frame >= 0 && (p.generation != f.generation || p.pins == 0);
  }));
}

/// Frees a frame, or begins a copy that will. False where neither can be now.
bool PageSwap::makeRoom() {
  if (evictable_.empty())
    return false;
  const int32_t page = evictable_.begin()->second;
  Page &p = pages_[size_t(page)];
  if (p.host >= 0) {
    both_.erase(page);
    freeFrames_.push_back(std::exchange(p.frame, -1));
  } else {
    const int32_t host = takeHost();
    if (host < 0)
      return false;
    p.host = host;
    p.moves = Out;
    flying_[Out].push_back({page, p.frame, host, p.isFull, p.generation});
    begun_.push_back({p.frame, host, true});
  }
  evictable_.erase(evictable_.begin());
  return true;
}

Status PageSwap::advance() {
  if (Status s = take(false); !s.ok())
    return s;
  for (bool goesOn = true; goesOn;) {
    while (!waiting_.empty() && giveFrame(waiting_.front()))
      waiting_.pop_front();
    goesOn = int64_t(waiting_.size()) > leaving() && makeRoom();
  }
  const std::vector<PageMove> moves = std::exchange(begun_, {});
  return moves.empty() ? Status() : backend_.movePages(moves);
}

Status PageSwap::wait() {
  if (Status s = take(true); !s.ok())
    return s;
  return advance();
}

void PageSwap::reset() {
  for (int64_t ended = -1; isMoving() && ended < moved_.in + moved_.out;) {
    ended = moved_.in + moved_.out;
    if (!take(true).ok())
      break; // a device that fails may not have begun all copies
  }
  for (auto &flying : flying_)
    flying.clear();
  waiting_.clear();
  evictable_.clear();
  both_.clear();
  pinned_ = 0;
  freeFrames_.clear();
  freeHosts_.clear();
  for (int32_t frame = frames_; frame-- > 0;)
    freeFrames_.push_back(frame);
  for (int32_t host = hosts_; host-- > 0;)
    freeHosts_.push_back(host);
  for (Page &p : pages_)
    p = {.generation = p.generation + 1};
}

} // namespace gpt2c::rt
