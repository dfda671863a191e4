#include "templates/linear/Mlp.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

llvm::ArrayRef<const MlpKernel *> mlpKernels() {
  static const MlpKernel *const kernels[] = {
#define MLP_KERNEL(name) &name##Kernel(),
#include "templates/linear/MlpKernels.def"
#undef MLP_KERNEL
  };
  return kernels;
}

std::vector<MlpCandidate> mlpCandidates(const MlpProblem &p) {
  return candidatesOf(mlpKernels(), p, p);
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
