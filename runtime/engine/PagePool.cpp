#include "runtime/engine/PagePool.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>

namespace gpt2c::rt {

uint64_t PagePool::hashOf(PageEntry parent, std::span<const int32_t> tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent);
}

PagePool::PagePool(int32_t pages, int32_t pageTokens, Hash hash)
    : pageTokens_(pageTokens), hash_(hash), available_(pages), count_(size_t(pages)),
      entry_(size_t(pages)), parent_(size_t(pages)), tokens_(size_t(pages) * size_t(pageTokens)),
      before_(size_t(pages), -1), next_(size_t(pages), -1) {
  for (int32_t page = pages; page-- > 0;)
    blank_.push_back(page);
  found_.reserve(size_t(pages));
}

bool PagePool::reserve(int32_t count) {
  if (count > unreserved())
    return false;
  reserved_ += count;
  return true;
}

void PagePool::unreserve(int32_t count) {
  assert(count <= reserved_);
  reserved_ -= count;
}

int32_t PagePool::take() {
  assert(reserved_ > 0 && available_ >= reserved_ && "take() is for promised pages");
  --reserved_;
  --available_;
  int32_t page;
  if (!blank_.empty()) {
    page = blank_.back();
    blank_.pop_back();
  } else {
    page = first_;
    unlink(page);
    forget(page);
    ++stats_.forgotten;
  }
  count_[page] = 1;
  return page;
}

int32_t PagePool::find(PageEntry parent, std::span<const int32_t> tokens) const {
  assert(int32_t(tokens.size()) == pageTokens_);
  auto [begin, end] = found_.equal_range(hash_(parent, tokens));
  for (auto it = begin; it != end; ++it)
    if (parent_[it->second] == parent && std::ranges::equal(tokensOf(it->second), tokens))
      return it->second;
  return -1;
}

void PagePool::share(int32_t page) {
  assert(entry_[page] && "only what was published is shared");
  if (count_[page]++ == 0) {
    assert(available_ > reserved_ && "an idle page that is shared breaks a promise");
    unlink(page);
    --available_;
  }
}

void PagePool::release(int32_t page) {
  assert(count_[page] > 0);
  if (--count_[page] > 0)
    return;
  ++available_;
  if (entry_[page])
    link(page);
  else
    blank_.push_back(page);
}

void PagePool::discard(int32_t page) {
  assert(count_[page] == 1);
  if (entry_[page])
    forget(page);
  release(page);
}

int32_t PagePool::publish(int32_t page, PageEntry parent, std::span<const int32_t> tokens) {
  assert(count_[page] == 1 && !entry_[page]);
  if (int32_t other = find(parent, tokens); other >= 0) {
    release(page); // first: it makes room for an idle one
    share(other);
    ++stats_.merged;
    return other;
  }
  entry_[page] = ++lastEntry_;
  parent_[page] = parent;
  std::ranges::copy(tokens, tokens_.begin() + int64_t(page) * pageTokens_);
  found_.emplace(hash_(parent, tokens), page);
  ++stats_.published;
  return page;
}

void PagePool::forgetAll() {
  assert(used() == 0);
  while (first_ >= 0) {
    int32_t page = first_;
    unlink(page);
    forget(page);
    blank_.push_back(page);
  }
}

void PagePool::forget(int32_t page) {
  auto [begin, end] = found_.equal_range(hash_(parent_[page], tokensOf(page)));
  found_.erase(std::find_if(begin, end, [&](const auto &e) { return e.second == page; }));
  entry_[page] = 0;
}

void PagePool::link(int32_t page) {
  before_[page] = last_;
  next_[page] = -1;
  (last_ < 0 ? first_ : next_[last_]) = page;
  last_ = page;
}

void PagePool::unlink(int32_t page) {
  (before_[page] < 0 ? first_ : next_[before_[page]]) = next_[page];
  (next_[page] < 0 ? last_ : before_[next_[page]]) = before_[page];
}

} // namespace gpt2c::rt
