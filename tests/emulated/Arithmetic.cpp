// Instructions that compute with registers of one thread. What the hardware approximates is exact
// here. All of them, by name.
#include "Machine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

namespace gpt2c::emulated {

static float valueOfHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float v = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? std::ldexp(float(1024 + mantissa), exponent - 25)
                                 : std::ldexp(float(mantissa), -24);
  return bits & 0x8000 ? -v : v;
}
float valueOfFp8(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float v = (bits & 127) == 127 ? NAN
                  : exponent          ? std::ldexp(float(8 + mantissa), exponent - 10)
                                      : std::ldexp(float(mantissa), -9);
  return bits & 0x80 ? -v : v;
}
float halfToFloat(uint16_t bits) {
  static const std::vector<float> all = [] {
    std::vector<float> values(65536);
    for (uint32_t k = 0; k < values.size(); ++k)
      values[k] = valueOfHalf(uint16_t(k));
    return values;
  }();
  return all[bits];
}
uint16_t floatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  const uint32_t sign = bits >> 16 & 0x8000;
  if (magnitude > 0x7f800000)
    return 0x7fff;
  if (magnitude >= 0x477ff000) // 65520
    return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) // a half without a leading one: a float at 0.5 has its steps
    return uint16_t(sign | (std::bit_cast<uint32_t>(std::fabs(value) + 0.5F) - 0x3f000000));
  return uint16_t(sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
}
uint16_t floatToBfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return 0x7fff;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

namespace {

struct Half {
  uint16_t bits;
  explicit operator float() const { return halfToFloat(bits); }
  static Half of(float v) { return {floatToHalf(v)}; }
};
struct Bfloat {
  uint16_t bits;
  explicit operator float() const { return bfloatToFloat(bits); }
  static Bfloat of(float v) { return {floatToBfloat(v)}; }
};

template <typename T>
using Bits =
    std::conditional_t<sizeof(T) == 1, uint8_t,
                       std::conditional_t<sizeof(T) == 2, uint16_t,
                                          std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;
template <typename T> constexpr bool isFloat = std::is_floating_point_v<T>;
/// Integers add, subtract and multiply modulo their size.
template <typename T> using Wrapping = std::conditional_t<isFloat<T>, T, Bits<T>>;

#define OP(Name, ...)                                                                              \
  template <typename T> struct Name {                                                              \
    static void run(Thread &t, const Instruction &i) {                                             \
      using W [[maybe_unused]] = Wrapping<T>;                                                      \
      [[maybe_unused]] auto at = [&](int n) { return get<T>(t, i.o[size_t(n)]); };                 \
      put<T>(t, i.o[0], T(__VA_ARGS__));                                                           \
    }                                                                                              \
  };
OP(Add, W(at(1)) + W(at(2)))
OP(Sub, W(at(1)) - W(at(2)))
OP(Mul, W(at(1)) * W(at(2)))
OP(Mad, W(at(1)) * W(at(2)) + W(at(3)))
OP(Neg, W(0) - W(at(1)))
OP(Magnitude, at(1) < T(0) ? W(0) - W(at(1)) : W(at(1)))
OP(NegFloat, -at(1))
OP(Div, at(1) / at(2))
OP(DivInteger, at(2) == 0 ? T(-1) : at(1) / at(2))
OP(Rem, at(2) == 0 ? at(1) : at(1) % at(2))
OP(Fma, std::fma(at(1), at(2), at(3)))
OP(And, at(1) & at(2))
OP(Or, at(1) | at(2))
OP(Xor, at(1) ^ at(2))
OP(Not, ~at(1))
OP(Min, std::min(at(1), at(2)))
OP(Max, std::max(at(1), at(2)))
OP(MinFloat, std::fmin(at(1), at(2)))
OP(MaxFloat, std::fmax(at(1), at(2)))
OP(Abs, std::fabs(at(1)))
OP(CopySign, std::copysign(at(2), at(1)))
OP(Reciprocal, T(1) / at(1))
OP(ReciprocalRoot, T(1) / std::sqrt(at(1)))
OP(Root, std::sqrt(at(1)))
OP(Exp2, std::exp2(at(1)))
OP(Log2, std::log2(at(1)))
OP(Tanh, std::tanh(at(1)))
OP(Sin, std::sin(at(1)))
OP(Cos, std::cos(at(1)))
OP(Select, get<uint64_t>(t, i.o[3]) & 1 ? at(1) : at(2))
#undef OP

template <typename T> struct FmaDown { // towards minus infinity
  static void run(Thread &t, const Instruction &i) {
    const T a = get<T>(t, i.o[1]), b = get<T>(t, i.o[2]), c = get<T>(t, i.o[3]);
    T v = std::fma(a, b, c);
    if (double(v) > double(a) * double(b) + double(c))
      v = std::nextafter(v, -T(INFINITY));
    put<T>(t, i.o[0], v);
  }
};
template <typename T> struct MulWide {
  static void run(Thread &t, const Instruction &i) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    const Wide product = Wide(get<T>(t, i.o[1])) * Wide(get<T>(t, i.o[2]));
    put<uint64_t>(t, i.o[0], sizeof(T) == 2 ? uint32_t(product) : uint64_t(product));
  }
};
template <typename T> struct MadWide {
  static void run(Thread &t, const Instruction &i) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    put<uint64_t>(t, i.o[0],
                  uint64_t(Wide(get<T>(t, i.o[1])) * Wide(get<T>(t, i.o[2]))) +
                      get<uint64_t>(t, i.o[3]));
  }
};
template <typename T> struct MulHigh {
  static void run(Thread &t, const Instruction &i) {
    using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    put<T>(t, i.o[0], T((Wide(get<T>(t, i.o[1])) * Wide(get<T>(t, i.o[2]))) >> (8 * sizeof(T))));
  }
};
template <typename T> struct ShiftLeft {
  static void run(Thread &t, const Instruction &i) {
    const auto by = get<uint32_t>(t, i.o[2]);
    put<T>(t, i.o[0], by >= 8 * sizeof(T) ? T(0) : T(get<T>(t, i.o[1]) << by));
  }
};
template <typename T> struct ShiftRight {
  static void run(Thread &t, const Instruction &i) {
    const auto by = get<uint32_t>(t, i.o[2]);
    const T v = get<T>(t, i.o[1]);
    put<T>(t, i.o[0], by >= 8 * sizeof(T) ? T(v < 0 ? -1 : 0) : T(v >> by));
  }
};
template <typename T> struct InsertBits {
  static void run(Thread &t, const Instruction &i) {
    const T a = get<T>(t, i.o[1]), b = get<T>(t, i.o[2]);
    const uint32_t at = get<uint32_t>(t, i.o[3]) & 255, count = get<uint32_t>(t, i.o[4]) & 255;
    const T ones = count >= 8 * sizeof(T) ? ~T(0) : (T(1) << count) - 1;
    const T mask = at >= 8 * sizeof(T) ? T(0) : T(ones << at);
    put<T>(t, i.o[0], (b & ~mask) | (at >= 8 * sizeof(T) ? T(0) : T((a << at) & mask)));
  }
};

