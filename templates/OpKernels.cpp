#include "templates/OpKernels.h"

#include "schedule/Kernel.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

llvm::ArrayRef<OpKernelInfo> opKernels() {
  using enum DType;
  static const OpKernelInfo infos[] = {
#define OP_KERNEL(Name, name, summary, ...) {name, summary, {__VA_ARGS__}},
#include "templates/OpKernels.def"
  };
  return infos;
}

const OpKernelInfo &infoOf(OpKernel k) { return opKernels()[size_t(k)]; }

static bool isListed(DType t) { return isFloat(t) || isQuantised(t); }

std::string refusal(OpKernel k, const Op &op) {
  Abilities<DType> wants;
  auto add = [&](const Value *v) {
    if (v && isListed(v->type.dtype))
      wants.add(v->type.dtype);
  };
  llvm::for_each(op.operands(), add);
  llvm::for_each(op.results(), add);
  return (wants - infoOf(k).types).names();
}

llvm::Expected<std::string> explainOpKernel(llvm::StringRef text) {
  auto [name, words] = text.split(' ');
  const auto *it = llvm::find_if(opKernels(), [&](const auto &k) { return k.name == name; });
  Abilities<DType> wants;
  llvm::SmallVector<llvm::StringRef> types;
  words.split(types, ' ', -1, false);
  for (llvm::StringRef word : types) {
    const auto type = parseDType(word);
    if (!type || !isListed(*type))
      return unknownWord(word, "what " + name.str() + " takes", (name + " f16 i8").str());
    wants.add(*type);
  }
  const std::string missing = (wants - it->types).names();
  return (name + ": " + (missing.empty() ? "taken" : "refuses: " + missing) + "\n").str();
}

} // namespace gpt2c
