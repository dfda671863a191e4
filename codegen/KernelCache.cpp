#include "codegen/KernelCache.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <sys/time.h>
#include <xxhash.h>

#include <cstring>

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

namespace gpt2c {

namespace {
constexpr llvm::StringLiteral suffix = ".kernel";

/// In front of the image's bytes, in the byte order of the machine: a cache is not moved.
struct EntryHeader {
  char magic[8] = {'g', '2', 'c', 'k', 'r', 'n', '1', '\n'};
  KernelCache::Key key;
  uint64_t bytes;
  uint64_t checksum; ///< XXH3-64 of the image
};
static_assert(sizeof(EntryHeader) == 40);
} // namespace

KernelCache::Key KernelCache::keyOf(llvm::StringRef everything) {
  XXH128_hash_t hash = XXH3_128bits(everything.data(), everything.size());
  return {hash.high64, hash.low64};
}

std::string KernelCache::defaultFolder() {
  llvm::SmallString<128> folder;
  if (!path::cache_directory(folder))
    return {};
  path::append(folder, "gpt2c");
  return std::string(folder);
}

std::string KernelCache::fileOf(const Key &key) const {
  llvm::SmallString<128> file(folder_);
  path::append(file, llvm::formatv("{0:x-16}{1:x-16}", key[0], key[1]).str() + suffix);
  return std::string(file);
}

std::optional<std::vector<char>> KernelCache::find(const Key &key) {
  if (folder_.empty())
    return std::nullopt;
  auto file = llvm::MemoryBuffer::getFile(fileOf(key), false, false, true);
  if (!file) {
    ++misses_;
    return std::nullopt;
  }
  llvm::StringRef text = (*file)->getBuffer();
  EntryHeader expected, header;
  bool whole = text.size() >= sizeof header;
  if (whole)
    std::memcpy(&header, text.data(), sizeof header);
  llvm::StringRef image = text.drop_front(std::min(text.size(), sizeof header));
  if (!whole || std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0 ||
      header.key != key || header.bytes != image.size() ||
      header.checksum != XXH3_64bits(image.data(), image.size())) {
    ++misses_;
    ++damaged_;
    return std::nullopt;
  }
  ++hits_;
  // What is used stays: trim() goes by the time of modification.
  utimes(fileOf(key).c_str(), nullptr);
  return std::vector<char>(image.begin(), image.end());
}

void KernelCache::store(const Key &key, llvm::ArrayRef<char> image) {
  if (folder_.empty())
    return;
  EntryHeader header;
  header.key = key;
  header.bytes = image.size();
  header.checksum = XXH3_64bits(image.data(), image.size());
  auto write = [&](llvm::raw_ostream &os) -> llvm::Error {
    os.write(reinterpret_cast<const char *>(&header), sizeof header);
    os.write(image.data(), image.size());
    return llvm::Error::success();
  };
  bool failed = bool(fs::create_directories(folder_));
  if (!failed)
    if (llvm::Error e = llvm::writeToOutput(fileOf(key), write)) {
      failed = true;
      llvm::consumeError(std::move(e));
    }
  if (failed)
    failedToStore_ = true;
}

void KernelCache::trim() const {
  if (folder_.empty())
    return;
  struct Entry {
    llvm::sys::TimePoint<> used;
    std::string file;
    uint64_t bytes;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code ec;
  for (fs::directory_iterator it(folder_, ec), end; !ec && it != end; it.increment(ec)) {
    // Other files, such as what a killed process left half written, have the entry's name in front.
    auto status = it->status();
    if (!status || !path::filename(it->path()).contains(suffix))
      continue;
    entries.push_back({status->getLastModificationTime(), it->path(), status->getSize()});
    total += status->getSize();
  }
  llvm::sort(entries, [](const Entry &a, const Entry &b) {
    return std::tie(a.used, a.file) < std::tie(b.used, b.file);
  });
  for (const Entry &e : entries) {
    if (total <= maxBytes_)
      break;
    if (!fs::remove(e.file))
      total -= e.bytes;
  }
}

} // namespace gpt2c