// Comparisons: the last letter of a float's says whether no numbers count as true.
enum Relation { Eq, Ne, Lt, Le, Gt, Ge, Number, NoNumber };
template <typename T> struct Compare {
  static void run(Thread &t, const Instruction &i) {
    const T a = get<T>(t, i.o[1]), b = get<T>(t, i.o[2]);
    const bool ordered = a == a && b == b, unordered = i.count;
    bool v = false;
    switch (Relation(i.mode)) {
    case Eq:
      v = a == b;
      break;
    case Ne:
      v = a < b || a > b;
      break;
    case Lt:
      v = a < b;
      break;
    case Le:
      v = a <= b;
      break;
    case Gt:
      v = a > b;
      break;
    case Ge:
      v = a >= b;
      break;
    case Number:
      v = ordered;
      break;
    case NoNumber:
      v = !ordered;
      break;
    }
    put<uint64_t>(t, i.o[0], ordered ? v : (v || unordered) && Relation(i.mode) != Number);
  }
};

// Conversions. Modes of rounding to integers:
enum Rounding { Nearest, Zero, Down, Up };
double toInteger(double v, int mode) {
  return mode == Zero   ? std::trunc(v)
         : mode == Down ? std::floor(v)
         : mode == Up   ? std::ceil(v)
                        : std::nearbyint(v);
}
template <typename To, typename From> struct Convert {
  static void run(Thread &t, const Instruction &i) {
    const From from = get<From>(t, i.o[1]);
    if constexpr (std::is_integral_v<To> && isFloat<From>) {
      double v = toInteger(from, i.mode);
      if (v != v)
        v = 0;
      v = std::clamp(v, double(std::numeric_limits<To>::min()),
                     double(std::numeric_limits<To>::max()));
      // The largest of 64 bits is no double.
      put<To>(t, i.o[0], v >= 0x1p63 && sizeof(To) == 8 ? std::numeric_limits<To>::max() : To(v));
    } else if constexpr (std::is_integral_v<To>) {
      // Registers may be wider than the type: signs go all the way.
      if constexpr (std::is_signed_v<To>)
        put<int64_t>(t, i.o[0], To(from));
      else
        put<To>(t, i.o[0], To(from));
    } else if constexpr (isFloat<From> && isFloat<To>) {
      To v = To(from);
      if (i.count) // saturates
        v = v > 0 ? std::min(v, To(1)) : To(0);
      else if (i.mode != Nearest || i.bytes)
        v = To(toInteger(v, i.mode));
      put<To>(t, i.o[0], v);
    } else {
      put<To>(t, i.o[0], To(from));
    }
  }
};
template <typename To> struct ConvertTo {
  template <typename From> using From_ = Convert<To, From>;
};

