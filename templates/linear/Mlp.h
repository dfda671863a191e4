// Both products of an MLP, as kernels are asked about them, and the choice among those kernels.
#pragma once

#include "ir/Activations.h"
#include "templates/linear/Fusion.h"

namespace gpt2c {

/// What both products of an MLP may want, by schedule/Abilities.def.
enum class MlpAbility : uint8_t {
#define MLP_ABILITY(Name, text) Name,
#include "schedule/Abilities.def"
};
using MlpAbilities = Abilities<MlpAbility>;
constexpr llvm::StringRef nameOf(MlpAbility a) {
  constexpr llvm::StringLiteral names[] = {
#define MLP_ABILITY(Name, text) text,
#include "schedule/Abilities.def"
  };
  return names[size_t(a)];
}

/// y = residual + b2 + activation(b1 + norm(x) W1^T) W2^T.
struct MlpProblem {
  LinearProblem hidden, output;
  Activation activation = Activation::GeluTanh;
  bool norm = true;     ///< before the first product, without gain and shift
  bool biases = true;   ///< both, constant and of one type
  bool residual = true; ///< in fp16, and nothing else is added
  Scalar biasType = Scalar::F16;
  int heads = 0, headDim = 0; ///< of attention whose state the kernel may bring into L2; 0: none

  using Ability = MlpAbility;
  MlpAbilities wants() const;
};
inline const Target &targetOf(const MlpProblem &p) { return p.hidden.target; }

/// What a kernel's record launches its kernel with.
struct MlpLaunch {
  StepBuilder &b;
  Op &output, &hidden;
  const MlpProblem &p;
};

using MlpKernel = Kernel<MlpProblem, MlpLaunch>;
using MlpCandidate = Candidate<MlpProblem, MlpLaunch>;
template <typename Config> using MlpKernelOf = KernelOf<MlpProblem, MlpLaunch, Config>;

#define MLP_KERNEL(name) const MlpKernel &name##Kernel();
#include "templates/linear/MlpKernels.def"
#undef MLP_KERNEL

llvm::ArrayRef<const MlpKernel *> mlpKernels();
/// Every kernel and configuration that may compute it, the choice of the cost model first. None: it
/// has two launches.
std::vector<MlpCandidate> mlpCandidates(const MlpProblem &p);

/// Attention over a state in fp16: the first behind `op`, or any of the function.
const Op *stateAttention(const Op &op, bool behind);
/// Heads of attention, and elements of each.
std::pair<int, int> headsOf(const Op &attention);

/// The first product of an MLP whose second one is `output`, where one launch computes both and the
/// norm before them; null: none does.
Op *mlpHidden(StepBuilder &b, const Op &output);
/// Whether `op` is such a first product.
bool isMlpHidden(StepBuilder &b, const Op &op);
llvm::Error launchMlp(StepBuilder &b, Op &output, Op &hidden);

/// Every kernel, or why it refuses or is not taken.
std::string explainMlp(const MlpProblem &p);
/// An MLP as explain takes it: "rows=32 d=768 hidden=3072 f16 gelu_tanh".
llvm::Expected<MlpProblem> parseMlpProblem(llvm::StringRef text, const Target &target);

} // namespace gpt2c
