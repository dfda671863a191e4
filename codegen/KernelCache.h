// Compiled kernels on disk, found by what they were compiled from.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

/// A folder with one file for each image. It is a cache in every respect: entries that are damaged
/// or cannot be written cost a compilation, never an error. Threads and processes may share it: an
/// entry appears whole or not at all.
class KernelCache {
public:
  /// 128 bits of a hash over everything that an image depends on.
  using Key = std::array<uint64_t, 2>;
  static Key keyOf(llvm::StringRef everything);

  /// An empty folder: no cache, nothing is found or kept. The folder is made when something is
  /// kept.
  explicit KernelCache(std::string folder = {}, uint64_t maxBytes = 256ull << 20)
      : folder_(std::move(folder)), maxBytes_(maxBytes) {}
  /// $XDG_CACHE_HOME/gpt2c, else ~/.cache/gpt2c; empty where there is no home.
  static std::string defaultFolder();

  const std::string &folder() const { return folder_; }
  std::optional<std::vector<char>> find(const Key &key);
  void store(const Key &key, llvm::ArrayRef<char> image);
  /// Removes the entries used longest ago until the others take at most the limit.
  void trim() const;

  unsigned hits() const { return hits_; }
  unsigned misses() const { return misses_; } ///< damaged ones included
  unsigned damaged() const { return damaged_; }
  /// Whether an entry could not be written.
  bool failedToStore() const { return failedToStore_; }

private:
  std::string fileOf(const Key &key) const;

  std::string folder_;
  uint64_t maxBytes_;
  std::atomic<unsigned> hits_ = 0, misses_ = 0, damaged_ = 0;
  std::atomic<bool> failedToStore_ = false;
};

} // namespace gpt2c
