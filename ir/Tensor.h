// Dense row-major tensors on the host: constants of the IR and values of the reference executor.
#pragma once

#include "ir/DType.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <cassert>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace gpt2c {

/// IEEE binary16 and bfloat16 conversions, round to nearest even; NaN stays NaN, overflow becomes
/// infinity.
float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);
float bfloatToFloat(uint16_t bits);
uint16_t floatToBfloat(float value);
/// The 8-bit float E4M3 of the OCP specification (1.0, 2023), without infinities: 0x7f and 0xff are
/// NaN, what is larger than 448 becomes 448.
float fp8ToFloat(uint8_t bits);
uint8_t floatToFp8(float value);
/// An element of it.
struct Fp8 {
  uint8_t bits;
  operator float() const { return fp8ToFloat(bits); }
};

/// The number of -8 .. 7 next to a value, ties to even; -8 of a NaN.
int8_t floatToInt4(float value);
/// Eight elements of i4 in two's complement. Two neighbours are 16 bits apart, so that a mask of
/// the word leaves what a pair of two-byte floats is made of: element e is bits 4 p .. 4 p + 3 with
/// p = e / 2 + 4 (e mod 2).
struct Int4x8 {
  uint32_t word;

  static constexpr int shift(int e) { return 4 * (e / 2 + 4 * (e % 2)); }
  constexpr int get(int e) const { return int(word >> shift(e) << 28) >> 28; }
  constexpr void set(int e, int value) {
    word = (word & ~(15u << shift(e))) | (uint32_t(value) & 15u) << shift(e);
  }
};

/// Elements in a W, of those that are stored.
template <typename W> constexpr int64_t elementsIn = 1;
template <> inline constexpr int64_t elementsIn<Int4x8> = 8;
/// Where element i is, which is the first in its W.
template <typename W> W *elementAt(W *p, int64_t i) {
  return p + i / elementsIn<std::remove_cv_t<W>>;
}
/// Element i of quantised ones as a number.
template <typename W> float stepAt(const W *p, int64_t i) { return float(p[i]); }
template <> inline float stepAt(const Int4x8 *p, int64_t i) {
  return float(p[i / 8].get(int(i % 8)));
}

template <typename T> struct DTypeOf;
template <> struct DTypeOf<float> {
  static constexpr DType value = DType::F32;
};
template <> struct DTypeOf<double> {
  static constexpr DType value = DType::F64;
};
template <> struct DTypeOf<int8_t> {
  static constexpr DType value = DType::I8;
};
template <> struct DTypeOf<int32_t> {
  static constexpr DType value = DType::I32;
};
template <> struct DTypeOf<int64_t> {
  static constexpr DType value = DType::I64;
};

/// Calls f(begin, end) for ranges that make up [0, n), on all cores where n is large.
void forRanges(int64_t n, llvm::function_ref<void(int64_t, int64_t)> f);

/// A tensor shares its bytes with its copies. Bytes may belong to someone else (a mapped file):
/// `owner` keeps them alive.
class Tensor {
public:
  Tensor() = default;
  /// Uninitialised storage, aligned to 64 bytes.
  Tensor(DType dtype, llvm::ArrayRef<int64_t> shape);
  /// Borrows `data`; `owner` keeps it alive.
  Tensor(DType dtype, llvm::ArrayRef<int64_t> shape, const void *data,
         std::shared_ptr<const void> owner);
  static Tensor zeros(DType dtype, llvm::ArrayRef<int64_t> shape);
  template <typename T> static Tensor of(llvm::ArrayRef<T> values, llvm::ArrayRef<int64_t> shape) {
    Tensor t(DTypeOf<T>::value, shape);
    assert(t.count() == static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), t.data<T>());
    return t;
  }
  template <typename T> static Tensor scalar(T v) { return of<T>({v}, {}); }

  bool valid() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  llvm::ArrayRef<int64_t> shape() const { return shape_; }
  unsigned rank() const { return shape_.size(); }
  int64_t dim(int i) const { return shape_[i < 0 ? shape_.size() + i : i]; }
  int64_t count() const;
  size_t bytes() const { return size_t(storedBytes(dtype_, count())); }

  const void *raw() const { return data_; }
  void *raw() {
    hash_ = 0;
    return const_cast<void *>(data_);
  }
  /// T must fit the element size: bool and u8 as uint8_t, f16 and bf16 as uint16_t bits, i4 as
  /// Int4x8.
  template <typename T> const T *data() const {
    assert(sizeof(T) == storedBytes(dtype_, elementsIn<T>) && "element size");
    return static_cast<const T *>(data_);
  }
  template <typename T> T *data() {
    assert(sizeof(T) == storedBytes(dtype_, elementsIn<T>) && "element size");
    return static_cast<T *>(raw());
  }
  llvm::ArrayRef<char> byteArray() const { return {static_cast<const char *>(data_), bytes()}; }

  /// The same bytes under another shape with the same number of elements.
  Tensor reshaped(llvm::ArrayRef<int64_t> shape) const;
  /// Converted elements. Float to integer truncates toward zero, to i4 it rounds; anything to Bool
  /// is x != 0. The same dtype shares bytes.
  Tensor cast(DType to) const;
  /// Elements as double, int64_t: any dtype.
  double asDouble(int64_t i) const;
  int64_t asInt(int64_t i) const;

  /// The elements from `begin` on as double; and what cast() makes of doubles in their place.
  void load(int64_t begin, llvm::MutableArrayRef<double> to) const;
  void store(int64_t begin, llvm::ArrayRef<double> from);

  /// XXH3 of dtype, shape and bytes: equal content has an equal hash. It is remembered, by copies
  /// made later too, until raw() or data() is called on a tensor that is not const: nothing is
  /// written through a pointer from before. Two threads must not ask one object.
  uint64_t hash() const;

private:
  DType dtype_ = DType::F32;
  llvm::SmallVector<int64_t, 6> shape_; // a KV state has six dimensions
  const void *data_ = nullptr;
  std::shared_ptr<const void> owner_;
  mutable uint64_t hash_ = 0; // 0: not known
};

/// Calls f with a pointer to the elements of `t`, which is quantised: of a type that stepAt()
/// takes.
template <typename F> void withSteps(const Tensor &t, F f) {
  t.dtype() == DType::F8E4M3 ? f(t.data<Fp8>())
  : t.dtype() == DType::I4   ? f(t.data<Int4x8>())
                             : f(t.data<int8_t>());
}

} // namespace gpt2c