template <typename H> void widenHalf(Thread &t, const Instruction &i) {
  put<float>(t, i.o[0], float(get<H>(t, i.o[1])));
}
template <typename H> void narrowToHalf(Thread &t, const Instruction &i) {
  put<H>(t, i.o[0], H::of(get<float>(t, i.o[1])));
}
/// The first operand goes to the upper half.
template <typename H> void narrowToPair(Thread &t, const Instruction &i) {
  const uint32_t high = H::of(get<float>(t, i.o[1])).bits, low = H::of(get<float>(t, i.o[2])).bits;
  put<uint32_t>(t, i.o[0], high << 16 | low);
}
/// The E4M3 next to v, ties to even, at most 448.
uint8_t nearestFp8(float v) {
  const uint8_t sign = std::signbit(v) ? 0x80 : 0;
  if (std::isnan(v))
    return sign | 0x7f;
  const double size = std::min(std::fabs(double(v)), 448.0);
  const int exponent = size == 0 ? -6 : std::max(-6, std::ilogb(size));
  // nearbyint rounds to even; a carry into the next exponent is the next number.
  const int steps = int(std::nearbyint(std::ldexp(size, 3 - exponent)));
  return uint8_t(sign | ((exponent + 6) * 8 + steps));
}
/// The first operand goes to the upper byte.
void narrowToFp8Pair(Thread &t, const Instruction &i) {
  put<uint16_t>(
      t, i.o[0],
      uint16_t(nearestFp8(get<float>(t, i.o[1])) << 8 | nearestFp8(get<float>(t, i.o[2]))));
}
/// Of two halves.
void halvesToFp8Pair(Thread &t, const Instruction &i) {
  const uint32_t pair = get<uint32_t>(t, i.o[1]);
  put<uint16_t>(t, i.o[0],
                uint16_t(nearestFp8(halfToFloat(uint16_t(pair >> 16))) << 8 |
                         nearestFp8(halfToFloat(uint16_t(pair)))));
}
/// Two of them, the lower byte to the lower half.
void widenFp8Pair(Thread &t, const Instruction &i) {
  const uint16_t pair = get<uint16_t>(t, i.o[1]);
  const uint32_t low = floatToHalf(valueOfFp8(uint8_t(pair))),
                 high = floatToHalf(valueOfFp8(uint8_t(pair >> 8)));
  put<uint32_t>(t, i.o[0], high << 16 | low);
}
/// f of each half of a register, or of a register with one.
template <typename H, float (*F)(float, float, float)>
void ofHalves(Thread &t, const Instruction &i) {
  uint32_t result = 0;
  for (int h = 0; h < i.count; ++h) {
    float v[3] = {};
    for (size_t k = 1; k < i.o.size(); ++k)
      v[k - 1] = float(H{uint16_t(get<uint32_t>(t, i.o[k]) >> 16 * h)});
    result |= uint32_t(H::of(F(v[0], v[1], v[2])).bits) << 16 * h;
  }
  put<uint32_t>(t, i.o[0], result);
}
float addOf(float a, float b, float) { return a + b; }
float subOf(float a, float b, float) { return a - b; }
float mulOf(float a, float b, float) { return a * b; }
// A product of two halves is exact in a float, so that one rounding to double is one too many only
// where it lies between.
float fmaOf(float a, float b, float c) { return float(double(a) * double(b) + double(c)); }
float maxOf(float a, float b, float) { return std::fmax(a, b); }
float minOf(float a, float b, float) { return std::fmin(a, b); }
float absOf(float a, float, float) { return std::fabs(a); }
float negOf(float a, float, float) { return -a; }
float tanhOf(float a, float, float) { return std::tanh(a); }
float exp2Of(float a, float, float) { return std::exp2(a); }

