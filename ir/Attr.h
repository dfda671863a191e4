// Attributes: compile-time parameters of an op.
#pragma once

#include "ir/DType.h"
#include "ir/Dim.h"

#include <string>
#include <variant>
#include <vector>

namespace gpt2c {

/// Dims serves both lists of integers ([0, 2, 1]) and symbolic shapes ([batch, seq, 64]).
using Dims = std::vector<Dim>;
using Attr = std::variant<bool, int64_t, double, std::string, DType, Dims>;

enum class AttrKind : uint8_t {
  Bool,
  Int,
  Float,
  String,
  DType,
  Dims
}; // order of Attr's alternatives

inline AttrKind kindOf(const Attr &a) { return static_cast<AttrKind>(a.index()); }
llvm::StringRef attrKindName(AttrKind k);

struct NamedAttr {
  llvm::StringRef name; // interned
  Attr value;
};

} // namespace gpt2c
