// Instructions of a warp: its lanes arrive one by one, then all of them execute.
#include "Machine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace gpt2c::emulated {

namespace {

template <typename F> void overLanes(Warp &w, uint32_t mask, F &&f) {
  for (int lane = 0; lane < w.count; ++lane)
    if (mask >> lane & 1)
      f(lane, *w.lanes[size_t(lane)]);
}

enum Shuffle { Up, Down, Butterfly, Index };
/// shfl.sync.mode.b32 d|p, a, b, c, mask
void shuffle(Warp &w, uint32_t mask, const Instruction &i) {
  const size_t a = i.o.size() - 4;
  std::array<uint32_t, 32> values{};
  overLanes(w, mask, [&](int lane, Thread &t) { values[size_t(lane)] = get<uint32_t>(t, i.o[a]); });
  overLanes(w, mask, [&](int lane, Thread &t) {
    const auto b = int(get<uint32_t>(t, i.o[a + 1]) & 31);
    const auto c = get<uint32_t>(t, i.o[a + 2]);
    const int clamp = int(c & 31), segment = int(c >> 8 & 31);
    const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    int from = 0;
    bool inside = false;
    switch (Shuffle(i.mode)) {
    case Up:
      from = lane - b, inside = from >= most;
      break;
    case Down:
      from = lane + b, inside = from <= most;
      break;
    case Butterfly:
      from = lane ^ b, inside = from <= most;
      break;
    case Index:
      from = least | (b & ~segment), inside = from <= most;
      break;
    }
    if (!inside)
      from = lane;
    if (!(mask >> from & 1))
      throw Error("a lane that is not there is read");
    put<uint32_t>(t, i.o[0], values[size_t(from)]);
    if (a > 1)
      put<uint64_t>(t, i.o[1], inside);
  });
}

enum Vote { Ballot, Any, All, Uniform };
void vote(Warp &w, uint32_t mask, const Instruction &i) {
  uint32_t yes = 0;
  overLanes(w, mask,
            [&](int lane, Thread &t) { yes |= uint32_t(get<uint64_t>(t, i.o[1]) & 1) << lane; });
  const uint64_t result = i.mode == Ballot ? yes
                          : i.mode == Any  ? yes != 0
                          : i.mode == All  ? yes == mask
                                           : yes == 0 || yes == mask;
  overLanes(w, mask, [&](int, Thread &t) { put<uint64_t>(t, i.o[0], result); });
}

enum Reduce { Sum, Least, Most, AllBits, AnyBits, OddBits };
template <typename T> void reduce(Warp &w, uint32_t mask, const Instruction &i) {
  bool first = true;
  T all = 0;
  overLanes(w, mask, [&](int, Thread &t) {
    const T v = get<T>(t, i.o[1]);
    all = first               ? v
          : i.mode == Sum     ? T(all + v)
          : i.mode == Least   ? std::min(all, v)
          : i.mode == Most    ? std::max(all, v)
          : i.mode == AllBits ? T(all & v)
          : i.mode == AnyBits ? T(all | v)
                              : T(all ^ v);
    first = false;
  });
  overLanes(w, mask, [&](int, Thread &t) { put<T>(t, i.o[0], all); });
}

void meet(Warp &, uint32_t, const Instruction &) {}

/// {r...}, [address]: lane l has the address of row l % 8 of matrix l / 8.
template <bool Store> void matrices(Warp &w, uint32_t, const Instruction &i) {
  const auto count = size_t(i.count);
  const size_t address = Store ? 0 : count, registers = Store ? 1 : 0;
  std::array<uint16_t *, 32> lines{}; // ahead of results, which may take the addresses' registers
  for (size_t lane = 0; lane < 8 * count; ++lane) {
    Thread &t = *w.lanes[lane];
    lines[lane] = reinterpret_cast<uint16_t *>(
        t.machine->shared(t, get<uint32_t>(t, i.o[address]) + uint32_t(i.offset), 16));
  }
  for (size_t m = 0; m < count; ++m)
    for (size_t row = 0; row < 8; ++row) {
      uint16_t *line = lines[m * 8 + row];
      for (size_t column = 0; column < 8; ++column) {
        // A lane has two elements of a row, or with a transposition of a column.
        const size_t r = i.mode ? column : row, c = i.mode ? row : column;
        Thread &t = *w.lanes[r * 4 + c / 2];
        char *half = reinterpret_cast<char *>(&t.r[i.o[registers + m]]) + c % 2 * 2;
        if (Store) {
          std::memcpy(line + column, half, 2);
        } else {
          if (c % 2 == 0)
            t.r[i.o[registers + m]] &= 0xffff0000;
          std::memcpy(half, line + column, 2);
          t.r[i.o[registers + m]] &= 0xffffffff;
        }
      }
    }
}

// Products of matrices
// -------------------------------------------------------------------------------------------------

enum Type { F16, Bf16, Tf32, S8, E4m3 };
int bytesOf(Type type) { return type == S8 || type == E4m3 ? 1 : type == Tf32 ? 4 : 2; }
float elementOf(Type type, uint32_t bits) {
  return type == F16    ? halfToFloat(uint16_t(bits))
         : type == Bf16 ? bfloatToFloat(uint16_t(bits))
         : type == Tf32 ? std::bit_cast<float>(bits & 0xffffe000)
         : type == E4m3 ? valueOfFp8(uint8_t(bits))
                        : float(int8_t(bits));
}
/// Sixteen rows of `depth` elements, from the registers of a warp: a register has rows lane / 4 or
/// eight further on, of 4 bytes of K at lane % 4.
struct Rows {
  float at[16][32];
};
void rowsFromRegisters(Rows &rows, Warp &w, const int *o, Type type, int depth) {
  const int each = 4 / bytesOf(type), half = depth / 2;
  for (int lane = 0; lane < 32; ++lane)
    for (int reg = 0; reg < 4; ++reg) {
      const auto bits = get<uint32_t>(*w.lanes[size_t(lane)], o[reg]);
      for (int e = 0; e < each; ++e)
        rows.at[lane / 4 + reg % 2 * 8][reg / 2 * half + lane % 4 * each + e] =
            elementOf(type, bits >> 8 * bytesOf(type) * e);
    }
}
/// v without what is below 13 bits behind the leading one of a number of that exponent.
double cut(double v, int exponent) {
  return std::ldexp(std::trunc(std::ldexp(v, 13 - exponent)), exponent - 13);
}
/// What tensor cores of sm_90 are taken to make of fp8: the products and what is there already are
/// aligned to the largest of them and cut, added up, and the sum is cut.
float sumOfFp8(const float *a, const float *b, int depth, float before) {
  std::array<double, 33> terms;
  double largest = 0;
  for (int e = 0; e <= depth; ++e) {
    terms[size_t(e)] = e < depth ? double(a[e]) * double(b[e]) : double(before);
    largest = std::max(largest, std::fabs(terms[size_t(e)]));
  }
  if (largest == 0 || !std::isfinite(largest))
    return float(std::accumulate(terms.begin(), terms.begin() + depth + 1, 0.0));
  const int exponent = std::ilogb(largest);
  double sum = 0;
  for (int e = 0; e <= depth; ++e)
    sum += cut(terms[size_t(e)], exponent);
  return sum == 0 ? 0.0F : float(cut(sum, std::ilogb(sum)));
}
/// d (+)= rows * columns^T of `n` columns; sums of integers are exact.
void multiply(Warp &w, const int *d, const Rows &rows, const std::vector<float> &columns, int n,
              int depth, Type type, bool add) {
  for (int lane = 0; lane < 32; ++lane) {
    Thread &t = *w.lanes[size_t(lane)];
    for (int k = 0; k < n / 2; ++k) { // four of each eight columns
      const int row = lane / 4 + k / 2 % 2 * 8, column = k / 4 * 8 + lane % 4 * 2 + k % 2;
      const float *a = rows.at[row], *b = columns.data() + column * depth;
      if (type == S8) {
        int32_t sum = add ? get<int32_t>(t, d[k]) : 0;
        for (int e = 0; e < depth; ++e)
          sum += int32_t(a[e]) * int32_t(b[e]);
        put<int32_t>(t, d[k], sum);
      } else if (type == E4m3) {
        put<float>(t, d[k], sumOfFp8(a, b, depth, add ? get<float>(t, d[k]) : 0.0F));
      } else {
        double sum = 0;
        for (int e = 0; e < depth; ++e)
          sum += double(a[e]) * double(b[e]);
        put<float>(t, d[k], float(sum + double(add ? get<float>(t, d[k]) : 0.0F)));
      }
    }
  }
}

/// mma.sync.m16n8kD: d, a, b, c in registers.
void mma(Warp &w, uint32_t, const Instruction &i) {
  const auto type = Type(i.mode);
  const int depth = i.bytes, each = 4 / bytesOf(type);
  Rows rows;
  rowsFromRegisters(rows, w, &i.o[4], type, depth);
  std::vector<float> columns(size_t(8) * depth);
  for (int lane = 0; lane < 32; ++lane)
    for (int reg = 0; reg < 2; ++reg) {
      const auto bits = get<uint32_t>(*w.lanes[size_t(lane)], i.o[8 + reg]);
      for (int e = 0; e < each; ++e)
        columns[lane / 4 * depth + reg * depth / 2 + lane % 4 * each + e] =
            elementOf(type, bits >> 8 * bytesOf(type) * e);
    }
  // All sums are read before one is written: registers may be the same.
  std::array<std::array<uint32_t, 4>, 32> before;
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t k = 0; k < 4; ++k)
      before[lane][k] = get<uint32_t>(*w.lanes[lane], i.o[10 + k]);
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t k = 0; k < 4; ++k)
      put<uint32_t>(*w.lanes[lane], i.o[k], before[lane][k]);
  multiply(w, &i.o[0], rows, columns, 8, depth, type, true);
}

