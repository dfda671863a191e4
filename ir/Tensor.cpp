#include "ir/Tensor.h"

#include "ir/Budget.h"
#include "ir/Storage.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"

#include <xxhash.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

namespace gpt2c {

float halfToFloat(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 0x1f, mantissa = h & 0x3ff;
  if (exponent == 0) // zero and subnormals: mantissa * 2^-24
    return std::copysign(std::ldexp(float(mantissa), -24), sign ? -1.0f : 1.0f);
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t floatToHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = uint16_t((bits >> 16) & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  // Below 2^-14: subnormal, a multiple of 2^-24, to which a sum with 0.5 rounds. Everything is
  // computed and then selected, so that loops over elements stay free of branches.
  uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  half = magnitude < 0x38800000 ? small : half;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half; // 65520 and above round to infinity
  half = magnitude > 0x7f800000 ? 0x7e00 : half;
  return sign | uint16_t(half);
}

float bfloatToFloat(uint16_t b) { return std::bit_cast<float>(uint32_t(b) << 16); }

uint16_t floatToBfloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return uint16_t((bits >> 16) | 0x40);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float fp8ToFloat(uint8_t bits) {
  const uint32_t magnitude = bits & 0x7f;
  if (magnitude == 0x7f)
    return std::bit_cast<float>(uint32_t(bits & 0x80) << 24 | 0x7fc00000u);
  // The bits of a float that is 2^120 times smaller.
  return std::bit_cast<float>(uint32_t(bits & 0x80) << 24 | magnitude << 20) * 0x1p120F;
}

uint8_t floatToFp8(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value))
    return sign | 0x7f;
  if (magnitude < 0x1p-6F) // subnormal: a whole number of 2^-9, maybe the least normal one
    return sign | uint8_t(std::nearbyint(magnitude * 0x1p9F));
  const uint32_t bits = std::bit_cast<uint32_t>(std::fmin(magnitude, 448.0F));
  return sign | uint8_t((bits + 0x7ffff + (bits >> 20 & 1) - (120u << 23)) >> 20);
}

int8_t floatToInt4(float value) {
  return int8_t(std::fmin(std::fmax(std::nearbyint(value), -8.0F), 7.0F));
}

Tensor::Tensor(DType dtype, llvm::ArrayRef<int64_t> shape) : dtype_(dtype), shape_(shape) {
  const std::optional<int64_t> needed = tensorBytes(dtype, shape);
  if (!needed)
    throw TensorTooLarge("a tensor has more bytes than can be addressed");
  std::shared_ptr<const void> taken = Budget::takeBytes(*needed);
  std::shared_ptr<void> bytes = StoragePool::take(size_t(*needed));
  if (!bytes)
    throw TensorTooLarge("a tensor of " + std::to_string(*needed) +
                         " bytes is more than the system gives");
  data_ = bytes.get();
  owner_ = std::move(bytes);
  if (taken) // a budget gets back what it lent when the bytes go
    owner_ = std::shared_ptr<const void>(
        data_, [held = std::move(owner_), taken = std::move(taken)](const void *) {});
}

Tensor::Tensor(DType dtype, llvm::ArrayRef<int64_t> shape, const void *data,
               std::shared_ptr<const void> owner)
    : dtype_(dtype), shape_(shape), data_(data), owner_(std::move(owner)) {}

Tensor Tensor::zeros(DType dtype, llvm::ArrayRef<int64_t> shape) {
  Tensor t(dtype, shape);
  std::memset(t.raw(), 0, t.bytes());
  return t;
}

int64_t Tensor::count() const {
  int64_t n = 1;
  for (int64_t d : shape_)
    n *= d;
  return n;
}

Tensor Tensor::reshaped(llvm::ArrayRef<int64_t> shape) const {
  Tensor t = *this;
  t.hash_ = 0;
  t.shape_.assign(shape.begin(), shape.end());
  assert(t.count() == count() && "reshape keeps the number of elements");
  return t;
}

