#include "codegen/Lowering.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

bool hasKernelTypes(const Op &op) {
  auto known = [](const Value *v) {
    return !v || !isFloat(v->type.dtype) || v->type.dtype == DType::F32 ||
           v->type.dtype == DType::F16 || v->type.dtype == DType::BF16;
  };
  return llvm::all_of(op.operands(), known) && llvm::all_of(op.results(), known);
}

} // namespace gpt2c
