// Element types of tensors.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>

namespace gpt2c {

enum class DType : uint8_t { F32, F16, BF16, F64, I8, U8, I32, I64, Bool };

/// Bytes of one element; Bool takes one byte, 0 or 1.
constexpr unsigned byteSize(DType t) {
  switch (t) {
  case DType::F64:
  case DType::I64:
    return 8;
  case DType::F32:
  case DType::I32:
    return 4;
  case DType::F16:
  case DType::BF16:
    return 2;
  case DType::I8:
  case DType::U8:
  case DType::Bool:
    return 1;
  }
  return 0;
}

constexpr bool isFloat(DType t) {
  return t == DType::F32 || t == DType::F16 || t == DType::BF16 || t == DType::F64;
}
constexpr bool isInteger(DType t) {
  return t == DType::I8 || t == DType::U8 || t == DType::I32 || t == DType::I64;
}

/// The spelling in IR text: "f32", "bool", ...
llvm::StringRef dtypeName(DType t);
std::optional<DType> parseDType(llvm::StringRef name);

} // namespace gpt2c
