// Norms of rows.
#pragma once

#include "ir/Op.h"

#include "llvm/ADT/StringRef.h"

namespace gpt2c {

/// One of them, or none. On the device: templates/device/norm_kind.cuh.
enum class NormKind : unsigned char { None, Layer, Rms };

constexpr llvm::StringRef nameOf(NormKind norm) {
  return norm == NormKind::Layer ? "Layer" : norm == NormKind::Rms ? "Rms" : "None";
}

/// The norm that an op is.
inline NormKind normOf(const Op &op) {
  return op.is(OpCode::LayerNorm) ? NormKind::Layer
         : op.is(OpCode::RmsNorm) ? NormKind::Rms
                                  : NormKind::None;
}
inline bool isNorm(const Op &op) { return normOf(op) != NormKind::None; }

} // namespace gpt2c