/// An operand in shared memory, swizzled by 128 bytes, as its descriptor says.
struct Descriptor {
  uint32_t start, leading, stride;
  explicit Descriptor(uint64_t bits)
      : start(uint32_t(bits & 0x3fff) << 4), leading(uint32_t(bits >> 16 & 0x3fff) << 4),
        stride(uint32_t(bits >> 32 & 0x3fff) << 4) {
    if (bits >> 62 != 1)
      throw Error("an operand that is not swizzled by 128 bytes");
  }
  static uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }
  /// Byte `k` of row `row`, where rows run along K.
  uint32_t of(int row, int k) const {
    return swizzled(start + uint32_t(row / 8) * stride + uint32_t(row % 8) * 128 + uint32_t(k));
  }
  /// Where rows of shared memory are those of K, and `column` runs along them.
  uint32_t across(int k, int column, int bytes) const {
    return swizzled(start + uint32_t(column * bytes / 128) * leading + uint32_t(k / 8) * stride +
                    uint32_t(k % 8) * 128 + uint32_t(column * bytes % 128));
  }
};
/// `depth` elements, 32 bytes in two swizzled units, of a row that runs along K.
void takeRow(float *to, Thread &t, const Descriptor &of, int row, Type type) {
  const int each = 16 / bytesOf(type);
  for (int unit = 0; unit < 2; ++unit) {
    const char *from = t.machine->shared(t, of.of(row, unit * 16), 16);
    for (int k = 0; k < each; ++k) {
      uint32_t bits = 0;
      std::memcpy(&bits, from + k * bytesOf(type), size_t(bytesOf(type)));
      to[unit * each + k] = elementOf(type, bits);
    }
  }
}
float elementAt(Thread &t, uint32_t address, Type type) {
  uint32_t bits = 0;
  std::memcpy(&bits, t.machine->shared(t, address, size_t(bytesOf(type))), size_t(bytesOf(type)));
  return elementOf(type, bits);
}
/// wgmma of 64 rows, of which a warp has sixteen: {d}, a or {a}, b, p, 1, 1, whether a and b are
/// transposed. It is executed at once.
void wgmma(Warp &w, uint32_t, const Instruction &i) {
  const auto type = Type(i.mode);
  const int depth = 32 / bytesOf(type), n = i.count;
  const size_t a = size_t(n / 2);
  const bool fromRegisters = i.bytes;
  const size_t b = a + (fromRegisters ? 4 : 1);
  Thread &t = *w.lanes[0];
  Rows rows;
  if (fromRegisters) {
    rowsFromRegisters(rows, w, &i.o[a], type, depth);
  } else {
    const Descriptor of(get<uint64_t>(t, i.o[a]));
    for (int r = 0; r < 16; ++r)
      takeRow(rows.at[r], t, of, w.number % 4 * 16 + r, type);
  }
  const size_t flags = i.o.size() - (b + 2); // behind p
  const bool across = bytesOf(type) == 2 && flags > 2 && get<uint32_t>(t, i.o.back());
  if (flags == 4 && get<uint32_t>(t, i.o[i.o.size() - 2]))
    throw Error("a transposed first operand");
  const Descriptor of(get<uint64_t>(t, i.o[b]));
  std::vector<float> columns(size_t(n) * depth);
  for (int c = 0; c < n; ++c)
    if (!across)
      takeRow(columns.data() + c * depth, t, of, c, type);
    else
      for (int k = 0; k < depth; ++k)
        columns[c * depth + k] = elementAt(t, of.across(k, c, bytesOf(type)), type);
  multiply(w, &i.o[0], rows, columns, n, depth, type, get<uint64_t>(t, i.o[b + 1]) & 1);
}

} // namespace

