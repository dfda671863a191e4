// Element types of tensors: what ir/DTypes.def says of each.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpt2c {

enum class DType : uint8_t {
#define DTYPE(Name, ...) Name,
#include "ir/DTypes.def"
};

struct DTypeInfo {
  enum Kind : uint8_t { Float, Integer, Truth, Steps };
  llvm::StringLiteral name; ///< in IR text: "f32", "bool", ...
  unsigned bits;            ///< of an element
  Kind kind;
  llvm::StringLiteral device; ///< its type in kernels
};
inline constexpr DTypeInfo dtypeInfos[] = {
#define DTYPE(Name, text, bits, kind, device) {text, bits, DTypeInfo::kind, device},
#include "ir/DTypes.def"
};
constexpr const DTypeInfo &infoOf(DType t) { return dtypeInfos[size_t(t)]; }

/// Bytes of one element; Bool takes one byte, 0 or 1. Not of elements that share a byte.
constexpr unsigned byteSize(DType t) {
  assert(infoOf(t).bits % 8 == 0 && "elements that share a byte");
  return infoOf(t).bits / 8;
}
/// Elements that are stored as one: those of less than a byte in words of 32 bits, else 1.
constexpr unsigned packedElements(DType t) { return infoOf(t).bits < 8 ? 32 / infoOf(t).bits : 1; }
/// Bytes of so many elements, in whole words where they are packed.
constexpr int64_t storedBytes(DType t, int64_t count) {
  const int64_t each = packedElements(t);
  return (count + each - 1) / each * int64_t(infoOf(t).bits * each / 8);
}
constexpr bool isFloat(DType t) { return infoOf(t).kind == DTypeInfo::Float; }
constexpr bool isInteger(DType t) { return infoOf(t).kind == DTypeInfo::Integer; }
/// Elements that a scale stands beside: weights, rows and states that are quantised.
constexpr bool isQuantised(DType t) { return t == DType::I8 || infoOf(t).kind == DTypeInfo::Steps; }

constexpr llvm::StringRef dtypeName(DType t) { return infoOf(t).name; }
std::optional<DType> parseDType(llvm::StringRef name);

} // namespace gpt2c
