// Floats of half the size as they are stored, for kernels that widen them in registers.
#pragma once

#include "ir/Tensor.h"

namespace gpt2c {

struct Half {
  uint16_t bits;
  operator float() const { return halfToFloat(bits); }
};
struct BFloat {
  uint16_t bits;
  operator float() const { return bfloatToFloat(bits); }
};

} // namespace gpt2c
