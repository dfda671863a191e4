#include "tools/common/verification/SessionRunner.h"

#include "cpu/Convert.h"
#include "runtime/plan/FunctionNames.h"
#include "tools/common/RuntimeError.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

bool SessionRunner::has(llvm::StringRef function) const {
  if (function == rt::functions::extend)
    return session_.backend().pagedState().pageTokens > 0;
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

llvm::Expected<StepResult> SessionRunner::extend(llvm::ArrayRef<RowsOfText> parts, size_t texts) {
  rt::Backend &backend = session_.backend();
  const rt::PagedState state = backend.pagedState();
  const int32_t context = session_.plan().meta().kv->max_context;
  const int32_t columns = (context + state.pageTokens - 1) / state.pageTokens;
  if (texts_ < texts) {
    if (rt::Status s = backend.allocatePages(texts * columns * state.pageBytes); !s.ok())
      return toError(s);
    texts_ = texts;
  }
  std::vector<std::vector<int32_t>> pages;
  std::vector<rt::Segment> segments;
  for (const RowsOfText &part : parts) {
    std::vector<int32_t> &own = pages.emplace_back();
    for (int32_t i = 0; i < columns; ++i)
      own.push_back(int32_t(i * texts_ + part.text));
    segments.push_back(
        {.tokens = part.tokens, .past = part.past, .pages = own, .wantLogits = true});
  }
  if (rt::Status s = backend.extend(segments); !s.ok())
    return toError(s);
  auto output = backend.extended();
  if (!output)
    return toError(output.status());
  return toStep(rt::StepOutput{output->next, output->logits}, parts.size());
}

} // namespace gpt2c
