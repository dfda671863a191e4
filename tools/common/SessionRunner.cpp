#include "tools/common/SessionRunner.h"

#include "cpu/Convert.h"
#include "tools/common/RuntimeError.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

bool SessionRunner::has(llvm::StringRef function) const {
  return llvm::any_of(session_.backend().functions(), [&](auto &f) { return f->name == function; });
}

llvm::Expected<std::vector<Tensor>> SessionRunner::forward(const ExportedGraph &, const GraphCall &,
                                                           llvm::ArrayRef<Tensor> arguments) {
  std::vector<rt::HostTensor> inputs;
  for (const Tensor &t : arguments)
    inputs.push_back(toHost(t));
  auto results = session_.forward(inputs);
  if (!results)
    return toError(results.status());
  std::vector<Tensor> out;
  for (const rt::HostTensor &t : *results)
    out.push_back(toTensor(t));
  return out;
}

static llvm::Expected<StepResult> toStep(rt::Result<rt::StepOutput> output, size_t batch) {
  if (!output)
    return toError(output.status());
  StepResult out;
  out.next = output->next;
  out.logits =
      Tensor::of<float>(output->logits, {int64_t(batch), int64_t(output->logits.size() / batch)});
  return out;
}

llvm::Expected<StepResult> SessionRunner::prefill(llvm::ArrayRef<TokenIds> texts,
                                                  llvm::ArrayRef<int32_t> past) {
  return toStep(session_.prefill(texts, past, true), texts.size());
}

llvm::Expected<StepResult> SessionRunner::decode(llvm::ArrayRef<int32_t> tokens,
                                                 llvm::ArrayRef<int32_t>) {
  return toStep(session_.step(tokens, true), tokens.size());
}

} // namespace gpt2c
