#include "runtime/device/HostTensor.h"

#include "runtime/plan/PlanFile.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace gpt2c::rt {

HostTensor::HostTensor(plan::DType dtype, std::vector<int64_t> shape)
    : dtype(dtype), shape(std::move(shape)) {
  data.resize(static_cast<size_t>(count()) * dtypeBytes(dtype));
}

int64_t HostTensor::count() const {
  int64_t n = 1;
  for (int64_t d : shape)
    n *= d;
  return n;
}

float halfToFloat(uint16_t bits) {
  float magnitude;
  unsigned exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent == 31)
    magnitude = std::bit_cast<float>(0x7f800000u | mantissa << 13);
  else if (exponent == 0) // a multiple of the smallest subnormal, 2^-24
    magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  else
    magnitude = std::bit_cast<float>((exponent + 127 - 15) << 23 | mantissa << 13);
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t floatToHalf(float value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  float magnitude = std::fabs(value);
  if (std::isnan(value))
    return sign | 0x7e00;
  if (magnitude >= 65520.0f) // halfway between the largest finite half and the next power of two
    return sign | 0x7c00;
  if (magnitude < 0x1p-14f) // subnormal: a whole number of 2^-24
    return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  // Round the 13 bits that go away to nearest even; a carry moves into the exponent as it should.
  uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  bits += 0xfff + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((bits >> 13) - ((127 - 15) << 10));
}

namespace {

float bfloatToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint16_t floatToBfloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Whether elements are numbers by themselves, without scales.
bool isComputed(plan::DType t) { return t <= plan::DType::Bool; }

/// Calls f(load), where load(i) gives element i of `t` as a double or an int64_t.
template <typename F> auto withLoad(const HostTensor &t, F f) {
  switch (t.dtype) {
  case plan::DType::F32:
    return f([v = t.values<float>()](size_t i) { return double(v[i]); });
  case plan::DType::F64:
    return f([v = t.values<double>()](size_t i) { return v[i]; });
  case plan::DType::F16:
    return f([v = t.values<uint16_t>()](size_t i) { return double(halfToFloat(v[i])); });
  case plan::DType::BF16:
    return f([v = t.values<uint16_t>()](size_t i) { return double(bfloatToFloat(v[i])); });
  case plan::DType::I8:
    return f([v = t.values<int8_t>()](size_t i) { return int64_t(v[i]); });
  case plan::DType::U8:
  case plan::DType::Bool:
    return f([v = t.values<uint8_t>()](size_t i) { return int64_t(v[i]); });
  case plan::DType::I32:
    return f([v = t.values<int32_t>()](size_t i) { return int64_t(v[i]); });
  default:
    break;
  }
  return f([v = t.values<int64_t>()](size_t i) { return v[i]; });
}

/// Stores `value` in an integer; false when it does not fit.
template <typename T, typename V> bool storeInteger(T &to, V value) {
  if constexpr (std::is_same_v<V, double>) {
    // Both limits are exact doubles: the upper one is a power of two that no T reaches.
    constexpr double lowest = static_cast<double>(std::numeric_limits<T>::min());
    constexpr double beyond = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2.0;
    double whole = std::trunc(value);
    if (!(whole >= lowest && whole < beyond))
      return false;
    to = static_cast<T>(whole);
    return true;
  } else {
    to = static_cast<T>(value);
    return static_cast<V>(to) == value;
  }
}

} // namespace

Result<HostTensor> convert(HostTensor tensor, plan::DType to) {
  if (tensor.dtype == to)
    return tensor;
  for (plan::DType t : {tensor.dtype, to})
    if (!isComputed(t))
      return Status(Code::Usage, std::string("tensors of ") + dtypeName(t) + " are not converted");
  HostTensor out(to, tensor.shape);
  size_t n = static_cast<size_t>(out.count());
  std::optional<size_t> bad;
  withLoad(tensor, [&](auto load) {
    auto floats = [&](auto values, auto narrow) {
      for (size_t i = 0; i < n; ++i)
        values[i] = narrow(load(i));
    };
    auto integers = [&](auto values) {
      for (size_t i = 0; i < n && !bad; ++i)
        if (!storeInteger(values[i], load(i)))
          bad = i;
    };
    switch (to) {
    case plan::DType::F32:
      return floats(out.values<float>(), [](auto v) { return static_cast<float>(v); });
    case plan::DType::F64:
      return floats(out.values<double>(), [](auto v) { return static_cast<double>(v); });
    case plan::DType::F16:
      return floats(out.values<uint16_t>(),
                    [](auto v) { return floatToHalf(static_cast<float>(v)); });
    case plan::DType::BF16:
      return floats(out.values<uint16_t>(),
                    [](auto v) { return floatToBfloat(static_cast<float>(v)); });
    case plan::DType::Bool:
      return floats(out.values<uint8_t>(), [](auto v) { return static_cast<uint8_t>(v != 0); });
    case plan::DType::I8:
      return integers(out.values<int8_t>());
    case plan::DType::U8:
      return integers(out.values<uint8_t>());
    case plan::DType::I32:
      return integers(out.values<int32_t>());
    default:
      return integers(out.values<int64_t>());
    }
  });
  if (bad)
    return Status(Code::Usage, "element " + std::to_string(*bad) + " of a " +
                                   describe(tensor.dtype, tensor.shape) + " does not fit into " +
                                   dtypeName(to));
  return out;
}

std::string describe(plan::DType dtype, std::span<const int64_t> shape) {
  std::string text = dtypeName(dtype);
  text += '[';
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ']';
}

} // namespace gpt2c::rt
