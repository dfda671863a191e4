// Memory of tensors that is used again, so that a call allocates what the calls before it did not.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace gpt2c {

/// Blocks that tensors gave back. It keeps at most twice as much as was in use at a time.
class StoragePool : public std::enable_shared_from_this<StoragePool> {
public:
  /// While one lives, what tensors of its thread take comes from the pool. Such tensors may outlive
  /// it, and may go on any thread.
  class Scope {
  public:
    explicit Scope(const std::shared_ptr<StoragePool> &pool);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    StoragePool *before_;
  };

  StoragePool() = default;
  ~StoragePool();
  StoragePool(const StoragePool &) = delete;
  StoragePool &operator=(const StoragePool &) = delete;

  /// `bytes` of uninitialised memory, aligned to 64 bytes, that go back when the last copy does;
  /// null where the system has none. From the pool of this thread, where it has one.
  static std::shared_ptr<void> take(size_t bytes);

  /// How often the system was asked.
  size_t allocations() const;

private:
  struct Block {
    void *bytes;
    size_t size;
  };
  void *takeBlock(size_t size);
  void giveBlock(Block block);
  /// What shared pointers count their copies in, all of one size.
  template <typename T> class Counters;
  void *takeCounter(size_t size);
  void giveCounter(void *counter);

  mutable std::mutex mutex_;
  std::deque<Block> free_;       ///< the last given back behind
  std::vector<void *> counters_; ///< no longer in use
  size_t used_ = 0, kept_ = 0, mostUsed_ = 0, allocations_ = 0;
};

} // namespace gpt2c
