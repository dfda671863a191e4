// The type of a value: element type and shape. Every value is a ranked tensor; a scalar has rank 0.
#pragma once

#include "ir/DType.h"
#include "ir/Dim.h"

namespace gpt2c {

struct Type {
  DType dtype = DType::F32;
  Shape shape;

  unsigned rank() const { return shape.size(); }
  bool operator==(const Type &) const = default;
  /// True when every dimension is a constant.
  bool isStatic() const;
  /// "f32[batch, seq, 768]"
  std::string str() const;
};

llvm::raw_ostream &operator<<(llvm::raw_ostream &os, const Type &t);

/// Bytes of a value of that type.
Dim storedBytes(const Type &t);

} // namespace gpt2c
