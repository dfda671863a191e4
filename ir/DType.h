// Element types of tensors: what ir/DTypes.def says of each.
#pragma once

#include "llvm/ADT/StringRef.h"

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
  unsigned bytes;           ///< of an element
  Kind kind;
  llvm::StringLiteral device; ///< its type in kernels
};
inline constexpr DTypeInfo dtypeInfos[] = {
#define DTYPE(Name, text, bytes, kind, device) {text, bytes, DTypeInfo::kind, device},
#include "ir/DTypes.def"
};
constexpr const DTypeInfo &infoOf(DType t) { return dtypeInfos[size_t(t)]; }

/// Bytes of one element; Bool takes one byte, 0 or 1.
constexpr unsigned byteSize(DType t) { return infoOf(t).bytes; }
constexpr bool isFloat(DType t) { return infoOf(t).kind == DTypeInfo::Float; }
constexpr bool isInteger(DType t) { return infoOf(t).kind == DTypeInfo::Integer; }
/// Elements of a byte that a scale stands beside: weights, rows and states that are quantised.
constexpr bool isQuantised(DType t) { return t == DType::I8 || infoOf(t).kind == DTypeInfo::Steps; }

constexpr llvm::StringRef dtypeName(DType t) { return infoOf(t).name; }
std::optional<DType> parseDType(llvm::StringRef name);

} // namespace gpt2c
