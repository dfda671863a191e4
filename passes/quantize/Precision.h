// The precisions a plan can have, by the names that flags, remarks and plans give them.
#pragma once

#include "ir/Format.h"

#include "llvm/ADT/StringRef.h"

#include <optional>

namespace gpt2c {

/// "fp32", "fp16" or "bf16": the element type of weights, activations and KV state.
inline llvm::StringRef precisionName(DType t) {
  return t == DType::BF16 ? "bf16" : t == DType::F16 ? "fp16" : "fp32";
}
inline std::optional<DType> precisionOf(llvm::StringRef name) {
  for (DType t : {DType::F32, DType::F16, DType::BF16})
    if (name == precisionName(t))
      return t;
  return std::nullopt;
}

/// The largest relative error of one rounding: 2^-p for p significant bits.
inline double unitRoundoff(DType t) {
  return t == DType::BF16  ? infoOf(OperandFormat::BF16).bound
         : t == DType::F16 ? infoOf(OperandFormat::F16).bound
         : t == DType::F64 ? 0x1p-53
                           : infoOf(OperandFormat::F32).bound;
}

} // namespace gpt2c