void permute(Thread &t, const Instruction &i) {
  const uint64_t both = uint64_t(get<uint32_t>(t, i.o[2])) << 32 | get<uint32_t>(t, i.o[1]);
  const auto selector = get<uint32_t>(t, i.o[3]);
  uint32_t result = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t nibble = selector >> 4 * k & 15;
    uint32_t byte = uint32_t(both >> 8 * (nibble & 7)) & 255;
    if (nibble & 8)
      byte = byte & 128 ? 255 : 0;
    result |= byte << 8 * k;
  }
  put<uint32_t>(t, i.o[0], result);
}
/// Each bit is that of a table of eight which the bits of three words are the number of.
void lookUpBits(Thread &t, const Instruction &i) {
  const auto a = get<uint32_t>(t, i.o[1]), b = get<uint32_t>(t, i.o[2]),
             c = get<uint32_t>(t, i.o[3]), table = get<uint32_t>(t, i.o[4]);
  uint32_t result = 0;
  for (int k = 0; k < 32; ++k) {
    const uint32_t number = (a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1);
    result |= (table >> number & 1) << k;
  }
  put<uint32_t>(t, i.o[0], result);
}
void funnelLeft(Thread &t, const Instruction &i) {
  const uint64_t both = uint64_t(get<uint32_t>(t, i.o[2])) << 32 | get<uint32_t>(t, i.o[1]);
  const uint32_t by = get<uint32_t>(t, i.o[3]) & 31;
  put<uint32_t>(t, i.o[0], uint32_t(both << by >> 32));
}
void funnelRight(Thread &t, const Instruction &i) {
  const uint64_t both = uint64_t(get<uint32_t>(t, i.o[2])) << 32 | get<uint32_t>(t, i.o[1]);
  put<uint32_t>(t, i.o[0], uint32_t(both >> (get<uint32_t>(t, i.o[3]) & 31)));
}
void reverse(Thread &t, const Instruction &i) {
  uint32_t v = get<uint32_t>(t, i.o[1]), result = 0;
  for (int k = 0; k < 32; ++k, v >>= 1)
    result = result << 1 | (v & 1);
  put<uint32_t>(t, i.o[0], result);
}
/// The highest bit that is set, or how far it is from the top.
void findBit(Thread &t, const Instruction &i) {
  const auto v = get<uint32_t>(t, i.o[1]);
  const int zeros = std::countl_zero(v);
  put<uint32_t>(t, i.o[0], v == 0 ? ~0u : uint32_t(i.mode ? zeros : 31 - zeros));
}
void population(Thread &t, const Instruction &i) {
  put<uint32_t>(t, i.o[0], uint32_t(std::popcount(get<uint32_t>(t, i.o[1]))));
}
void leadingZeros(Thread &t, const Instruction &i) {
  put<uint32_t>(t, i.o[0], uint32_t(std::countl_zero(get<uint32_t>(t, i.o[1]))));
}

/// mov between one register and the parts of a vector.
void join(Thread &t, const Instruction &i) {
  const size_t parts = i.o.size() - 1, bits = size_t(i.bytes) * 8 / parts;
  uint64_t v = 0;
  for (size_t k = 0; k < parts; ++k)
    v |= (get<uint64_t>(t, i.o[k + 1]) & ((uint64_t(1) << bits) - 1)) << bits * k;
  put<uint64_t>(t, i.o[0], v);
}
void divide(Thread &t, const Instruction &i) {
  const size_t parts = i.o.size() - 1, bits = size_t(i.bytes) * 8 / parts;
  const uint64_t v = get<uint64_t>(t, i.o.back());
  for (size_t k = 0; k < parts; ++k)
    put<uint64_t>(t, i.o[k], v >> bits * k & ((uint64_t(1) << bits) - 1));
}
void move(Thread &t, const Instruction &i) {
  put<uint64_t>(t, i.o[0], get<uint64_t>(t, i.o[1]) + uint64_t(i.offset));
}

