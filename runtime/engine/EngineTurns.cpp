// Who computes on the device, and who waits for room there: engines with pages in host memory.
//
// A request that was admitted has pages promised to it, in a pool of those of device and host
// together. It has rows while it has a turn: its pages are pinned to the device, and so are those
// that it fills during that. Turns begin in the order in which requests came or rested. One ends
// when its pages are full and others wait, or there is no room to go on.
//
// A sequence with more pages than the device has, where calls read host memory, pins those alone
// that it fills. The others are read where they are: on the device as far as nobody needs the room,
// the newest longest, which layers with a window read, too.
#include "runtime/engine/EngineSequence.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpt2c::rt {

//===-- what a turn takes -------------------------------------------------------------------===//

/// Tokens that the pages of the sequence have room for.
int64_t Engine::room(const Sequence &s) const {
  return swap_ ? int64_t(s.pages.size()) * pool_.pageTokens() - s.begun : INT64_MAX;
}

int64_t Engine::turnTokens() const {
  constexpr int64_t least = 32, most = 1024;
  if (options_.turnTokens)
    return options_.turnTokens;
  const double slowest = std::min(paged_.outBytesPerSecond, paged_.inBytesPerSecond);
  if (stepSeconds_ <= 0 || slowest <= 0)
    return 2 * least;
  const double all = double(paged_.pages) * double(paged_.pageBytes) / slowest;
  return std::clamp(int64_t(std::ceil(2 * all / stepSeconds_)), least, most);
}

/// The tokens that a turn of the sequence ends behind, and its first page that is pinned then.
std::pair<int64_t, int32_t> Engine::nextTurn(const Sequence &s) const {
  const int64_t all = stateTokens(s.prompt, s.request.mostTokens()), size = pool_.pageTokens();
  const int64_t end = std::min(all, std::max(s.begun, s.inPieces) + turnTokens());
  if (!paged_.readsHostPages || pagesFor(end, int32_t(size)) <= paged_.pages)
    return {end, 0};
  // No more than half of the device, so that the next pages come while these are filled.
  const int64_t first = s.begun / size, most = std::max(1, paged_.pages / 2) * size;
  const int64_t tokens = std::max(turnTokens(), int64_t(rowBudget_));
  return {std::min({all, s.begun + tokens, first * size + most}), int32_t(first)};
}

/// Pins the sequence's pages, or those that it fills, and those for the tokens of a turn. False,
/// and nothing is done, where that are more than nobody has pinned.
bool Engine::growTurn(Sequence &s) {
  const auto [end, first] = nextTurn(s);
  const auto grown =
      std::max<int64_t>(0, pagesFor(end, pool_.pageTokens()) - int64_t(s.pages.size()));
  const bool rested = s.turn == Sequence::Resting;
  const auto begin = s.pages.begin() + std::min(int64_t(first), int64_t(s.pages.size()));
  int64_t pinned = grown;
  if (rested)
    pinned += std::count_if(begin, s.pages.end(), [&](int32_t p) { return !swap_->isPinned(p); });
  if (pinned > swap_->unpinned())
    return false;
  if (rested)
    std::for_each(begin, s.pages.end(), [&](int32_t page) { swap_->pin(page); });
  readFirst(s, first);
  for (int64_t i = 0; i < grown; ++i) {
    const int32_t page = pool_.take();
    --s.reserved;
    swap_->drop(page); // of what it held before
    swap_->pin(page);
    s.pages.push_back(page);
  }
  turns_ += rested;
  s.turn = Sequence::Coming;
  return true;
}

/// From now on the sequence reads its first pages, which are full, where they are. Those of a turn
/// were pinned so far.
void Engine::readFirst(Sequence &s, int32_t count) {
  for (; s.readFirst < count; ++s.readFirst) {
    const int32_t page = s.pages[size_t(s.readFirst)];
    swap_->read(page);
    if (s.turn == Sequence::Resting)
      continue;
    swap_->seal(page);
    swap_->unpin(page);
  }
}

/// Of page `index` of a sequence with a turn.
void Engine::letGo(const Sequence &s, int32_t index) {
  const int32_t page = s.pages[size_t(index)];
  if (index < s.readFirst)
    swap_->unread(page);
  else
    swap_->unpin(page);
}

/// Takes the last page from the sequence.
void Engine::release(Sequence &s) {
  if (swap_ && s.turn != Sequence::Resting)
    letGo(s, int32_t(s.pages.size()) - 1);
  const int32_t page = s.pages.back();
  s.pages.pop_back();
  pool_.release(page);
  if (swap_ && pool_.isBlank(page))
    swap_->drop(page);
}

/// Another page, which is here, in the place of one that was taken and not written.
void Engine::exchange(int32_t &page, int32_t by) {
  swap_->unpin(page);
  pool_.release(page);
  swap_->drop(page);
  pool_.share(by);
  swap_->pin(by);
  page = by;
}

/// The pool gave back `mine`, page `index` of the sequence, for one that holds the same.
void Engine::merged(const Sequence &s, int32_t index, int32_t mine, int32_t other) {
  if (s.turn == Sequence::Resting)
    return swap_->drop(mine);
  if (index < s.readFirst) {
    swap_->unread(mine);
    swap_->drop(mine);
    return swap_->read(other);
  }
  const bool isHere = swap_->isHere(other);
  swap_->unpin(mine);
  if (isHere)
    swap_->drop(mine);
  else
    swap_->takeOver(other, mine);
  swap_->pin(other);
}

//===-- turns -------------------------------------------------------------------------------===//

