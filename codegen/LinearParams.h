// Parameters that the kernels of products share, and the template arguments that pass them on.
#pragma once

#include "codegen/KernelWriter.h"

namespace gpt2c {

/// x, W and y of a product and their rows.
inline void operandParams(KernelWriter &w, Scalar x, Scalar weights, Scalar y) {
  w.constPointer(x, "x");
  w.constPointer(weights, "w");
  w.pointer(y, "y");
  w.params("int", {"m", "n"});
}

/// Whether the kernel computes a norm.
inline bool normParams(KernelWriter &w, FusedNorm norm, Scalar p) {
  if (norm == FusedNorm::None)
    return false;
  w.constPointer(p, "gain");
  w.constPointer(p, "shift");
  w.param("float", "epsilon");
  return true;
}
inline const char *normArguments(bool norm) {
  return norm ? "gain, shift, epsilon" : "nullptr, nullptr, 0.0f";
}

/// The same for a norm that is taken out of the sums.
inline bool normSumParams(KernelWriter &w, FusedNorm norm, Scalar p) {
  if (norm == FusedNorm::None)
    return false;
  w.constPointer(p, "gain");
  w.params("const float *", {"rowSums", "shiftSums"});
  w.param("float", "epsilon");
  return true;
}
inline const char *normSumArguments(bool norm) {
  return norm ? "gain, rowSums, shiftSums, epsilon" : "nullptr, nullptr, nullptr, 0.0f";
}

} // namespace gpt2c