template <template <typename> class Op> Execute ofIntegers(const std::string &type) {
  return type == "s16"                    ? Op<int16_t>::run
         : type == "u16" || type == "b16" ? Op<uint16_t>::run
         : type == "s32"                  ? Op<int32_t>::run
         : type == "u32" || type == "b32" ? Op<uint32_t>::run
         : type == "s64"                  ? Op<int64_t>::run
         : type == "u64" || type == "b64" ? Op<uint64_t>::run
         : type == "pred"                 ? Op<uint64_t>::run
                                          : nullptr;
}
template <template <typename> class Op> Execute ofFloats(const std::string &type) {
  return type == "f32" ? Op<float>::run : type == "f64" ? Op<double>::run : nullptr;
}
template <template <typename> class Op> Execute ofBoth(const std::string &type) {
  Execute run = ofIntegers<Op>(type);
  return run ? run : ofFloats<Op>(type);
}
template <float (*F)(float, float, float)>
Execute ofNarrow(Instruction &i, const std::string &type) {
  i.count = type.ends_with("x2") ? 2 : 1;
  return type.starts_with("f16")    ? ofHalves<Half, F>
         : type.starts_with("bf16") ? ofHalves<Bfloat, F>
                                    : nullptr;
}
template <template <typename> class Op> Execute ofBytesToo(const std::string &type) {
  return type == "s8" ? Op<int8_t>::run : type == "u8" ? Op<uint8_t>::run : ofBoth<Op>(type);
}

Execute conversion(Instruction &i, const std::vector<std::string> &parts) {
  const std::string &to = parts[parts.size() - 2], &from = parts.back();
  auto has = [&](const char *name) {
    return std::find(parts.begin(), parts.end(), name) != parts.end();
  };
  if (from == "f16" || from == "bf16")
    return to != "f32" ? nullptr : from == "f16" ? widenHalf<Half> : widenHalf<Bfloat>;
  if (to == "e4m3x2")
    return !has("satfinite") ? nullptr : from == "f32" ? narrowToFp8Pair : halvesToFp8Pair;
  if (from == "e4m3x2")
    return to == "f16x2" ? widenFp8Pair : nullptr;
  if (to == "f16x2" || to == "bf16x2")
    return to == "f16x2" ? narrowToPair<Half> : narrowToPair<Bfloat>;
  if (to == "f16" || to == "bf16")
    return from != "f32" ? nullptr : to == "f16" ? narrowToHalf<Half> : narrowToHalf<Bfloat>;
  i.mode = has("rzi") || has("rz") ? Zero : has("rmi") ? Down : has("rpi") ? Up : Nearest;
  i.bytes = has("rni");
  i.count = has("sat");
  return to == "s8"    ? ofBytesToo<ConvertTo<int8_t>::From_>(from)
         : to == "u8"  ? ofBytesToo<ConvertTo<uint8_t>::From_>(from)
         : to == "s16" ? ofBytesToo<ConvertTo<int16_t>::From_>(from)
         : to == "u16" ? ofBytesToo<ConvertTo<uint16_t>::From_>(from)
         : to == "s32" ? ofBytesToo<ConvertTo<int32_t>::From_>(from)
         : to == "u32" ? ofBytesToo<ConvertTo<uint32_t>::From_>(from)
         : to == "s64" ? ofBytesToo<ConvertTo<int64_t>::From_>(from)
         : to == "u64" ? ofBytesToo<ConvertTo<uint64_t>::From_>(from)
         : to == "f32" ? ofBytesToo<ConvertTo<float>::From_>(from)
         : to == "f64" ? ofBytesToo<ConvertTo<double>::From_>(from)
                       : nullptr;
}

bool relation(Instruction &i, std::string name) {
  static const std::map<std::string, Relation> relations = {
      {"eq", Eq}, {"ne", Ne}, {"lt", Lt}, {"le", Le}, {"gt", Gt},      {"ge", Ge},
      {"lo", Lt}, {"ls", Le}, {"hi", Gt}, {"hs", Ge}, {"num", Number}, {"nan", NoNumber}};
  i.count = 0;
  if (name.size() == 3 && name.back() == 'u') {
    name.pop_back();
    i.count = 1;
  }
  auto it = relations.find(name);
  if (it != relations.end())
    i.mode = it->second;
  return it != relations.end();
}

} // namespace

