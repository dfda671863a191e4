// Kernels without rivals: their names, and the element types that they take.
#pragma once

#include "ir/Op.h"
#include "schedule/Abilities.h"

namespace gpt2c {

inline llvm::StringRef nameOf(DType t) { return dtypeName(t); }

enum class OpKernel : uint8_t {
#define OP_KERNEL(Name, ...) Name,
#include "templates/OpKernels.def"
};

struct OpKernelInfo {
  llvm::StringLiteral name, summary;
  Abilities<DType> types; ///< floating-point ones, and int8
};
const OpKernelInfo &infoOf(OpKernel k);
llvm::ArrayRef<OpKernelInfo> opKernels();

/// The element types of an op's operands and results that a kernel does not list; the types of
/// indices and truth values are no matter of it.
std::string refusal(OpKernel k, const Op &op);
inline bool takes(OpKernel k, const Op &op) { return refusal(k, op).empty(); }

/// What a kernel of that name says of types: "layer_norm f16 i8".
llvm::Expected<std::string> explainOpKernel(llvm::StringRef text);

} // namespace gpt2c
