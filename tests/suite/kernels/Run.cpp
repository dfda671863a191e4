// What a case's body works with: numbers, tensors, launches, comparisons.
#include "Suite.h"

#include "ir/Tensor.h"

#include "llvm/ADT/STLExtras.h"

#include <bit>
#include <cmath>
#include <cstring>

using namespace gpt2c::rt::cuda;

namespace gpt2c::kernels {

namespace {
constexpr size_t guardBytes = 256;
constexpr uint8_t guardByte = 0xA5;
/// The int8 that stands for NaN: no kernel writes it.
constexpr int8_t unwritten = -128;

void require(const rt::Status &status) {
  if (!status.ok())
    throw CaseFailure{status.message()};
}
template <typename T> T require(rt::Result<T> result) {
  require(result.status());
  return result.take();
}
} // namespace

uint16_t toHalf(double value) {
  float v = (float)value;
  uint32_t bits = std::bit_cast<uint32_t>(v), sign = bits >> 16 & 0x8000u;
  if (std::isnan(v))
    return (uint16_t)(sign | 0x7e00u);
  double magnitude = std::fabs(value);
  if (magnitude >= 65520.0)
    return (uint16_t)(sign | 0x7c00u);
  int exponent = magnitude == 0 ? -14 : std::max(-14, std::ilogb(magnitude));
  // nearbyint rounds to even; a carry into the next binade is the next bit pattern.
  auto steps = (uint32_t)std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  return (uint16_t)(sign | (((uint32_t)(exponent + 14) << 10) + steps));
}

double fromHalf(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double v = exponent == 31 ? (mantissa ? NAN : INFINITY)
             : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                            : std::ldexp(mantissa, -24);
  return bits & 0x8000 ? -v : v;
}

double givenInteger(Given given, double v) {
  if (given == Given::Fp8Scale)
    return fp8ToFloat(floatToFp8((float)v * givenInverse));
  if (given == Given::Scale)
    return std::clamp(std::nearbyint((float)v * givenInverse), -127.0F, 127.0F);
  return std::clamp(std::nearbyint((float)v * givenInverse) + givenZero, -128.0F, 127.0F);
}

double givenValue(Given given, double v) {
  if (given == Given::Fp8Scale)
    return std::clamp(v * givenInverse, -448.0, 448.0);
  if (given == Given::Scale)
    return std::clamp(v * givenInverse, -127.0, 127.0);
  return std::clamp(v * givenInverse + givenZero, -128.0, 127.0);
}

double halfStep(Scalar type, double v) {
  const double size = std::max(std::fabs(v), 0x1p-6);
  return 0.501 * (type == Scalar::F8E4M3 ? std::ldexp(1.0, std::ilogb(size) - 3) : 1.0);
}

void setGiven(Given given, Arguments &arguments) {
  if (given != Given::None)
    arguments.set("yInverse", givenInverse);
  if (given == Given::ScaleAndZero)
    arguments.set("yZero", givenZero);
}

std::array<unsigned, 3> blocksOf(const Grid &grid) {
  std::array<unsigned, 3> blocks;
  for (int i = 0; i < 3; ++i) {
    const int64_t count = require(rt::evalExpr(grid[i], {}));
    if (count < 1 || count > INT32_MAX)
      throw CaseFailure{"a grid of " + std::to_string(count) + " blocks"};
    blocks[i] = unsigned(count);
  }
  return blocks;
}

bool Run::isDry() const { return suite_.dry_; }

double rounded(double v, Scalar type) {
  switch (type) {
  case Scalar::F16:
    return fromHalf(toHalf(v));
  case Scalar::BF16:
    return bfloatToFloat(floatToBfloat((float)v));
  case Scalar::I8:
    return std::isnan(v) ? unwritten : v;
  case Scalar::F8E4M3:
    return fp8ToFloat(floatToFp8((float)v));
  case Scalar::I4:
    return floatToInt4((float)v);
  case Scalar::I32:
    return v;
  default:
    return (float)v;
  }
}

std::vector<double> Run::normal(size_t count, double deviation) {
  std::normal_distribution<double> distribution(0.0, deviation);
  std::vector<double> values(count);
  if (isDry())
    return values;
  for (double &v : values)
    v = distribution(random_);
  return values;
}

std::vector<int> Run::integers(size_t count, int low, int high) {
  std::uniform_int_distribution<int> distribution(low, high);
  std::vector<int> values(count, low);
  if (isDry())
    return values;
  for (int &v : values)
    v = distribution(random_);
  return values;
}

Tensor Run::allocate(Scalar type, size_t bytes, const void *contents) {
  Tensor t;
  t.type = type;
  t.bytes = bytes;
  if (isDry())
    return t;
  t.memory = require(suite_.device_->allocate(bytes + 2 * guardBytes, "a test tensor"));
  t.address = t.memory.address() + guardBytes;
  std::vector<uint8_t> host(bytes + 2 * guardBytes, guardByte);
  std::memcpy(host.data() + guardBytes, contents, bytes);
  require(suite_.device_->upload(t.memory.address(), host.data(), host.size()));
  return t;
}

/// The bytes of `values` in a type; they become what the type holds of them.
static std::vector<uint8_t> stored(std::vector<double> &values, Scalar type) {
  std::vector<uint8_t> raw(size_t(storedBytes(type, int64_t(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == Scalar::F16) {
      uint16_t h = toHalf(values[i]);
      std::memcpy(&raw[2 * i], &h, 2);
    } else if (type == Scalar::BF16) {
      uint16_t b = floatToBfloat((float)values[i]);
      std::memcpy(&raw[2 * i], &b, 2);
    } else if (type == Scalar::I8) {
      raw[i] = (uint8_t)(int8_t)rounded(values[i], type);
    } else if (type == Scalar::F8E4M3) {
      raw[i] = floatToFp8((float)values[i]);
    } else if (type == Scalar::I4) {
      Int4x8 word;
      std::memcpy(&word, &raw[i / 8 * 4], 4);
      word.set(int(i % 8), floatToInt4((float)values[i]));
      std::memcpy(&raw[i / 8 * 4], &word, 4);
    } else {
      float f = (float)values[i];
      std::memcpy(&raw[4 * i], &f, 4);
    }
    values[i] = rounded(values[i], type);
  }
  return raw;
}

Tensor Run::input(std::vector<double> values, Scalar type) {
  const std::vector<uint8_t> raw = isDry() ? std::vector<uint8_t>() : stored(values, type);
  Tensor t = allocate(type, size_t(storedBytes(type, int64_t(values.size()))), raw.data());
  t.values = std::move(values);
  return t;
}

Tensor Run::output(size_t count, Scalar type) {
  return input(std::vector<double>(count, NAN), type);
}

Tensor Run::integerInput(const std::vector<int> &values) {
  return allocate(Scalar::F32, values.size() * 4, values.data());
}

Tensor Run::zeroed(size_t bytes) {
  std::vector<uint8_t> zeros(bytes);
  return allocate(Scalar::F32, bytes, zeros.data());
}

void Run::launch(int kernel, const Grid &grid, const Arguments &arguments) {
  const Suite::Kernel &k = suite_.kernels_[kernel];
  llvm::Expected<std::vector<Argument>> list = arguments.inOrder(k.source);
  if (!list)
    throw CaseFailure{toString(list.takeError())};
  const std::array<unsigned, 3> blocks = blocksOf(grid);
  if (isDry()) {
    suite_.launched_.insert(kernel);
    return;
  }
  expect(k.refusal.empty(), k.refusal);
  union Slot {
    uint64_t word;
    TensorMap map;
    Slot() : map() {}
  };
  std::vector<Slot> storage(list->size());
  std::vector<void *> pointers;
  for (auto [slot, argument] : llvm::zip(storage, *list)) {
    if (auto *tensor = std::get_if<const Tensor *>(&argument))
      slot.word = (*tensor)->address;
    else if (auto *map = std::get_if<MapOf>(&argument))
      slot.map = require(encodeTensorMap(suite_.device_->api(), map->tensor->address, map->rows,
                                         map->columns, map->boxRows, map->matrices));
    else if (auto *number = std::get_if<int>(&argument))
      std::memcpy(&slot.word, number, 4);
    else if (auto *real = std::get_if<float>(&argument))
      std::memcpy(&slot.word, real, 4);
    pointers.push_back(&slot);
  }
  Launch launch;
  launch.function = k.function;
  for (int i = 0; i < 3; ++i)
    launch.grid[i] = blocks[i];
  launch.block[0] = k.source.threads;
  launch.sharedBytes = k.source.sharedBytes;
  require(suite_.device_->launch(launch, pointers.data()));
  require(suite_.device_->synchronize());
}

std::vector<uint8_t> Run::fetch(const Tensor &tensor) {
  if (isDry())
    return std::vector<uint8_t>(tensor.bytes);
  std::vector<uint8_t> host(tensor.bytes + 2 * guardBytes);
  require(suite_.device_->download(host.data(), tensor.memory.address(), host.size()));
  for (size_t i = 0; i < guardBytes; ++i)
    expect(host[i] == guardByte && host[guardBytes + tensor.bytes + i] == guardByte,
           "a kernel wrote outside its tensor, near byte " + std::to_string(i) + " of a guard");
  return {host.begin() + guardBytes, host.end() - guardBytes};
}

std::vector<double> Run::read(const Tensor &tensor) {
  std::vector<uint8_t> raw = fetch(tensor);
  std::vector<double> values(tensor.values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.type == Scalar::F16) {
      uint16_t h;
      std::memcpy(&h, &raw[2 * i], 2);
      values[i] = fromHalf(h);
    } else if (tensor.type == Scalar::BF16) {
      uint16_t b;
      std::memcpy(&b, &raw[2 * i], 2);
      values[i] = bfloatToFloat(b);
    } else if (tensor.type == Scalar::I8) {
      values[i] = (int8_t)raw[i];
    } else if (tensor.type == Scalar::F8E4M3) {
      values[i] = fp8ToFloat(raw[i]);
    } else {
      float f;
      std::memcpy(&f, &raw[4 * i], 4);
      values[i] = f;
    }
  }
  return values;
}

std::vector<int> Run::readIntegers(const Tensor &tensor) {
  std::vector<uint8_t> raw = fetch(tensor);
  std::vector<int> values(raw.size() / 4);
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

void Run::expectNear(const Tensor &tensor, std::span<const double> want, double relative,
                     std::span<const double> bound) {
  if (isDry())
    return;
  std::vector<double> got = read(tensor);
  expect(got.size() == want.size(), "sizes differ");
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i]))
      continue;
    double allowed = relative * std::fabs(want[i]) + (bound.empty() ? 0.0 : bound[i]);
    double error = got[i] == want[i] ? 0.0 : std::fabs(got[i] - want[i]);
    if (!(error <= allowed))
      throw CaseFailure{"element " + std::to_string(i) + " of " + std::to_string(got.size()) +
                        ": got " + std::to_string(got[i]) + ", want " + std::to_string(want[i]) +
                        ", error " + std::to_string(error) + ", allowed " +
                        std::to_string(allowed)};
    if (allowed > 0)
      worst = std::max(worst, error / allowed);
  }
}

void Run::expectEqual(std::span<const int> got, std::span<const int> want, const char *what) {
  if (isDry())
    return;
  expect(got.size() == want.size(), std::string(what) + ": sizes differ");
  for (size_t i = 0; i < got.size(); ++i)
    expect(got[i] == want[i], std::string(what) + "[" + std::to_string(i) + "]: got " +
                                  std::to_string(got[i]) + ", want " + std::to_string(want[i]));
}

void Run::expect(bool condition, const std::string &message) {
  if (!condition)
    throw CaseFailure{message};
}

} // namespace gpt2c::kernels
