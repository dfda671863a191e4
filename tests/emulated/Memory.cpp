// Instructions that go to memory: loads, stores, atomics, and copies that end later.
#include "Machine.h"

#include <algorithm>

namespace gpt2c::emulated {

namespace {

enum Space { Generic, Global, Shared, Own }; // Own: parameters and local memory

/// Where the address operand `n` leads.
char *place(Thread &t, const Instruction &i, size_t n, int space, size_t bytes) {
  Machine &m = *t.machine;
  const int slot = i.o[n];
  switch (space) {
  case Global:
    return m.global(get<uint64_t>(t, slot) + uint64_t(i.offset), bytes);
  case Shared:
    return m.shared(t, uint32_t(get<uint64_t>(t, slot) + uint64_t(i.offset)), bytes);
  default:
    return m.generic(t, get<uint64_t>(t, slot) + uint64_t(i.offset), bytes);
  }
}

/// ld.space.v4.u32 {a, b, c, d}, [address]; signs go all the way in a register.
template <bool Signed> void load(Thread &t, const Instruction &i) {
  const auto count = size_t(i.count), bytes = size_t(i.bytes);
  const char *from = place(t, i, count, i.mode, count * bytes);
  for (size_t k = 0; k < count; ++k) {
    uint64_t bits = 0;
    std::memcpy(&bits, from + k * bytes, bytes);
    if (Signed && bytes < 8)
      bits = uint64_t(int64_t(bits << (64 - 8 * bytes)) >> (64 - 8 * bytes));
    put<uint64_t>(t, i.o[k], bits);
  }
}
void store(Thread &t, const Instruction &i) {
  const auto count = size_t(i.count), bytes = size_t(i.bytes);
  char *to = place(t, i, 0, i.mode, count * bytes);
  for (size_t k = 0; k < count; ++k)
    std::memcpy(to + k * bytes, &t.r[i.o[k + 1]], bytes);
}

template <typename T> struct Atomic {
  enum Op { Add, Min, Max, Exchange, CompareAndSwap, And, Or };
  static void run(Thread &t, const Instruction &i) {
    const size_t address = i.o.size() > 1 && i.count ? 1 : 0; // red has no result
    char *at = place(t, i, address, i.mode & 15, sizeof(T));
    T old;
    std::memcpy(&old, at, sizeof(T));
    const T v = get<T>(t, i.o[address + 1]);
    T value = v;
    switch (Op(i.mode >> 4)) {
    case Add:
      value = T(old + v);
      break;
    case Min:
      value = std::min(old, v);
      break;
    case Max:
      value = std::max(old, v);
      break;
    case Exchange:
      break;
    case CompareAndSwap:
      value = old == v ? get<T>(t, i.o[address + 2]) : old;
      break;
    case And:
      if constexpr (std::is_integral_v<T>)
        value = old & v;
      break;
    case Or:
      if constexpr (std::is_integral_v<T>)
        value = old | v;
      break;
    }
    std::memcpy(at, &value, sizeof(T));
    if (address)
      put<T>(t, i.o[0], old);
  }
};

// cp.async: half of the copies are made at once, the others when somebody waits for them.
void perform(Thread &t, const Thread::Copy &copy) {
  char *to = t.machine->shared(t, copy.to, copy.bytes);
  std::memcpy(to, copy.from, copy.given);
  std::memset(to + copy.given, 0, copy.bytes - copy.given);
}
void copyAsync(Thread &t, const Instruction &i) {
  const auto bytes = get<uint32_t>(t, i.o[2]),
             given = i.o.size() > 3 ? std::min(get<uint32_t>(t, i.o[3]), bytes) : bytes;
  const auto from = get<uint64_t>(t, i.o[1]);
  Thread::Copy copy{uint32_t(get<uint64_t>(t, i.o[0]) + uint64_t(i.offset)),
                    given ? t.machine->global(from, given) : nullptr, bytes, given};
  t.machine->shared(t, copy.to, bytes);
  if (t.machine->below(2))
    perform(t, copy);
  else
    t.open.push_back(copy);
}
void commitCopies(Thread &t, const Instruction &) {
  t.committed.push_back(std::move(t.open));
  t.open.clear();
}
void waitForCopies(Thread &t, const Instruction &i) {
  const size_t left = i.o.empty() ? 0 : get<uint32_t>(t, i.o[0]);
  while (t.committed.size() > left) {
    for (const Thread::Copy &copy : t.committed.front())
      perform(t, copy);
    t.committed.pop_front();
  }
  if (i.o.empty()) { // wait_all
    for (const Thread::Copy &copy : t.open)
      perform(t, copy);
    t.open.clear();
  }
}

/// cp.async.mbarrier.arrive.noinc: an arrival when the copies of the thread so far have been made.
void arriveBehindCopies(Thread &t, const Instruction &i) {
  std::vector<Thread::Copy> copies = std::move(t.open);
  t.open.clear();
  for (const std::vector<Thread::Copy> &group : t.committed)
    copies.insert(copies.end(), group.begin(), group.end());
  t.committed.clear();
  const uint32_t barrier = get<uint32_t>(t, i.o[0]) + uint32_t(i.offset);
  t.machine->later([&t, copies, barrier] {
    for (const Thread::Copy &copy : copies)
      perform(t, copy);
    advance(*t.machine, t.machine->blockOf(t, barrier), barrier, 1, 0);
  });
}

// Bulk copies arrive later, and tell an mbarrier.
void copyBulk(Thread &t, const Instruction &i) {
  Machine &m = *t.machine;
  const auto to = get<uint32_t>(t, i.o[0]), bytes = get<uint32_t>(t, i.o[2]),
             barrier = get<uint32_t>(t, i.o[3]);
  if (to % 16 != 0 || bytes % 16 != 0 || get<uint64_t>(t, i.o[1]) % 16 != 0)
    throw Error("a bulk copy that is not in units of 16 bytes");
  const char *from = m.global(get<uint64_t>(t, i.o[1]), bytes);
  Block *barriers = &m.blockOf(t, barrier);
  char *at = m.shared(t, to, 16);
  m.shared(t, to + bytes - 16, 16);
  m.later([=, &m] {
    std::memcpy(at, from, bytes);
    advance(m, *barriers, barrier, 0, bytes);
  });
}

/// Element bytes of a box are walked in rows of its first axis. Shared memory has them one behind
/// the other, 16-byte units swizzled by bits 7 to 9 of their address.
template <typename Row>
void overRows(const Tensor &map, const int32_t *first, uint32_t shared, Row &&row) {
  const uint32_t rowBytes = map.box[0] * map.elementBytes;
  uint32_t at = shared;
  for (uint32_t z = 0; z < (map.rank > 2 ? map.box[2] : 1); ++z)
    for (uint32_t y = 0; y < map.box[1]; ++y, at += rowBytes) {
      const int64_t c1 = int64_t(first[1]) + y, c2 = map.rank > 2 ? int64_t(first[2]) + z : 0;
      const bool inside = c1 >= 0 && c1 < int64_t(map.sizes[1]) &&
                          (map.rank < 3 || (c2 >= 0 && c2 < int64_t(map.sizes[2])));
      char *memory = reinterpret_cast<char *>(map.address + uint64_t(c1) * map.strides[1] +
                                              uint64_t(c2) * (map.rank > 2 ? map.strides[2] : 0));
      row(inside ? memory : nullptr, at, rowBytes);
    }
}
uint32_t swizzled(const Tensor &map, uint32_t address) {
  return map.swizzled ? address ^ (address >> 7 & 7) << 4 : address;
}
Tensor tensorAt(Thread &t, int slot) {
  Tensor map;
  std::memcpy(&map, t.machine->generic(t, get<uint64_t>(t, slot), 64), sizeof(map));
  if (map.rank < 2 || map.rank > 3)
    throw Error("no tensor map");
  return map;
}
void loadTensor(Thread &t, const Instruction &i) {
  Machine &m = *t.machine;
  const Tensor map = tensorAt(t, i.o[1]);
  const auto to = get<uint32_t>(t, i.o[0]), barrier = get<uint32_t>(t, i.o.back());
  std::array<int32_t, 3> first{};
  for (uint32_t k = 0; k < map.rank; ++k)
    first[k] = get<int32_t>(t, i.o[2 + k]);
  if (to % 128 != 0)
    throw Error("a box at an address that is no multiple of 128");
  uint32_t total = map.box[0] * map.elementBytes * map.box[1] * (map.rank > 2 ? map.box[2] : 1);
  m.shared(t, to, 16);
  m.shared(t, to + total - 16, 16);
  Block *block = &m.blockOf(t, to), *barriers = &m.blockOf(t, barrier);
  m.later([=, &m] {
    char *shared = block->shared.data();
    overRows(map, first.data(), to & 0xffffff, [&](char *row, uint32_t at, uint32_t bytes) {
      for (uint32_t k = 0; k < bytes; k += 16) {
        char *unit = shared + swizzled(map, at + k) - sharedOrigin;
        const int64_t from = int64_t(first[0]) * map.elementBytes + k,
                      end = int64_t(map.sizes[0]) * map.elementBytes;
        const int64_t inside = row && from >= 0 ? std::clamp<int64_t>(end - from, 0, 16) : 0;
        std::memset(unit, 0, 16);
        if (inside > 0)
          std::memcpy(unit, m.global(uint64_t(row + from), 1), size_t(inside));
      }
    });
    advance(m, *barriers, barrier, 0, total);
  });
}
void storeTensor(Thread &t, const Instruction &i) {
  Machine &m = *t.machine;
  const Tensor map = tensorAt(t, i.o[0]);
  const auto from = get<uint32_t>(t, i.o.back());
  std::array<int32_t, 3> first{};
  for (uint32_t k = 0; k < map.rank; ++k)
    first[k] = get<int32_t>(t, i.o[1 + k]);
  overRows(map, first.data(), from, [&](char *row, uint32_t at, uint32_t bytes) {
    for (uint32_t k = 0; k < bytes; k += 16) {
      const char *unit = m.shared(t, swizzled(map, at + k), 16);
      const int64_t to = int64_t(first[0]) * map.elementBytes + k,
                    end = int64_t(map.sizes[0]) * map.elementBytes;
      const int64_t inside = row && to >= 0 ? std::clamp<int64_t>(end - to, 0, 16) : 0;
      if (inside > 0)
        std::memcpy(m.global(uint64_t(row + to), 1), unit, size_t(inside));
    }
  });
}
/// st.async: what another block of the cluster gets, later.
void storeAsync(Thread &t, const Instruction &i) {
  Machine &m = *t.machine;
  const auto count = size_t(i.count), bytes = size_t(i.bytes);
  std::array<char, 32> value{};
  for (size_t k = 0; k < count; ++k)
    std::memcpy(value.data() + k * bytes, &t.r[i.o[k + 1]], bytes);
  const auto barrier = get<uint32_t>(t, i.o.back());
  char *to = m.shared(t, get<uint32_t>(t, i.o[0]) + uint32_t(i.offset), count * bytes);
  Block *barriers = &m.blockOf(t, barrier);
  m.later([=, &m] {
    std::memcpy(to, value.data(), count * bytes);
    advance(m, *barriers, barrier, 0, int64_t(count * bytes));
  });
}

void nothing(Thread &, const Instruction &) {}

// mbarriers
void initBarrier(Thread &t, const Instruction &i) {
  const auto count = get<uint32_t>(t, i.o[1]);
  MBarrier b{.phase = 0, .pending = count, .expected = count, .bytes = 0};
  std::memcpy(place(t, i, 0, Shared, 8), &b, 8);
}
void arriveAtBarrier(Thread &t, const Instruction &i) {
  const uint32_t at = get<uint32_t>(t, i.o[1]) + uint32_t(i.offset);
  const int64_t bytes = i.mode ? get<uint32_t>(t, i.o[2]) : 0;
  Block &block = t.machine->blockOf(t, at);
  if (bytes)
    advance(*t.machine, block, at, 0, -bytes);
  advance(*t.machine, block, at, !i.mode && i.o.size() > 2 ? get<uint32_t>(t, i.o[2]) : 1, 0);
}
/// test_wait, and try_wait, which may sleep while the phase has not ended: until it has, to look
/// again.
void tryWait(Thread &t, const Instruction &i) {
  const uint32_t at = get<uint32_t>(t, i.o[1]) + uint32_t(i.offset);
  MBarrier b;
  std::memcpy(&b, t.machine->shared(t, at, 8), 8);
  const bool done = b.phase != (get<uint32_t>(t, i.o[2]) & 1);
  put<uint64_t>(t, i.o[0], done);
  if (done || !i.mode)
    return;
  t.state = Thread::Waiting;
  t.machine->blockOf(t, at).waiting[at & 0xffffff].push_back(&t);
}

void mapAddress(Thread &t, const Instruction &i) {
  // Lanes may ask for more than there are, if they only do not go there.
  const uint32_t rank = std::min(get<uint32_t>(t, i.o[2]), 254U);
  put<uint32_t>(t, i.o[0], (get<uint32_t>(t, i.o[1]) & 0xffffff) | (rank + 1) << 24);
}
void sharedToGeneric(Thread &t, const Instruction &i) {
  put<uint64_t>(t, i.o[0], sharedWindow | get<uint32_t>(t, i.o[1]));
}
void genericToShared(Thread &t, const Instruction &i) {
  put<uint64_t>(t, i.o[0], get<uint32_t>(t, i.o[1]));
}
void copyAddress(Thread &t, const Instruction &i) {
  put<uint64_t>(t, i.o[0], get<uint64_t>(t, i.o[1]) + uint64_t(i.offset));
}

Execute atomic(const std::string &type) {
  return type == "u32" || type == "b32"   ? Atomic<uint32_t>::run
         : type == "s32"                  ? Atomic<int32_t>::run
         : type == "u64" || type == "b64" ? Atomic<uint64_t>::run
         : type == "s64"                  ? Atomic<int64_t>::run
         : type == "f32"                  ? Atomic<float>::run
                                          : nullptr;
}

} // namespace

bool decodeMemory(Instruction &i, const std::vector<std::string> &parts) {
  const std::string &op = parts[0], &type = parts.back();
  auto has = [&](const char *name) {
    return std::find(parts.begin(), parts.end(), name) != parts.end();
  };
  auto space = [&]() -> int {
    return has("global")                                                   ? Global
           : has("shared") || has("shared::cta") || has("shared::cluster") ? Shared
           : has("param") || has("local")                                  ? Own
                                                                           : Generic;
  };
  auto bytesOf = [&] { return std::stoi(type.substr(1)) / 8; };
  if (has("L2::cache_hint"))
    i.o.pop_back(); // what L2 should keep
  if (op == "st" && has("async")) {
    i.count = has("v4") ? 4 : has("v2") ? 2 : 1;
    i.bytes = bytesOf();
    i.run = storeAsync;
  } else if (op == "ld" || op == "st" || op == "ldu") {
    i.count = has("v4") ? 4 : has("v2") ? 2 : 1;
    i.bytes = bytesOf();
    i.mode = space();
    i.run = op == "st" ? store : type[0] == 's' ? load<true> : load<false>;
  } else if (op == "atom" || op == "red") {
    const int what = has("add")    ? 0
                     : has("min")  ? 1
                     : has("max")  ? 2
                     : has("exch") ? 3
                     : has("cas")  ? 4
                     : has("and")  ? 5
                     : has("or")   ? 6
                                   : -1;
    i.count = op == "atom";
    i.mode = space() | what << 4;
    i.run = what < 0 ? nullptr : atomic(type);
  } else if (op == "cp" && !has("bulk")) {
    i.run = has("mbarrier")                        ? (has("noinc") ? arriveBehindCopies : nullptr)
            : has("commit_group")                  ? commitCopies
            : has("wait_group") || has("wait_all") ? waitForCopies
            : has("ca") || has("cg")               ? copyAsync
                                                   : nullptr;
  } else if (op == "cp") {
    i.run = has("prefetch") || has("commit_group") || has("wait_group") ? nothing
            : has("tensor") ? (parts.size() > 5 && parts[5] == "global" ? storeTensor : loadTensor)
            : has("global") && has("shared::cluster") ? copyBulk
                                                      : nullptr;
  } else if (op == "prefetch" || op == "prefetchu" || op == "discard" || op == "applypriority" ||
             op == "createpolicy") {
    i.run = nothing;
  } else if (op == "mbarrier") {
    i.mode = has("expect_tx") || has("try_wait");
    i.run = has("init")                           ? initBarrier
            : has("arrive")                       ? arriveAtBarrier
            : has("try_wait") || has("test_wait") ? tryWait
                                                  : nullptr;
  } else if (op == "mapa") {
    i.run = mapAddress;
  } else if (op == "cvta") {
    const bool to = has("to"), shared = has("shared");
    i.run = !shared ? copyAddress : to ? genericToShared : sharedToGeneric;
  }
  return i.run != nullptr;
}

} // namespace gpt2c::emulated
