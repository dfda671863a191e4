#include "templates/linear/Mlp.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace gpt2c {

llvm::ArrayRef<const MlpKernel *> mlpKernels() {
  static const MlpKernel *const kernels[] = {
#define MLP_KERNEL(name) &name##Kernel(),
#include "templates/linear/MlpKernels.def"
#undef MLP_KERNEL
  };
  return kernels;
}

MlpAbilities MlpProblem::wants() const {
  using enum MlpAbility;
  const bool halves = llvm::all_of(std::array{&hidden, &output}, [](const LinearProblem *p) {
    return p->isHalf() && p->y == Scalar::F16;
  });
  return {halves ? F16 : OtherTypes, norm ? Norm : NoNorm, biases ? Biases : NoBiases,
          residual ? Residual : NoResidual, infoOf(activation).bounded ? Bounded : Unbounded};
}

std::vector<MlpCandidate> mlpCandidates(const MlpProblem &p) {
  return candidatesOf(mlpKernels(), p, p);
}

//===-- in a function -----------------------------------------------------------------------===//

const Op *stateAttention(const Op &op, bool behind) {
  using enum ops::AppendAttention::Operand;
  bool counts = !behind;
  for (const auto &other : op.function()->ops()) {
    counts |= other.get() == &op;
    if (counts && other->is(OpCode::AppendAttention) &&
        other->operand(Kv)->type.dtype == DType::F16 && other->operand(Past) &&
        other->operand(Kv)->type.shape[3] == Dim(other->intAttr("num_heads")))
      return other.get();
  }
  return nullptr;
}

std::pair<int, int> headsOf(const Op &attention) {
  const int heads = attention.intAttr("num_heads");
  return {heads, int(lastDim(attention.result(ops::AppendAttention::Y))) / heads};
}

/// None: `output` is not the second of two products with constant weights of which the first has
/// no other use.
static std::optional<MlpProblem> mlpProblem(StepBuilder &b, const Op &output) {
  using enum ops::Linear::Operand;
  const Op *hidden = output.is(OpCode::Linear) ? output.operand(X)->def() : nullptr;
  if (b.pool().batchInvariant() || !hidden || !hidden->is(OpCode::Linear) ||
      hidden->result()->uses().size() != 1 || !isConstant(hidden->operand(W)) ||
      !isConstant(output.operand(W)))
    return std::nullopt;
  const Value *bias1 = hidden->operand(Bias), *bias2 = output.operand(Bias),
              *residual = output.operand(Residual);
  MlpProblem p{.hidden = linearProblem(b, *hidden), .output = linearProblem(b, output)};
  p.activation = *activationNamed(hidden->stringAttr("activation"));
  p.biases = isConstant(bias1) && isConstant(bias2) && bias1->type.dtype == bias2->type.dtype;
  if (p.biases)
    p.biasType = scalarOf(bias1->type.dtype);
  p.residual = !hidden->operand(Residual) && residual && !isReadInPlace(residual) &&
               residual->type.dtype == DType::F16 && output.stringAttr("activation") == "none";
  const Op *norm = fusedNorm(b, *hidden);
  p.norm = norm && norm->is(OpCode::LayerNorm) && isFoldedNorm(*norm);
  if (const Op *attention = stateAttention(output, false))
    std::tie(p.heads, p.headDim) = headsOf(*attention);
  return p;
}

Op *mlpHidden(StepBuilder &b, const Op &output) {
  const auto p = mlpProblem(b, output);
  return p && !mlpCandidates(*p).empty() ? output.operand(ops::Linear::X)->def() : nullptr;
}

bool isMlpHidden(StepBuilder &b, const Op &op) {
  return op.result()->uses().size() == 1 && op.result()->uses()[0].operand == ops::Linear::X &&
         mlpHidden(b, *op.result()->uses()[0].op) == &op;
}

llvm::Error launchMlp(StepBuilder &b, Op &output, Op &hidden) {
  const MlpProblem p = *mlpProblem(b, output);
  const MlpCandidate best = mlpCandidates(p).front();
  MlpLaunch launch{b, output, hidden, p};
  return best.kernel->emit(launch, best.config);
}

//===-- explain -----------------------------------------------------------------------------===//

std::string explainMlp(const MlpProblem &p) {
  const std::vector<MlpCandidate> list = mlpCandidates(p);
  return explainKernels(mlpKernels(), list, p) +
         (list.empty() ? "No kernel computes both products: each has a launch of its own.\n" : "");
}

static llvm::Error unknownMlpWord(llvm::StringRef word) {
  return unknownWord(word, "an MLP", "mlp rows=32 d=768 hidden=3072 f16 gelu_tanh");
}

llvm::Expected<MlpProblem> parseMlpProblem(llvm::StringRef text, const Target &target) {
  int64_t rows = 0, d = 0, wide = 0;
  Scalar type = Scalar::F16;
  Activation activation = Activation::GeluTanh;
  llvm::SmallVector<llvm::StringRef> words;
  text.split(words, ' ', -1, false);
  for (llvm::StringRef word : words) {
    auto [key, value] = word.split('=');
    int64_t number = 0;
    const bool isNumber = !value.empty() && !value.getAsInteger(10, number) && number > 0;
    if (isNumber && (key == "rows" || key == "d" || key == "hidden"))
      (key == "rows" ? rows : key == "d" ? d : wide) = number;
    else if (word == "f16" || word == "f32")
      type = word == "f16" ? Scalar::F16 : Scalar::F32;
    else if (auto named = activationNamed(word))
      activation = *named;
    else if (word != "mlp")
      return unknownMlpWord(word);
  }
  if (rows == 0 || d == 0 || wide == 0)
    return unknownMlpWord(rows == 0 ? "rows=?" : d == 0 ? "d=?" : "hidden=?");
  LinearShape hidden{type, type, type, wide, d, rows}, output{type, type, type, d, wide, rows};
  hidden.target = output.target = target;
  hidden.tf32 = output.tf32 = type == Scalar::F32;
  MlpProblem p{.hidden = hidden, .output = output};
  p.activation = activation;
  return p;
}

} // namespace gpt2c
