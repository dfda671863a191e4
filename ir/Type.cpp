#include "ir/Type.h"

#include "llvm/ADT/STLExtras.h"

#include <iterator>

namespace gpt2c {

std::optional<DType> parseDType(llvm::StringRef name) {
  for (size_t t = 0; t < std::size(dtypeInfos); ++t)
    if (dtypeInfos[t].name == name)
      return DType(t);
  return std::nullopt;
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
