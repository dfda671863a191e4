// Both products of an MLP in one launch.
#include "schedule/FunctionScheduler.h"

namespace gpt2c {

MlpProblem mlpProblem(const Op &hidden, const MlpSite &mlp, const ProductSite &site) {
  using enum ops::Linear::Operand;
  const Op &output = *mlp.output;
  const Value *bias1 = hidden.operand(Bias), *bias2 = output.operand(Bias),
              *residual = output.operand(Residual);
  MlpProblem p{.hidden = site.own, .output = *mlp.problem};
  p.activation = *activationNamed(hidden.stringAttr("activation"));
  p.biases = isConstant(bias1) && isConstant(bias2) && bias1->type.dtype == bias2->type.dtype;
  if (p.biases)
    p.biasType = scalarOf(bias1);
  p.residual = !hidden.operand(Residual) && residual && residual->type.dtype == DType::F16 &&
               output.stringAttr("activation") == "none";
  p.norm = site.norm && site.normed.plainNorm;
  if (const Op *attention = stateAttention(output, false))
    std::tie(p.heads, p.headDim) = headsOf(*attention);
  return p;
}

bool FunctionScheduler::mlp(Op &hidden, const MlpSite &mlp, const ProductSite &site,
                            std::vector<NearMiss> &misses) {
  Op *output = mlp.output;
  MlpProblem p = mlpProblem(hidden, mlp, site);
  p.residual = p.residual && !isReadInPlace(output->operand(ops::Linear::Residual));
  const std::vector<MlpCandidate> list = candidatesOf(kernels_.mlp, p, p);
  if (list.empty()) {
    for (const MlpKernel *k : kernels_.mlp) {
      const std::string refusal = k->refusal(p);
      misses.push_back(
          {"mlp", (k->name() + ": " + (refusal.empty() ? k->slower(p) : refusal)).str()});
    }
    return false;
  }
  setFused(hidden);
  set(*output, {MlpGroup{&hidden, output, p, list.front(), stateAttention(*output, true)}});
  return true;
}

} // namespace gpt2c