/// d, a: of a matrix of 8 x 8 halves, of which lane l has two in row l / 4.
void transpose(Warp &w, uint32_t mask, const Instruction &i) {
  std::array<uint32_t, 32> rows{};
  overLanes(w, mask, [&](int lane, Thread &t) { rows[size_t(lane)] = get<uint32_t>(t, i.o[1]); });
  overLanes(w, mask, [&](int lane, Thread &t) {
    const size_t row = size_t(lane) / 4, column = size_t(lane) % 4 * 2;
    auto at = [&](size_t r, size_t c) { return rows[r * 4 + c / 2] >> c % 2 * 16 & 0xffff; };
    put<uint32_t>(t, i.o[0], at(column, row) | at(column + 1, row) << 16);
  });
}

bool decodeWarp(Instruction &i, const std::vector<std::string> &parts) {
  const std::string &op = parts[0], &last = parts.back();
  auto has = [&](const char *name) {
    return std::find(parts.begin(), parts.end(), name) != parts.end();
  };
  auto typeOf = [&] {
    return has("f16") ? F16 : has("bf16") ? Bf16 : has("tf32") ? Tf32 : has("e4m3") ? E4m3 : S8;
  };
  if (op == "shfl") {
    i.mode = has("up") ? Up : has("down") ? Down : has("bfly") ? Butterfly : Index;
    i.mask = i.o.back();
    i.runWarp = shuffle;
  } else if (op == "vote") {
    i.mode = has("ballot") ? Ballot : has("any") ? Any : has("all") ? All : Uniform;
    i.mask = i.o.back();
    i.runWarp = vote;
  } else if (op == "redux") {
    i.mode = has("add")   ? Sum
             : has("min") ? Least
             : has("max") ? Most
             : has("and") ? AllBits
             : has("or")  ? AnyBits
                          : OddBits;
    i.mask = i.o.back();
    i.runWarp = last == "s32" ? reduce<int32_t> : reduce<uint32_t>;
  } else if (op == "bar" && has("warp")) {
    i.mask = i.o.back();
    i.runWarp = meet;
  } else if (op == "ldmatrix" || op == "stmatrix") {
    i.count = has("x4") ? 4 : has("x2") ? 2 : 1;
    i.mode = has("trans");
    i.runWarp = op == "ldmatrix" ? matrices<false> : matrices<true>;
  } else if (op == "movmatrix" && has("trans")) {
    i.runWarp = transpose;
  } else if (op == "mma") {
    i.mode = typeOf();
    i.bytes = has("m16n8k16") ? 16 : has("m16n8k8") ? 8 : has("m16n8k32") ? 32 : 0;
    i.runWarp = i.bytes && i.o.size() == 14 ? mma : nullptr;
  } else if (op == "wgmma" && has("mma_async")) {
    const std::string &shape = parts[4]; // m64n128k16
    const size_t n = shape.find('n'), k = shape.find('k');
    i.count = std::stoi(shape.substr(n + 1, k - n - 1));
    i.mode = typeOf();
    const size_t rest = i.o.size() - size_t(i.count / 2); // a, b, p and flags
    const size_t flags = typeOf() == S8 ? 0 : typeOf() == Tf32 || typeOf() == E4m3 ? 2 : 4;
    i.bytes = rest > 3 + flags; // a is in registers, and has no flag of its own
    i.runWarp = wgmma;
  } else if (op == "wgmma") {
    i.runWarp = meet;
  }
  return i.runWarp != nullptr;
}

} // namespace gpt2c::emulated
