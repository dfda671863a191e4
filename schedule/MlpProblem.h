// Both products of an MLP, as kernels are asked about them.
#pragma once

#include "ir/Activations.h"
#include "schedule/Kernel.h"
#include "schedule/products/LinearProblem.h"

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

struct MlpLaunch; // where a launch of one goes
using MlpKernel = Kernel<MlpProblem, MlpLaunch>;
using MlpCandidate = Candidate<MlpProblem, MlpLaunch>;

} // namespace gpt2c
