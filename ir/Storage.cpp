#include "ir/Storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>

namespace gpt2c {

static thread_local StoragePool *current = nullptr;

StoragePool::Scope::Scope(const std::shared_ptr<StoragePool> &pool) : before_(current) {
  current = pool.get();
}
StoragePool::Scope::~Scope() { current = before_; }

/// Weights in large pages: touching memory for the first time is much of what making them costs.
static constexpr size_t largePage = 2 << 20, line = 64;

static void *allocate(size_t size) {
  const size_t alignment = size >= 2 * largePage ? largePage : line;
  void *block = std::aligned_alloc(alignment, size);
  if (block && alignment == largePage)
    madvise(block, size, MADV_HUGEPAGE); // without them it is slower, nothing else
  return block;
}

static size_t roundedTo(size_t bytes, size_t unit) {
  return std::max(unit, (bytes + unit - 1) / unit * unit);
}

/// Sizes are the same for tensors that are about as large: up to an eighth more than is asked for.
static size_t sizeOf(size_t bytes) {
  return roundedTo(bytes, std::max(line, std::bit_floor(bytes | 1) / 8));
}

/// Allocates counters from a pool, which lives as long as one of them.
template <typename T> class StoragePool::Counters {
public:
  using value_type = T;
  explicit Counters(std::shared_ptr<StoragePool> pool) : pool_(std::move(pool)) {}
  template <typename U> Counters(const Counters<U> &other) : pool_(other.pool_) {}
  T *allocate(size_t n) { return static_cast<T *>(pool_->takeCounter(n * sizeof(T))); }
  void deallocate(T *p, size_t) { pool_->giveCounter(p); }
  bool operator==(const Counters &) const = default;

private:
  template <typename U> friend class Counters;
  std::shared_ptr<StoragePool> pool_;
};

std::shared_ptr<void> StoragePool::take(size_t bytes) {
  if (!current) {
    void *block = allocate(roundedTo(bytes, bytes >= 2 * largePage ? largePage : line));
    return block ? std::shared_ptr<void>(block, std::free) : nullptr;
  }
  const size_t rounded = sizeOf(bytes);
  const size_t size = rounded >= 2 * largePage ? roundedTo(rounded, largePage) : rounded;
  void *block = current->takeBlock(size);
  if (!block)
    return nullptr;
  return {block, [pool = current, size](void *p) { pool->giveBlock({p, size}); },
          Counters<char>(current->shared_from_this())};
}

StoragePool::~StoragePool() {
  for (const Block &block : free_)
    std::free(block.bytes);
  for (void *counter : counters_)
    ::operator delete(counter);
}

void *StoragePool::takeCounter(size_t size) {
  std::lock_guard lock(mutex_);
  if (counters_.empty()) {
    ++allocations_;
    return ::operator new(size);
  }
  void *counter = counters_.back();
  counters_.pop_back();
  return counter;
}

void StoragePool::giveCounter(void *counter) {
  std::lock_guard lock(mutex_);
  counters_.push_back(counter);
}

size_t StoragePool::allocations() const {
  std::lock_guard lock(mutex_);
  return allocations_;
}

void *StoragePool::takeBlock(size_t size) {
  std::lock_guard lock(mutex_);
  void *bytes = nullptr;
  auto same = std::find_if(free_.rbegin(), free_.rend(),
                           [&](const Block &block) { return block.size == size; });
  if (same != free_.rend()) {
    bytes = same->bytes;
    free_.erase(std::next(same).base());
    kept_ -= size;
  } else {
    bytes = allocate(size);
    if (!bytes)
      return nullptr;
    ++allocations_;
  }
  used_ += size;
  mostUsed_ = std::max(mostUsed_, used_);
  return bytes;
}

void StoragePool::giveBlock(Block block) {
  std::lock_guard lock(mutex_);
  used_ -= block.size;
  kept_ += block.size;
  free_.push_back(block);
  for (; kept_ > 2 * mostUsed_; free_.pop_front()) {
    kept_ -= free_.front().size;
    std::free(free_.front().bytes);
  }
}

} // namespace gpt2c
