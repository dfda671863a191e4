#include "runtime/text/Bpe.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

namespace gpt2c::rt {

Bpe::Bpe(const std::array<std::int32_t, 256> &byteTokens, std::vector<Merge> merges)
    : byteTokens_(byteTokens), merges_(std::move(merges)),
      ranks_(std::bit_ceil(2 * merges_.size() + 2), kNoRank) {
  for (std::uint32_t rank = 0; rank < merges_.size(); ++rank)
    ranks_[slot(merges_[rank].left, merges_[rank].right)] = rank;
}

/// The slot that holds the pair, or the free one where it belongs.
std::size_t Bpe::slot(std::int32_t left, std::int32_t right) const {
  std::uint64_t key = std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
  std::uint64_t hash = key * 0x9E3779B97F4A7C15ull; // 2^64 / golden ratio; the high bits mix best
  std::size_t mask = ranks_.size() - 1;
  std::size_t index = hash >> (64 - std::countr_zero(ranks_.size()));
  while (ranks_[index] != kNoRank &&
         (merges_[ranks_[index]].left != left || merges_[ranks_[index]].right != right))
    index = (index + 1) & mask;
  return index;
}

std::uint32_t Bpe::rank(std::int32_t left, std::int32_t right) const {
  return ranks_[slot(left, right)];
}

void Bpe::encode(std::string_view word, Scratch &scratch, std::vector<std::int32_t> &tokens) const {
  using Symbol = Scratch::Symbol;
  using Candidate = Scratch::Candidate;
  // The heap's top is the candidate to merge next.
  auto later = [](const Candidate &a, const Candidate &b) {
    return std::tie(a.rank, a.position) > std::tie(b.rank, b.position);
  };
  std::vector<Symbol> &symbols = scratch.symbols;
  std::vector<Candidate> &heap = scratch.heap;
  const std::size_t end = word.size(); // no symbol: the links of the first and the last

  symbols.clear();
  heap.clear();
  for (std::size_t i = 0; i < end; ++i)
    symbols.push_back({byteTokens_[std::uint8_t(word[i])], i ? i - 1 : end, i + 1});
  for (std::size_t i = 0; i + 1 < end; ++i)
    if (std::uint32_t found = rank(symbols[i].token, symbols[i + 1].token); found != kNoRank)
      heap.push_back({found, i});
  std::make_heap(heap.begin(), heap.end(), later);

  auto offer = [&](std::size_t left, std::size_t right) {
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
    const Merge &merge = merges_[best.rank];
    Symbol &left = symbols[best.position];
    // A candidate is stale when an earlier merge has taken one of its two tokens.
    if (left.token != merge.left || left.next == end || symbols[left.next].token != merge.right)
      continue;
    Symbol &right = symbols[left.next];
    left.token = merge.result;
    left.next = right.next;
    right.token = -1;
    if (left.next != end)
      symbols[left.next].previous = best.position;
    offer(left.previous, best.position);
    offer(best.position, left.next);
  }
  for (std::size_t i = 0; i < end; i = symbols[i].next)
    tokens.push_back(symbols[i].token);
}

} // namespace gpt2c::rt
