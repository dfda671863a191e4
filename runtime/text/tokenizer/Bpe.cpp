#include "runtime/text/tokenizer/Bpe.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace gpt2c::rt {

Bpe::Bpe(std::span<const Merge> merges)
    : merges_(merges), slots_(std::bit_ceil(2 * merges_.size() + 2)) {
  for (std::uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge &merge = merges_[rank];
    slots_[slot(merge.left, merge.right)] = {merge.left, merge.right, rank};
  }
}

/// The slot that holds the pair, or the free one where it belongs.
std::size_t Bpe::slot(std::int32_t left, std::int32_t right) const {
  std::uint64_t key = std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
  std::uint64_t hash = key * 0x9E3779B97F4A7C15ull; // 2^64 / golden ratio; the high bits mix best
  std::size_t mask = slots_.size() - 1;
  std::size_t index = hash >> (64 - std::countr_zero(slots_.size()));
  while (slots_[index].rank != kNoRank &&
         (slots_[index].left != left || slots_[index].right != right))
    index = (index + 1) & mask;
  return index;
}

std::uint32_t Bpe::rank(std::int32_t left, std::int32_t right) const {
  return slots_[slot(left, right)].rank;
}

void Bpe::encode(Scratch &scratch, std::vector<std::int32_t> &tokens) const {
  using Symbol = Scratch::Symbol;
  using Candidate = Scratch::Candidate;
  // The heap's top is the candidate to merge next.
  auto later = [](const Candidate &a, const Candidate &b) {
    return std::tie(a.rank, a.position) > std::tie(b.rank, b.position);
  };
  std::vector<Symbol> &symbols = scratch.symbols;
  std::vector<Candidate> &heap = scratch.heap;
  const auto end = std::uint32_t(symbols.size());
  if (end == 0)
    return;
  symbols[0].previous = end;

  heap.clear();
  for (std::uint32_t i = 0; i + 1 < end; ++i)
    if (std::uint32_t found = rank(symbols[i].token, symbols[i + 1].token); found != kNoRank)
      heap.push_back({found, i});
  std::make_heap(heap.begin(), heap.end(), later);

  auto offer = [&](std::uint32_t left, std::uint32_t right) {
    if (left == end || right == end)
      return;
    if (std::uint32_t found = rank(symbols[left].token, symbols[right].token); found != kNoRank) {
      heap.push_back({found, left});
      std::push_heap(heap.begin(), heap.end(), later);
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    Candidate best = heap.back();
    heap.pop_back();
    Symbol &left = symbols[best.position];
    // A candidate is stale when an earlier merge has taken one of its two tokens. Where what stands
    // there now becomes the same token by another merge, it may become it now.
    if (left.token < 0 || left.next == end)
      continue;
    const Merge &merge = merges_[best.rank];
    Symbol &right = symbols[left.next];
    if (left.token != merge.left || right.token != merge.right) {
      const std::uint32_t other = rank(left.token, right.token);
      if (other == kNoRank || merges_[other].result != merge.result)
        continue;
    }
    left.token = merge.result;
    left.next = right.next;
    right.token = -1;
    if (left.next != end)
      symbols[left.next].previous = best.position;
    offer(left.previous, best.position);
    offer(best.position, left.next);
  }
  for (std::uint32_t i = 0; i < end; i = symbols[i].next)
    tokens.push_back(symbols[i].token);
}

} // namespace gpt2c::rt
