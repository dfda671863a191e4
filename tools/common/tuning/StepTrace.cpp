#include "tools/common/tuning/StepTrace.h"

#include "cpu/Convert.h"
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "ir/ResultNumber.h"
#include "runtime/device/FunctionCall.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/plan/KvLayout.h"
#include "tools/common/RuntimeError.h"
#include "verify/PlanRunner.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace gpt2c {

namespace {

/// An argument of @forward without a KV state, by its name.
llvm::Expected<Tensor> forwardArgument(const Value &a, const TraceCall &call) {
  const int64_t batch = call.batch(), tokens = call.tokens();
  Tensor out = Tensor::zeros(DType::I32, {batch, tokens});
  int32_t *to = out.data<int32_t>();
  if (a.name == "ids")
    for (int64_t b = 0; b < batch; ++b)
      llvm::copy(call.texts[b], to + b * tokens);
  else if (a.name == "key_mask")
    std::fill_n(to, batch * tokens, 1);
  else if (a.name == "position_ids")
    for (int64_t i = 0; i < batch * tokens; ++i)
      to[i] = int32_t(i % tokens);
  else if (a.name != rt::tokenTypesName)
    return makeError(ExitCode::Unsupported, "@forward takes '" + a.name +
                                                "', and what to give for it is not known: only "
                                                "plans that take tokens alone can be looked into");
  return out.cast(a.type.dtype);
}

llvm::Expected<std::vector<Tensor>> forwardArguments(const Function &f, const TraceCall &call) {
  std::vector<Tensor> out;
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    auto value = forwardArgument(*f.argument(i), call);
    if (!value)
      return value.takeError();
    out.push_back(std::move(*value));
  }
  return out;
}

/// All tokens of each text but the last, and the last ones.
std::pair<std::vector<TokenIds>, std::vector<TokenIds>> beforeLast(const TraceCall &call) {
  std::vector<TokenIds> before, last;
  for (const TokenIds &text : call.texts) {
    before.emplace_back(text.begin(), text.end() - 1);
    last.push_back({text.back()});
  }
  return {std::move(before), std::move(last)};
}

/// What collects values. Errors of the tracing itself are kept in it.
class Collector {
public:
  Collector(const Function &function, Trace &trace) : function_(function), trace_(trace) {}

  rt::Status operator()(size_t step, int number, const rt::HostTensor &tensor) {
    const bool output = number < 0;
    if (output && size_t(-1 - number) >= function_.returned().size())
      return unknown(number);
    const Value *v =
        output ? function_.returned()[size_t(-1 - number)] : resultAt(function_, number);
    if (!v || v->type.rank() != tensor.shape.size())
      return unknown(number);
    if (v->def()) // an argument may be handed on
      trace_.values.push_back({step, v, toTensor(tensor)});
    return {};
  }

private:
  rt::Status unknown(int number) const {
    return {rt::Code::Corrupt, "the plan's kernels and its IR do not fit: @" + function_.name() +
                                   " has no value " + std::to_string(number) + " of that shape"};
  }
  const Function &function_;
  Trace &trace_;
};

rt::Status traceForward(rt::Session &session, const Function &f, const TraceCall &call,
                        Collector &collect) {
  rt::Backend &backend = session.backend();
  auto arguments = forwardArguments(f, call);
  if (!arguments)
    return {rt::Code::Unsupported, llvm::toString(arguments.takeError())};
  std::vector<rt::HostTensor> inputs;
  std::vector<std::vector<int64_t>> shapes;
  for (const Tensor &t : *arguments) {
    inputs.push_back(toHost(t));
    shapes.push_back(inputs.back().shape);
  }
  rt::Result<rt::FunctionCall> chosen =
      rt::chooseFunction(backend.functions(), nullptr, "forward", shapes);
  if (!chosen)
    return chosen.status();
  return backend.traceRun(*chosen->function, inputs, chosen->symbols, std::ref(collect));
}

} // namespace

/// What the call runs of the plan's IR: the body of the first version that holds it.
static const Function *bodyOf(rt::Session &session, const Module &module, const TraceCall &call) {
  for (const auto &version : session.backend().functions()) {
    const bool fits = llvm::all_of(version->symbols, [&](const auto &symbol) {
      const int64_t size = symbol->name == "batch" ? call.batch()
                           : symbol->name == "seq" ? call.tokens()
                                                   : symbol->min;
      return size <= symbol->max;
    });
    if (version->name == call.function && fits && !version->body.empty())
      return module.function(version->body);
    if (version->name == call.function && fits)
      break;
  }
  return module.function(call.function);
}

