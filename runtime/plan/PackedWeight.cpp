#include "runtime/plan/PackedWeight.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>

namespace gpt2c::rt {

namespace {

constexpr int kCodes = 16, kRaised = 15; ///< codes count from f - 15
constexpr uint16_t kExponent = 0x7f80;
constexpr uint32_t kLast = uint32_t(1) << 31;

constexpr uint32_t wordOf(int f, uint32_t place, uint32_t element) {
  return uint32_t(f) << 24 | place << 16 | element;
}
/// The word of a group whose exceptions begin at entry n - 1 of the list; n = 0: it has none.
constexpr uint32_t listedWord(int f, uint32_t n) {
  return wordOf(f, n & 0xff, kExponent | (n >> 15 & 1) << 15 | (n >> 8 & 0x7f));
}
constexpr bool isListed(uint32_t word) { return (word & kExponent) == kExponent; }
constexpr uint32_t listNumber(uint32_t word) {
  return (word >> 15 & 1) << 15 | (word & 0x7f) << 8 | (word >> 16 & 0xff);
}

/// Calls f(begin, end) for ranges of rows, on threads where that pays.
void forRows(const PackedShape &shape, const std::function<void(uint64_t, uint64_t)> &f) {
  constexpr uint64_t ofThread = 1 << 20; // elements
  const uint64_t most = std::max(1u, std::thread::hardware_concurrency()),
                 parts = std::clamp<uint64_t>(shape.rows * shape.columns / ofThread, 1,
                                              std::min(most, shape.rows));
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i < parts; ++i)
    threads.emplace_back(f, shape.rows * i / parts, shape.rows * (i + 1) / parts);
  f(0, shape.rows / parts);
  for (std::thread &t : threads)
    t.join();
}

int exponentOf(uint16_t element) { return element >> 7 & 0xff; }

/// The f with which the most elements of a group have a code, the largest of several.
int bestBase(std::span<const uint16_t> group) {
  std::array<int, 256 + kCodes> count{};
  for (uint16_t x : group)
    ++count[size_t(exponentOf(x))];
  if (std::ranges::all_of(group, [](uint16_t x) { return (x & 0x7fff) == 0; }))
    return 0;
  int best = 0, bestCount = -1, inside = 0;
  for (int code = 1; code < kCodes; ++code)
    inside += count[size_t(code)];
  // Exponent bits from `base` on; those of zero and of infinity have no code.
  for (int base = 1; base + kCodes <= 255; ++base) {
    inside += count[size_t(base + kCodes - 1)] - (base > 1 ? count[size_t(base - 1)] : 0);
    if (inside >= bestCount) {
      best = base;
      bestCount = inside;
    }
  }
  return best + kRaised;
}

/// Nothing of an exception.
std::optional<uint32_t> codeOf(uint16_t element, int f) {
  if (f == 0)
    return (element & 0x7fff) == 0 ? std::optional<uint32_t>(0) : std::nullopt;
  const int code = exponentOf(element) - (f - kRaised);
  return exponentOf(element) > 0 && code >= 0 && code < kCodes ? std::optional(uint32_t(code))
                                                               : std::nullopt;
}

/// Eight elements but for exceptions, in pairs.
void unpackEight(const std::byte *signMantissas, const std::byte *codeWord, uint32_t f,
                 uint16_t *to) {
  uint32_t codes;
  std::memcpy(&codes, codeWord, 4);
  const uint32_t base = (f - uint32_t(kRaised)) << 7 & kExponent, bases = base << 16 | base;
  for (int pair = 0; pair < 4; ++pair) {
    const uint32_t bits = uint32_t(signMantissas[2 * pair]) | uint32_t(signMantissas[2 * pair + 1])
                                                                  << 16,
                   at = std::rotr(codes, PackedShape::codeBit(2 * pair) - 7),
                   exponents = ((at & 0x07800780) + bases) & 0x7f807f80,
                   signs = (bits & 0x00800080) << 8,
                   both = f == 0 ? signs : signs | exponents | (bits & 0x007f007f);
    to[2 * pair] = uint16_t(both);
    to[2 * pair + 1] = uint16_t(both >> 16);
  }
}

/// Exceptions of one group, in a list.
struct Listed {
  uint64_t word;
  int f;
  std::vector<uint32_t> entries;
};

/// Writes a group, and its word if that is not among `listed` then.
void packGroup(std::span<const uint16_t> group, std::byte *to, uint64_t word, uint32_t *words,
               std::vector<Listed> &listed) {
  const int f = bestBase(group);
  std::vector<uint32_t> exceptions;
  for (size_t first = 0; first < group.size(); first += 8) {
    const size_t block = first / PackedShape::block, inBlock = first % PackedShape::block;
    std::byte *const at = to + block * PackedShape::blockBytes;
    uint32_t codes = 0;
    for (size_t e = 0; e < 8; ++e) {
      const uint16_t x = group[first + e];
      at[inBlock + e] = std::byte(x >> 8 & 0x80) | std::byte(x & 0x7f);
      const std::optional<uint32_t> code = codeOf(x, f);
      if (!code)
        exceptions.push_back(wordOf(0, uint32_t(first + e), x));
      const int bit = PackedShape::codeBit(int(e));
      codes |= code.value_or(0) << bit | (bit > 28 ? code.value_or(0) >> (32 - bit) : 0);
    }
    std::memcpy(at + PackedShape::block + inBlock / 2, &codes, 4);
  }
  if (exceptions.empty())
    words[word] = listedWord(f, 0);
  else if (exceptions.size() == 1 && !isListed(exceptions.front()))
    words[word] = exceptions.front() | uint32_t(f) << 24;
  else
    listed.push_back({word, f, std::move(exceptions)});
}

} // namespace

