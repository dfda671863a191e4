// Products with weights: their operands and epilogues.
#include "templates/linear/Linear.h"

#include "templates/exchange/Exchange.h"
#include "templates/generic/GenericLowerings.h"
#include "templates/linear/Mlp.h"
#include "templates/linear/ends/EpilogueEnd.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// What is added to the sums and rows: the stages of the epilogue and their operands by name.
static void addEpilogue(const LinearGroup &g, ArgList &args, Epilogue &epilogue, Value *bias,
                        Value *residual) {
  size_t operands = llvm::count_if(epilogue, hasOperand);
  auto operandName = [&] { return "e" + std::to_string(operands++); };
  if (bias) {
    epilogue.push_back({EpilogueStage::AddBias, scalarOf(bias)});
    args.in(operandName(), bias);
  }
  if (const Activation a = *activationNamed(g.product->stringAttr("activation"));
      a != Activation::None)
    epilogue.push_back({stageOf(a)});
  if (g.end)
    epilogue.push_back(endOf(g.problem.fused.end).stage(g, args));
  auto add = [&](EpilogueStage::Kind kind, Value *v) {
    epilogue.push_back({kind, scalarOf(v)});
    args.in(operandName(), v);
  };
  if (g.sum && g.sum->bias)
    add(EpilogueStage::AddBias, g.sum->bias);
  if (g.sum && g.sum->residual)
    add(EpilogueStage::AddMatrix, g.sum->residual);
  if (!residual)
    return;
  const std::string name = operandName();
  epilogue.push_back({g.residualInPlace ? EpilogueStage::AddLastRows : EpilogueStage::AddMatrix,
                      scalarOf(residual)});
  if (!g.residualInPlace) {
    args.in(name, residual);
    return;
  }
  const Op &gather = *residual->def();
  args.in(name, gather.operand(ops::GatherLast::X))
      .in(name + "Length", gather.operand(ops::GatherLast::Length))
      .i32(name + "Seq", gather.operand(ops::GatherLast::X)->type.shape[1]);
}

llvm::Expected<LinearCall> linearCall(const LinearGroup &g, ArgList &args, Epilogue first) {
  Op &op = *g.product;
  const bool plain = op.is(OpCode::Linear);
  Value *x = g.norm ? g.norm->operand(ops::LayerNorm::X) : op.operand(ops::Linear::X),
        *w = op.operand(ops::Linear::W), *y = g.last()->result(0),
        *bias =
            op.operand(plain ? unsigned(ops::Linear::Bias) : unsigned(ops::QuantizedLinear::Bias)),
        *residual = residualOf(op);
  LinearCall call;
  call.what = g.what;
  call.epilogue = std::move(first);
  addEpilogue(g, args, call.epilogue, bias, residual);
  const int64_t n = g.problem.n, k = g.problem.k;
  call.m = leading(x);
  call.y = y;
  args.in("x", x).in("w", w).i32("m", call.m).i32("n", n).i32("k", k);
  if (g.problem.fused.end == ProductEndKind::Send)
    args.set("y", StepBuilder::null());
  else
    args.out("y", y);
  auto taken = args.take();
  if (!taken)
    return taken.takeError();
  call.args = std::move(*taken);
  call.bytes = bytesOf(x) + bytesOf(w) + bytesOf(y);
  call.flops = call.m * Dim(2 * n * k);
  for (Value *v : {bias, residual, g.sum ? g.sum->residual : nullptr})
    if (v)
      call.bytes = call.bytes + bytesOf(v);
  return call;
}

llvm::Error launch(StepBuilder &b, const LinearGroup &g, LinearCall &call) {
  b.setChoice(g.choice);
  LinearLaunch launch{b, *g.product, call, g.problem, g.norm, g.sum ? &*g.sum : nullptr};
  return g.taken.kernel->emit(launch, g.taken.config);
}

llvm::Error emitLinear(StepBuilder &b, const LinearGroup &g) {
  if (g.int8)
    return emitInt8(b, g);
  ArgList args(b);
  auto call = linearCall(g, args);
  if (!call)
    return call.takeError();
  if (llvm::Error e = launch(b, g, *call))
    return e;
  return g.sum && g.sum->received ? emitAllReduce(b, *g.sum) : llvm::Error::success();
}

llvm::Error emitMlp(StepBuilder &b, const MlpGroup &g) {
  MlpLaunch launch{b, *g.output, *g.hidden, g.problem, g.ahead};
  return g.taken.kernel->emit(launch, g.taken.config);
}

} // namespace gpt2c
