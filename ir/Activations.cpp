#include "ir/Activations.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

namespace {

constexpr llvm::StringLiteral forHalves(Activation a, llvm::StringLiteral function) {
#define HALVES(Name, faster, Of)                                                                   \
  if (a == Activation::Of)                                                                         \
    return #faster;
#include "ir/Activations.def"
  return function;
}

constexpr ActivationInfo infos[] = {
    {"none", "", "", true},
#define ACTIVATION(Name, inIr, function, bounded, formula)                                         \
  {inIr, #function, forHalves(Activation::Name, #function), bounded},
#include "ir/Activations.def"
};

} // namespace

const ActivationInfo &infoOf(Activation a) { return infos[size_t(a)]; }

std::optional<Activation> activationNamed(llvm::StringRef name) {
  const auto *it = llvm::find_if(infos, [&](const ActivationInfo &i) { return i.name == name; });
  return it == std::end(infos) ? std::nullopt : std::optional(Activation(it - infos));
}

llvm::ArrayRef<OpCode> activationOps() {
  static const auto ops = [] {
    llvm::SmallVector<OpCode> list;
    for (const OpInfo *op : allOps())
      if (op->code == OpCode::Gelu || activationNamed(op->mnemonic))
        list.push_back(op->code);
    return list;
  }();
  return ops;
}

std::optional<Activation> activationOf(const Op &op) {
  if (op.is(OpCode::Gelu))
    return op.stringAttr("approximate") == "tanh" ? Activation::GeluTanh : Activation::GeluErf;
  return activationNamed(op.info().mnemonic);
}

} // namespace gpt2c
