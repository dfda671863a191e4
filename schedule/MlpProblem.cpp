#include "schedule/MlpProblem.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace gpt2c {

MlpAbilities MlpProblem::wants() const {
  using enum MlpAbility;
  const bool halves = llvm::all_of(std::array{&hidden, &output}, [](const LinearProblem *p) {
    return p->isHalf() && p->y == Scalar::F16;
  });
  return {halves ? F16 : OtherTypes, norm ? Norm : NoNorm, biases ? Biases : NoBiases,
          residual ? Residual : NoResidual, infoOf(activation).bounded ? Bounded : Unbounded};
}

} // namespace gpt2c
