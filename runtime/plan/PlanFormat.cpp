#include "runtime/plan/PlanFormat.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include <xxhash.h>

namespace gpt2c::rt {

const char *sectionKindName(SectionKind kind) {
  switch (kind) {
  case SectionKind::Metadata:
    return "metadata";
  case SectionKind::Weights:
    return "weights";
  case SectionKind::Image:
    return "image";
  case SectionKind::Ir:
    return "ir";
  case SectionKind::Tokenizer:
    return "tokenizer";
  }
  return "unknown";
}

uint64_t hashBytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t sectionChecksum(std::span<const std::byte> bytes, unsigned threads) {
  std::vector<uint64_t> hashes((bytes.size() + kChecksumChunk - 1) / kChecksumChunk);
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < hashes.size(); i = next++) {
      size_t begin = i * kChecksumChunk;
      hashes[i] = hashBytes(bytes.subspan(begin, std::min(kChecksumChunk, bytes.size() - begin)));
    }
  };
  std::vector<std::thread> helpers;
  size_t wanted = std::min<size_t>(threads, hashes.size());
  for (size_t i = 1; i < wanted; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error &) {
      break; // no more threads to be had: this one does the rest
    }
  }
  work();
  for (std::thread &helper : helpers)
    helper.join();
  return hashBytes(std::as_bytes(std::span(hashes)));
}

struct SectionHasher::State {
  XXH3_state_t *xxh = XXH3_createState();
  uint64_t inChunk = 0;
  std::vector<uint64_t> hashes;
};

SectionHasher::SectionHasher() : state_(new State) { XXH3_64bits_reset(state_->xxh); }

SectionHasher::~SectionHasher() {
  XXH3_freeState(state_->xxh);
  delete state_;
}

void SectionHasher::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    size_t count = std::min<uint64_t>(bytes.size(), kChecksumChunk - state_->inChunk);
    XXH3_64bits_update(state_->xxh, bytes.data(), count);
    state_->inChunk += count;
    bytes = bytes.subspan(count);
    if (state_->inChunk == kChecksumChunk)
      endChunk();
  }
}

void SectionHasher::endChunk() {
  state_->hashes.push_back(XXH3_64bits_digest(state_->xxh));
  XXH3_64bits_reset(state_->xxh);
  state_->inChunk = 0;
}

uint64_t SectionHasher::finish() {
  if (state_->inChunk)
    endChunk();
  return hashBytes(std::as_bytes(std::span(state_->hashes)));
}

} // namespace gpt2c::rt