std::optional<PackedShape> PackedShape::of(std::span<const int64_t> shape) {
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[1] % int64_t(block))
    return std::nullopt;
  PackedShape s{uint64_t(shape[0]), uint64_t(shape[1]), mostGroup};
  while (s.columns % s.group)
    s.group /= 2;
  return s;
}

bool PackedShape::mayHave(uint64_t bytes) const {
  return bytes >= leastBytes() && bytes % 4 == 0 && bytes - leastBytes() <= kMostListed * 4;
}

std::optional<std::vector<std::byte>> packWeight(const PackedShape &shape,
                                                 std::span<const uint16_t> elements) {
  std::vector<std::byte> rows(shape.rows * shape.rowBytes());
  std::vector<uint32_t> words(shape.words());
  const uint64_t groups = shape.columns / shape.group,
                 groupBytes = shape.group / PackedShape::block * PackedShape::blockBytes;
  std::vector<Listed> listed;
  std::mutex mutex;
  forRows(shape, [&](uint64_t begin, uint64_t end) {
    std::vector<Listed> mine;
    for (uint64_t i = begin * groups; i < end * groups; ++i)
      packGroup(elements.subspan(i * shape.group, shape.group), rows.data() + i * groupBytes, i,
                words.data(), mine);
    const std::lock_guard lock(mutex);
    std::ranges::move(mine, std::back_inserter(listed));
  });
  std::ranges::sort(listed, {}, &Listed::word);
  std::vector<uint32_t> list;
  for (const Listed &l : listed) {
    words[l.word] = listedWord(l.f, uint32_t(list.size() + 1));
    list.insert(list.end(), l.entries.begin(), l.entries.end());
    list.back() |= kLast;
    if (list.size() > kMostListed)
      return std::nullopt;
  }
  if ((listed.size() - std::min<size_t>(listed.size(), 1)) * 256 > words.size())
    return std::nullopt;
  std::ranges::reverse(list);
  list.insert(list.end(), words.begin(), words.end());
  const auto bytes = std::as_bytes(std::span(list));
  rows.insert(rows.end(), bytes.begin(), bytes.end());
  return rows;
}

void unpackWeight(const PackedShape &shape, std::span<const std::byte> bytes,
                  std::span<std::byte> to) {
  const uint64_t wordsAt = shape.wordsAt(bytes.size()), groups = shape.columns / shape.group,
                 groupBytes = shape.group / PackedShape::block * PackedShape::blockBytes,
                 listed = (bytes.size() - shape.leastBytes()) / 4;
  auto wordAt = [&](uint64_t at) {
    uint32_t word;
    std::memcpy(&word, bytes.data() + at, 4);
    return word;
  };
  forRows(shape, [&](uint64_t begin, uint64_t end) {
    std::array<uint16_t, PackedShape::mostGroup> out{};
    auto take = [&](uint32_t exception) {
      if (const uint32_t place = exception >> 16 & 0xff; place < shape.group)
        out[place] = uint16_t(exception);
    };
    for (uint64_t i = begin * groups; i < end * groups; ++i) {
      const uint32_t word = wordAt(wordsAt + 4 * i), f = word >> 24;
      const std::byte *from = bytes.data() + i * groupBytes;
      uint16_t *at = out.data();
      for (uint64_t block = 0; block < shape.group; block += PackedShape::block) {
        for (uint64_t first = 0; first < PackedShape::block; first += 8, at += 8)
          unpackEight(from + first, from + PackedShape::block + first / 2, f, at);
        from += PackedShape::blockBytes;
      }
      if (!isListed(word))
        take(word);
      else
        for (uint64_t n = listNumber(word); n > 0 && n <= listed; ++n) {
          const uint32_t entry = wordAt(wordsAt - 4 * n);
          take(entry);
          if (entry & kLast)
            break;
        }
      std::memcpy(to.data() + i * shape.group * 2, out.data(), shape.group * 2);
    }
  });
}

} // namespace gpt2c::rt
