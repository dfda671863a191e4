#include "ir/Type.h"

#include "ir/DimBounds.h"

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

Dim storedBytes(const Type &t) {
  const Dim count = elementCount(t.shape);
  if (const auto n = count.constant())
    return storedBytes(t.dtype, *n);
  return infoOf(t.dtype).bits < 8 ? Dim::floorDiv(count * Dim(infoOf(t.dtype).bits), 8, {})
                                  : count * Dim(byteSize(t.dtype));
}

} // namespace gpt2c
