#include "ir/Type.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace gpt2c {

llvm::StringRef dtypeName(DType t) {
  switch (t) {
  case DType::F32:
    return "f32";
  case DType::F16:
    return "f16";
  case DType::BF16:
    return "bf16";
  case DType::F64:
    return "f64";
  case DType::I8:
    return "i8";
  case DType::U8:
    return "u8";
  case DType::I32:
    return "i32";
  case DType::I64:
    return "i64";
  case DType::Bool:
    return "bool";
  }
  return "?";
}

std::optional<DType> parseDType(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<DType>>(name)
      .Case("f32", DType::F32)
      .Case("f16", DType::F16)
      .Case("bf16", DType::BF16)
      .Case("f64", DType::F64)
      .Case("i8", DType::I8)
      .Case("u8", DType::U8)
      .Case("i32", DType::I32)
      .Case("i64", DType::I64)
      .Case("bool", DType::Bool)
      .Default(std::nullopt);
}

bool Type::isStatic() const {
  return llvm::all_of(shape, [](const Dim &d) { return d.isConstant(); });
}

std::string Type::str() const {
  std::string out;
  llvm::raw_string_ostream os(out);
  os << *this;
  return out;
}

llvm::raw_ostream &operator<<(llvm::raw_ostream &os, const Type &t) {
  os << dtypeName(t.dtype) << "[";
  llvm::interleaveComma(t.shape, os);
  return os << "]";
}

} // namespace gpt2c