/// What is known of the sequence is computed again when its turn comes, behind the pages that
/// others read, too.
void Engine::forgetState(Sequence &s) {
  const int32_t size = pool_.pageTokens();
  while (!s.pages.empty() && pool_.readers(s.pages.back()) == 1) {
    pool_.discard(s.pages.back());
    swap_->drop(s.pages.back());
    s.pages.pop_back();
    [[maybe_unused]] const bool promised = pool_.reserve(1);
    ++s.reserved;
  }
  s.published = std::min(s.published, int32_t(s.pages.size()));
  const int32_t kept = std::min(s.begun, int32_t(s.pages.size()) * size);
  counted_.recomputedTokens += std::exchange(s.begun, kept) - kept;
}

void Engine::endTurn(Sequence &s) {
  const int32_t size = pool_.pageTokens();
  while (int64_t(s.pages.size()) > pagesFor(s.begun, size)) {
    release(s);
    [[maybe_unused]] const bool promised = pool_.reserve(1);
    ++s.reserved;
  }
  const bool comesBack = s.readFirst == 0; // else nothing has to
  for (int32_t i = int32_t(s.pages.size()); i-- > 0;) {
    if ((i + 1) * size <= s.begun)
      swap_->seal(s.pages[size_t(i)]);
    letGo(s, i);
  }
  s.turn = Sequence::Resting;
  s.readFirst = 0;
  if (comesBack && recomputes(s))
    forgetState(s);
  --turns_;
  ++counted_.turnsEnded;
  resting_.push_back(s.id);
}

void Engine::beginTurns() {
  for (; !resting_.empty(); resting_.pop_front()) {
    const auto it = running_.find(resting_.front());
    if (it == running_.end())
      continue;
    Sequence &s = *it->second;
    // Its last choice is carried by nothing: it has to be known.
    if (s.pending || turns_ >= limits_.sequences)
      return;
    if (s.begun + 1 < int32_t(s.tokens.size()))
      s.inPieces = std::max(s.inPieces, int32_t(s.tokens.size()));
    if (!growTurn(s))
      return;
  }
}

Status Engine::takeTurns() {
  if (!swap_)
    return {};
  for (auto &[id, s] : running_) {
    const bool goesOn = s->request.mostTokens() > s->newTokens() + s->pending;
    if (!s->runs() || !goesOn || room(*s) > 0)
      continue;
    if (!resting_.empty() || !growTurn(*s))
      endTurn(*s);
  }
  beginTurns();
  bringBack();
  if (Status status = swap_->advance(); !status.ok())
    return status;
  for (auto &[id, s] : running_)
    if (s->turn == Sequence::Coming && std::all_of(s->pages.begin() + s->readFirst, s->pages.end(),
                                                   [&](int32_t p) { return swap_->isHere(p); }))
      s->turn = Sequence::Running;
  return {};
}

/// What sequences read of host memory comes to the device where nobody needs the room, the newest
/// pages first.
void Engine::bringBack() {
  for (auto &[id, s] : running_)
    for (int32_t i = s->readFirst; i-- > 0;)
      if (!swap_->bring(s->pages[size_t(i)]))
        return;
}

//===-- what decides how it comes back ------------------------------------------------------===//

double Engine::copySeconds(int64_t tokens) const {
  const double bytes = double(pagesFor(tokens, paged_.pageTokens)) * double(paged_.pageBytes);
  return paged_.inBytesPerSecond > 0 ? bytes / paged_.inBytesPerSecond : 0;
}

double Engine::recomputeSeconds(int64_t tokens) const {
  return promptRows_ > 0 ? double(tokens) * promptSeconds_ / promptRows_ : 0;
}

bool Engine::recomputes(const Sequence &s) const {
  if (s.scores()) // each of whose tokens has a call of its own
    return false;
  const double again = recomputeSeconds(s.begun);
  switch (options_.comeback) {
  case Comeback::Copied:
    return false;
  case Comeback::Recomputed:
    return true;
  case Comeback::Auto:
    return isBatchInvariant_ && again > 0 && again < copySeconds(s.begun);
  }
  return false;
}

/// From the results before, or the call's begin, to its own results.
void Engine::time(const Call &call) {
  constexpr double forgets = 0.9;
  constexpr int32_t manyRows = 16;
  const Clock::time_point now = Clock::now();
  const double seconds =
      std::chrono::duration<double>(now - std::exchange(collected_, now)).count();
  int32_t rows = 0, promptRows = 0;
  for (const Part &part : call) {
    rows += part.rows;
    promptRows += part.isPrompt ? part.rows : 0;
  }
  if (promptRows == 0) {
    stepSeconds_ = stepSeconds_ > 0 ? forgets * stepSeconds_ + (1 - forgets) * seconds : seconds;
  } else if (rows >= manyRows && 2 * promptRows >= rows) {
    promptSeconds_ = forgets * promptSeconds_ + seconds;
    promptRows_ = forgets * promptRows_ + rows;
  }
}

void Engine::addTurns(EngineStats &now) const {
  now.copySecondsPerToken = swap_ ? copySeconds(pool_.pageTokens()) / pool_.pageTokens() : 0;
  now.recomputeSecondsPerToken = recomputeSeconds(1);
  now.pageBytes = paged_.pageBytes;
  if (!swap_)
    return;
  now.hostPages = paged_.hostPages;
  now.hostPagesUsed = swap_->hostPagesUsed();
  now.readsHostPages = paged_.readsHostPages;
  now.resting = now.running - turns_;
  now.pagesOut = swap_->moved().out;
  now.pagesIn = swap_->moved().in;
  now.outSeconds = swap_->moved().outSeconds;
  now.inSeconds = swap_->moved().inSeconds;
  now.outBytesPerSecond = paged_.outBytesPerSecond;
  now.inBytesPerSecond = paged_.inBytesPerSecond;
}

} // namespace gpt2c::rt