llvm::Expected<Trace> traceCall(rt::Session &session, const Module &module, const TraceCall &call) {
  const Function *f = bodyOf(session, module, call);
  const bool whole = call.function == "forward";
  if (!f || (whole ? f->argument("kv") != nullptr : !session.hasKvState()))
    return makeError(ExitCode::Usage,
                     "--function=" + call.function + ": " +
                         (session.hasKvState() ? "the plan has a KV state: prefill or decode"
                                               : "the plan has no KV state here: forward"));
  Trace out;
  Collector collect(*f, out);
  if (whole) {
    if (rt::Status s = traceForward(session, *f, call, collect); !s.ok())
      return toError(s);
    return out;
  }
  auto [before, last] = beforeLast(call);
  const bool decode = call.function == "decode";
  if (decode && call.tokens() < 2)
    return makeError(ExitCode::Usage, "--function=decode takes at least two tokens");
  // It also checks what the device would trust.
  auto prefilled = session.prefill(decode ? before : call.texts);
  if (!prefilled)
    return toError(prefilled.status());
  std::vector<int32_t> past(call.texts.size(), decode ? int32_t(call.tokens() - 1) : 0);
  auto function =
      session.backend().trace(call.function, decode ? last : call.texts, past, std::ref(collect));
  if (!function)
    return toError(function.status());
  for (const auto &step : (*function)->steps)
    out.steps.push_back(step->op);
  return out;
}

/// Keys and values of the first `tokens` tokens as the session's device has them, into `kv`.
static llvm::Error copyState(rt::Session &session, const TraceCall &call, Tensor &kv) {
  const plan::KvPlanT &plan = *session.plan().meta().kv;
  const int64_t tokens = call.tokens() - 1;
  if (rt::isQuantised(plan) || !isFloat(kv.dtype()))
    return makeError(
        ExitCode::Unsupported,
        "decode over a KV state in int8 or fp8 cannot be looked into; --function=prefill can");
  if (kv.dim(0) != plan.layers || kv.dim(3) != plan.heads || kv.dim(5) != plan.head_dim ||
      kv.dim(4) < tokens)
    return makeError(ExitCode::Usage, "the KV states of the two plans have other sizes");
  const int64_t row = kv.dim(5) * byteSize(kv.dtype());
  for (int layer = 0; layer < plan.layers; ++layer)
    for (plan::KvPart part : {plan::KvPart::Key, plan::KvPart::Value}) {
      auto rows = session.backend().readKv(layer, part, call.batch(), tokens);
      if (!rows)
        return toError(rows.status());
      Tensor from = toTensor(*rows).cast(kv.dtype());
      for (int64_t b = 0; b < call.batch(); ++b)
        for (int64_t h = 0; h < kv.dim(3); ++h) {
          const int64_t state =
              (((layer * 2 + (part == plan::KvPart::Value)) * kv.dim(2) + b) * kv.dim(3) + h) *
              kv.dim(4);
          std::memcpy(static_cast<char *>(kv.raw()) + state * row,
                      static_cast<const char *>(std::as_const(from).raw()) +
                          (b * kv.dim(3) + h) * tokens * row,
                      size_t(tokens * row));
        }
    }
  return llvm::Error::success();
}

/// Arguments of the reference, its state as its own @prefill leaves it, or as the plan's is.
static llvm::Expected<std::vector<Tensor>> arguments(rt::Session &session, const Module &module,
                                                     const TraceCall &call, bool stateOfPlan) {
  const Function &f = *module.function(call.function);
  HostRunner runner(module, true);
  if (call.function == "forward")
    return forwardArguments(f, call);
  if (call.function == "prefill")
    return runner.stepArguments("prefill", call.texts, std::vector<int32_t>(call.texts.size(), 0));
  auto [before, last] = beforeLast(call);
  if (!stateOfPlan)
    if (auto step = runner.prefill(before, std::vector<int32_t>(call.texts.size(), 0)); !step)
      return step.takeError();
  auto out = runner.stepArguments(
      "decode", last, std::vector<int32_t>(call.texts.size(), int32_t(call.tokens() - 1)));
  if (out && stateOfPlan)
    if (llvm::Error e = copyState(session, call, (*out)[f.argument("kv")->index()]))
      return e;
  return out;
}

llvm::Expected<StepReference> planReference(rt::Session &session, const Module &module,
                                            const TraceCall &call, bool other) {
  StepReference out;
  out.function = other ? module.function(call.function) : bodyOf(session, module, call);
  if (!out.function || (call.function == "forward" && out.function->argument("kv")))
    return makeError(ExitCode::Usage,
                     "the other plan has no @" + call.function +
                         (out.function ? " without a KV state, as this one has" : std::string()));
  out.options.float64 = true;
  out.own = !other;
  out.rows = {call.batch(), call.function == "decode" ? 1 : call.tokens(), 0};
  auto own = arguments(session, module, call, false);
  if (!own)
    return own.takeError();
  auto onPlan = arguments(session, module, call, true);
  if (!onPlan)
    return onPlan.takeError();
  out.arguments = std::move(*own);
  out.onPlan = std::move(*onPlan);
  return out;
}

llvm::Expected<StepReference> graphReference(const ExportedGraph &graph, const TraceCall &call) {
  if (call.function == "decode")
    return makeError(ExitCode::Usage, "--function=decode: the exported graph has no step of one "
                                      "token; --function=prefill compares with it");
  StepReference out;
  out.function = &graph.function();
  out.options = graph.execution(Arithmetic::Usual);
  out.rows = {call.batch(), call.tokens(), 0};
  GraphCall whole;
  whole.texts = call.texts;
  auto arguments = graph.arguments(whole);
  if (!arguments)
    return arguments.takeError();
  out.arguments = out.onPlan = std::move(*arguments);
  return out;
}

} // namespace gpt2c
