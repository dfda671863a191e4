#include "tools/common/verification/TextForward.h"

#include "cpu/Convert.h"
#include "ir/Error.h"
#include "ir/Executor.h"
#include "ir/FunctionNames.h"
#include "tools/common/RuntimeError.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

int64_t contextOf(const Function &function) {
  const Value *kv = function.argument("kv");
  return kv && kv->type.rank() == 6 ? kv->type.shape[4].constant().value_or(0) : 0;
}

int64_t contextOf(const Module &module) {
  for (auto &f : module.functions)
    if (int64_t context = contextOf(*f))
      return context;
  return 0;
}

namespace {

class HostForward final : public TextForward {
public:
  HostForward(Module module, int64_t batch)
      : module_(std::move(module)), function_(*module_.functions.front()), executor_(function_),
        batch_(batch) {}

  llvm::Expected<std::vector<Tensor>> run(std::span<const rt::Tokens> sequences) override;
  llvm::Expected<rt::HostTensor> logits(std::span<const rt::Tokens> sequences) override;

private:
  llvm::Expected<Tensor> argument(const Value &a, std::span<const rt::Tokens> sequences);

  Module module_;
  const Function &function_;
  Executor executor_;
  int64_t batch_;
  Tensor kv_;
};

class PlanForward final : public TextForward {
public:
  explicit PlanForward(std::unique_ptr<rt::Session> session) : session_(std::move(session)) {}

  llvm::Expected<std::vector<Tensor>> run(std::span<const rt::Tokens> sequences) override {
    auto results = session_->results(sequences);
    if (!results)
      return toError(results.status());
    std::vector<Tensor> out;
    for (const rt::HostTensor &t : *results)
      out.push_back(t.shape.empty() && t.data.empty() ? Tensor() : toTensor(t));
    return out;
  }
  llvm::Expected<rt::HostTensor> logits(std::span<const rt::Tokens> sequences) override {
    auto logits = session_->logits(sequences);
    if (!logits)
      return toError(logits.status());
    return logits.take();
  }

private:
  std::unique_ptr<rt::Session> session_;
};

} // namespace

/// A tensor of what came before a text, which is nothing; none where `a` would have elements.
static std::optional<Tensor> emptyPast(const Value &a, int64_t batch) {
  llvm::SmallVector<int64_t> shape;
  for (const Dim &d : a.type.shape)
    shape.push_back(d.constant().value_or(d.asSymbol() && shape.empty() ? batch : 0));
  if (!llvm::is_contained(shape, 0))
    return std::nullopt;
  return Tensor::zeros(a.type.dtype, shape);
}

llvm::Expected<Tensor> HostForward::argument(const Value &a,
                                             std::span<const rt::Tokens> sequences) {
  int64_t batch = int64_t(sequences.size()), seq = int64_t(sequences[0].size());
  if (a.name == "kv") {
    if (!kv_.valid()) {
      llvm::SmallVector<int64_t> shape;
      for (const Dim &d : a.type.shape)
        shape.push_back(d.constant().value_or(batch_));
      kv_ = Tensor::zeros(a.type.dtype, shape);
    }
    return kv_;
  }
  if (a.name == "past")
    return Tensor::zeros(a.type.dtype, {batch});
  if (isFloat(a.type.dtype))
    if (auto none = emptyPast(a, batch))
      return std::move(*none);
  Tensor out(DType::I32, {batch, seq});
  int32_t *to = out.data<int32_t>();
  for (int64_t i = 0; i < batch * seq; ++i)
    if (a.name == "ids")
      to[i] = sequences[i / seq][i % seq];
    else if (a.name == "position_ids")
      to[i] = int32_t(i % seq);
    else if (a.name == "key_mask")
      to[i] = 1;
    else if (a.name == "token_type_ids")
      to[i] = 0;
    else
      return makeError(ExitCode::Unsupported, "@" + function_.name() +
                                                  " cannot run a text: what "
                                                  "to give for its input '" +
                                                  a.name + "' is not known");
  return out.cast(a.type.dtype);
}

llvm::Expected<std::vector<Tensor>> HostForward::run(std::span<const rt::Tokens> sequences) {
  std::vector<Tensor> arguments;
  for (unsigned i = 0; i < function_.numArguments(); ++i) {
    auto t = argument(*function_.argument(i), sequences);
    if (!t)
      return t.takeError();
    arguments.push_back(std::move(*t));
  }
  return executor_.run(arguments);
}

llvm::Expected<rt::HostTensor> HostForward::logits(std::span<const rt::Tokens> sequences) {
  auto it = llvm::find(function_.resultNames, "logits");
  if (it == function_.resultNames.end())
    return makeError(ExitCode::Unsupported, "@" + function_.name() + " has no logits");
  auto results = run(sequences);
  if (!results)
    return results.takeError();
  const Tensor &logits = (*results)[it - function_.resultNames.begin()];
  if (logits.rank() != 3 || logits.dim(1) != int64_t(sequences[0].size()))
    return makeError(ExitCode::Unsupported, "the logits of @" + function_.name() +
                                                " are those of the last token, not one row for "
                                                "each token");
  return toHost(logits.cast(DType::F32));
}

llvm::Expected<std::unique_ptr<TextForward>> openHostForward(Module module, int64_t batch) {
  return std::make_unique<HostForward>(std::move(module), batch);
}

llvm::Expected<std::unique_ptr<TextForward>>
openPlanForward(const Module &module, int64_t batch, CodegenOptions options, OpenBackend open) {
  options.maxBatch = batch;
  options.kvBudget = 0;
  options.decode = DecodeMode::Graph; // there is no @decode
  auto session = openGenerated(module, options, open);
  if (!session)
    return session.takeError();
  return std::make_unique<PlanForward>(std::move(*session));
}

llvm::Expected<Module> lowerForward(const Module &module, const Function &forward,
                                    const PassOptions &options, const PipelineOptions &pipeline) {
  Module out;
  out.name = module.name;
  out.properties = module.properties;
  out.functions.push_back(forward.clone(functions::forward));
  std::vector<Remark> remarks;
  PassContext ctx(out, options, remarks);
  PipelineOptions rest;
  rest.disabled = pipeline.disabled;
  rest.startAt = "quantised";
  if (llvm::Error e = runPipeline(ctx, rest))
    return e;
  return out;
}

} // namespace gpt2c
