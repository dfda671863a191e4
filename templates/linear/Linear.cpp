// Products with weights: their operands and epilogues.
#include "templates/linear/Linear.h"

#include "templates/generic/GenericLowerings.h"
#include "templates/linear/Mlp.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// The rotation that the epilogue ends with.
static EpilogueStage rotation(const LinearGroup &g, ArgList &args) {
  using enum ops::Rope::Operand;
  const Op &rope = *g.rope;
  Value *cos = rope.operand(Cos), *positions = rope.operand(Positions);
  const Shape &shape = rope.operand(X)->type.shape;
  const int headDim = int(rope.intAttr("head_dim")), heads = int(rope.intAttr("heads"));
  args.in("cosines", cos)
      .in("sines", rope.operand(Sin))
      .in("positions", positions)
      .i32("places", cos->type.shape[0])
      .i32("rowsOfSequence", shape[1]);
  const bool first = positions->type.rank() == 1; // of each sequence's first token
  const bool shared = !first && positions->type.shape[0] == Dim(1) && shape[0] != Dim(1);
  EpilogueRotation r{.stored = scalarOf(rope.result()),
                     .table = scalarOf(cos),
                     .position = positions->type.dtype,
                     .headDim = headDim,
                     .pairs = int(*cos->type.shape[1].constant()),
                     .columns = heads ? heads * headDim : int(g.problem.n),
                     .of = first    ? EpilogueRotation::OfFirst
                           : shared ? EpilogueRotation::OfSequence
                                    : EpilogueRotation::OfRows};
  return {.kind = EpilogueStage::Rotate, .rotation = r};
}

/// What is added to the sums and rows: the stages of the epilogue and their operands by name.
static void addEpilogue(const LinearGroup &g, ArgList &args, Epilogue &epilogue, Value *bias,
                        Value *residual) {
  size_t operands = llvm::count_if(epilogue, hasOperand);
  auto operandName = [&] { return "e" + std::to_string(operands++); };
  if (bias) {
    epilogue.push_back({EpilogueStage::AddBias, scalarOf(bias)});
    args.in(operandName(), bias);
  }
  const Activation a = *activationNamed((g.gate ? g.gate : g.product)->stringAttr("activation"));
  if (g.gate)
    epilogue.push_back({EpilogueStage::Gate, Scalar::F32,
                        a == Activation::None ? EpilogueStage::Gate : stageOf(a)});
  else if (a != Activation::None)
    epilogue.push_back({stageOf(a)});
  if (g.rope)
    epilogue.push_back(rotation(g, args));
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
        *w = op.operand(ops::Linear::W),
        *y = g.gate   ? g.gate->result()
             : g.rope ? g.rope->result()
                      : op.result(0),
        *bias =
            op.operand(plain ? unsigned(ops::Linear::Bias) : unsigned(ops::QuantizedLinear::Bias)),
        *residual = residualOf(op);
  LinearCall call;
  call.what = g.what;
  call.epilogue = std::move(first);
  addEpilogue(g, args, call.epilogue, bias, residual);
  const int64_t n = g.problem.n, k = g.problem.k;
  call.m = leading(x);
  args.in("x", x).in("w", w).out("y", y).i32("m", call.m).i32("n", n).i32("k", k);
  auto taken = args.take();
  if (!taken)
    return taken.takeError();
  call.args = std::move(*taken);
  call.bytes = bytesOf(x) + bytesOf(w) + bytesOf(y);
  call.flops = call.m * Dim(2 * n * k);
  for (Value *v : {bias, residual})
    if (v)
      call.bytes = call.bytes + bytesOf(v);
  return call;
}

llvm::Error launch(StepBuilder &b, const LinearGroup &g, LinearCall &call) {
  b.setChoice(g.choice);
  LinearLaunch launch{b, *g.product, call, g.problem, g.norm};
  return g.taken.kernel->emit(launch, g.taken.config);
}

llvm::Error emitLinear(StepBuilder &b, const LinearGroup &g) {
  if (g.int8)
    return emitInt8(b, g);
  ArgList args(b);
  auto call = linearCall(g, args);
  return call ? launch(b, g, *call) : call.takeError();
}

llvm::Error emitMlp(StepBuilder &b, const MlpGroup &g) {
  MlpLaunch launch{b, *g.output, *g.hidden, g.problem, g.ahead};
  return g.taken.kernel->emit(launch, g.taken.config);
}

} // namespace gpt2c