bool decodeArithmetic(Instruction &i, const std::vector<std::string> &parts) {
  const std::string &op = parts[0], &type = parts.back();
  const std::string second = parts.size() > 1 ? parts[1] : "";
  const bool narrow = type.starts_with("f16") || type.starts_with("bf16");
  const bool real = type == "f32" || type == "f64";
  if (op == "mov") {
    i.bytes = type == "pred" ? 8 : std::stoi(type.substr(1)) / 8;
    i.run = i.o.size() == 2 ? move : i.mode ? divide : join;
  } else if (op == "add") {
    i.run = narrow ? ofNarrow<addOf>(i, type) : ofBoth<Add>(type);
  } else if (op == "sub") {
    i.run = narrow ? ofNarrow<subOf>(i, type) : ofBoth<Sub>(type);
  } else if (op == "mul") {
    i.run = narrow             ? ofNarrow<mulOf>(i, type)
            : second == "wide" ? ofIntegers<MulWide>(type)
            : second == "hi"   ? ofIntegers<MulHigh>(type)
                               : ofBoth<Mul>(type);
  } else if (op == "mad") {
    i.run = second == "wide" ? ofIntegers<MadWide>(type)
            : second == "lo" ? ofIntegers<Mad>(type)
                             : ofFloats<Fma>(type);
  } else if (op == "fma") {
    i.run = narrow                            ? ofNarrow<fmaOf>(i, type)
            : second == "rm" && type == "f32" ? FmaDown<float>::run
                                              : ofFloats<Fma>(type);
  } else if (op == "neg") {
    i.run = narrow ? ofNarrow<negOf>(i, type)
            : real ? ofFloats<NegFloat>(type)
                   : ofIntegers<Neg>(type);
  } else if (op == "div") {
    i.run = real ? ofFloats<Div>(type) : ofIntegers<DivInteger>(type);
  } else if (op == "rem") {
    i.run = ofIntegers<Rem>(type);
  } else if (op == "min") {
    i.run = narrow ? ofNarrow<minOf>(i, type)
            : real ? ofFloats<MinFloat>(type)
                   : ofIntegers<Min>(type);
  } else if (op == "max") {
    i.run = narrow ? ofNarrow<maxOf>(i, type)
            : real ? ofFloats<MaxFloat>(type)
                   : ofIntegers<Max>(type);
  } else if (op == "abs") {
    i.run = narrow ? ofNarrow<absOf>(i, type)
            : real ? ofFloats<Abs>(type)
                   : ofIntegers<Magnitude>(type);
  } else if (op == "tanh") {
    i.run = narrow ? ofNarrow<tanhOf>(i, type) : ofFloats<Tanh>(type);
  } else if (op == "ex2") {
    i.run = narrow ? ofNarrow<exp2Of>(i, type) : ofFloats<Exp2>(type);
  } else if (op == "lg2") {
    i.run = ofFloats<Log2>(type);
  } else if (op == "rcp") {
    i.run = ofFloats<Reciprocal>(type);
  } else if (op == "rsqrt") {
    i.run = ofFloats<ReciprocalRoot>(type);
  } else if (op == "sqrt") {
    i.run = ofFloats<Root>(type);
  } else if (op == "sin") {
    i.run = ofFloats<Sin>(type);
  } else if (op == "cos") {
    i.run = ofFloats<Cos>(type);
  } else if (op == "copysign") {
    i.run = ofFloats<CopySign>(type);
  } else if (op == "and") {
    i.run = ofIntegers<And>(type);
  } else if (op == "or") {
    i.run = ofIntegers<Or>(type);
  } else if (op == "xor") {
    i.run = ofIntegers<Xor>(type);
  } else if (op == "not") {
    i.run = ofIntegers<Not>(type);
  } else if (op == "shl") {
    i.run = ofIntegers<ShiftLeft>(type);
  } else if (op == "shr") {
    i.run = ofIntegers<ShiftRight>(type);
  } else if (op == "shf") {
    i.run = second == "l" ? funnelLeft : funnelRight;
  } else if (op == "selp") {
    i.run = ofBoth<Select>(type);
  } else if (op == "setp") {
    i.run = relation(i, second) ? ofBoth<Compare>(type) : nullptr;
  } else if (op == "cvt") {
    i.run = conversion(i, parts);
  } else if (op == "prmt") {
    i.run = permute;
  } else if (op == "lop3" && type == "b32") {
    i.run = lookUpBits;
  } else if (op == "bfi") {
    i.run = ofIntegers<InsertBits>(type);
  } else if (op == "brev" && type == "b32") {
    i.run = reverse;
  } else if (op == "bfind" && type == "u32") {
    i.mode = second == "shiftamt";
    i.run = findBit;
  } else if (op == "popc" && type == "b32") {
    i.run = population;
  } else if (op == "clz" && type == "b32") {
    i.run = leadingZeros;
  }
  return i.run != nullptr;
}

} // namespace gpt2c::emulated