/// Calls `f` with a typed load function for the elements of `t`.
template <typename F> static auto withLoad(const Tensor &t, F f) {
  switch (t.dtype()) {
  case DType::F32:
    return f([p = t.data<float>()](int64_t i) { return p[i]; });
  case DType::F64:
    return f([p = t.data<double>()](int64_t i) { return p[i]; });
  case DType::F16:
    return f([p = t.data<uint16_t>()](int64_t i) { return halfToFloat(p[i]); });
  case DType::BF16:
    return f([p = t.data<uint16_t>()](int64_t i) { return bfloatToFloat(p[i]); });
  case DType::I8:
    // float holds each of them; a char that turns into an int looks like a mistake.
    return f([p = t.data<int8_t>()](int64_t i) { return static_cast<float>(p[i]); });
  case DType::F8E4M3:
    return f([p = t.data<Fp8>()](int64_t i) { return float(p[i]); });
  case DType::I4:
    return f([p = t.data<Int4x8>()](int64_t i) { return stepAt(p, i); });
  case DType::U8:
  case DType::Bool:
    return f([p = t.data<uint8_t>()](int64_t i) { return p[i]; });
  case DType::I32:
    return f([p = t.data<int32_t>()](int64_t i) { return p[i]; });
  case DType::I64:
    break;
  }
  return f([p = t.data<int64_t>()](int64_t i) { return p[i]; });
}

/// Calls `f` with a typed store function for the elements of `t`.
template <typename F> static auto withStore(Tensor &t, F f) {
  switch (t.dtype()) {
  case DType::F32:
    return f([p = t.data<float>()](int64_t i, auto v) { p[i] = static_cast<float>(v); });
  case DType::F64:
    return f([p = t.data<double>()](int64_t i, auto v) { p[i] = static_cast<double>(v); });
  case DType::F16:
    return f(
        [p = t.data<uint16_t>()](int64_t i, auto v) { p[i] = floatToHalf(static_cast<float>(v)); });
  case DType::BF16:
    return f([p = t.data<uint16_t>()](int64_t i, auto v) {
      p[i] = floatToBfloat(static_cast<float>(v));
    });
  case DType::I8:
    return f([p = t.data<int8_t>()](int64_t i, auto v) { p[i] = static_cast<int8_t>(v); });
  case DType::F8E4M3:
    return f(
        [p = t.data<Fp8>()](int64_t i, auto v) { p[i] = {floatToFp8(static_cast<float>(v))}; });
  case DType::I4:
    return f([p = t.data<Int4x8>()](int64_t i, auto v) {
      p[i / 8].set(int(i % 8), floatToInt4(static_cast<float>(v)));
    });
  case DType::U8:
    return f([p = t.data<uint8_t>()](int64_t i, auto v) { p[i] = static_cast<uint8_t>(v); });
  case DType::Bool:
    return f([p = t.data<uint8_t>()](int64_t i, auto v) { p[i] = static_cast<uint8_t>(v != 0); });
  case DType::I32:
    return f([p = t.data<int32_t>()](int64_t i, auto v) { p[i] = static_cast<int32_t>(v); });
  case DType::I64:
    break;
  }
  return f([p = t.data<int64_t>()](int64_t i, auto v) { p[i] = static_cast<int64_t>(v); });
}

void forRanges(int64_t n, llvm::function_ref<void(int64_t, int64_t)> f) {
  constexpr int64_t range = 1 << 18;
  if (n <= range)
    return f(0, n);
  llvm::parallelFor(0, (n + range - 1) / range, [&](size_t i) {
    f(int64_t(i) * range, std::min<int64_t>(n, int64_t(i + 1) * range));
  });
}

Tensor Tensor::cast(DType to) const {
  if (to == dtype_)
    return *this;
  // Elements that share a word leave none of its bits undefined.
  Tensor out = packedElements(to) > 1 ? zeros(to, shape_) : Tensor(to, shape_);
  withLoad(*this, [&](auto load) {
    withStore(out, [&](auto store) {
      forRanges(count(), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          store(i, load(i));
      });
    });
  });
  return out;
}

void Tensor::load(int64_t begin, llvm::MutableArrayRef<double> to) const {
  withLoad(*this, [&](auto load) {
    for (size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<double>(load(begin + int64_t(i)));
  });
}

void Tensor::store(int64_t begin, llvm::ArrayRef<double> from) {
  withStore(*this, [&](auto store) {
    for (size_t i = 0; i < from.size(); ++i)
      store(begin + int64_t(i), from[i]);
  });
}

double Tensor::asDouble(int64_t i) const {
  return withLoad(*this, [&](auto load) { return static_cast<double>(load(i)); });
}

int64_t Tensor::asInt(int64_t i) const {
  return withLoad(*this, [&](auto load) { return static_cast<int64_t>(load(i)); });
}

uint64_t Tensor::hash() const {
  if (!hash_) {
    uint64_t seed = static_cast<uint64_t>(dtype_) + 1;
    seed = XXH3_64bits_withSeed(shape_.data(), shape_.size() * sizeof(int64_t), seed);
    hash_ = XXH3_64bits_withSeed(data_, bytes(), seed);
  }
  return hash_;
}

} // namespace gpt2c
