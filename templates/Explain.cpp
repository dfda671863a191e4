#include "templates/Explain.h"

#include "ir/Error.h"
#include "templates/OpKernels.h"
#include "templates/attention/Kernels.h"
#include "templates/attention/pages/AttentionPages.h"
#include "templates/linear/Kernels.h"
#include "templates/linear/Mlp.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

llvm::Expected<std::string> explainKernels(llvm::StringRef problem, const Target &target) {
  auto explained = [](auto parsed, auto explain) -> llvm::Expected<std::string> {
    if (!parsed)
      return parsed.takeError();
    return explain(*parsed);
  };
  const llvm::StringRef family = problem.ltrim().split(' ').first;
  if (family == "attention")
    return explained(parseAttentionProblem(problem, target), explainAttention);
  if (llvm::any_of(opKernels(), [&](const auto &k) { return k.name == family; }))
    return explainOpKernel(problem.ltrim());
  if (family == "pages")
    return explained(parsePagedProblem(problem, target), explainPaged);
  if (family == "mlp")
    return explained(parseMlpProblem(problem, target), explainMlp);
  if (family == "linear" || family.contains('=')) // what is said without a kind
    return explained(parseLinearProblem(problem, target), explainLinear);
  std::string kinds = "linear, attention, pages, mlp";
  for (const auto &k : opKernels())
    kinds += ", " + k.name.str();
  return makeError(ExitCode::Usage, "there is no kind '" + family + "'; there are " + kinds);
}

} // namespace gpt2c
