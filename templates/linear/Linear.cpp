// Products with weights: their epilogues, and the choice of their kernels.
#include "templates/linear/Linear.h"

#include "templates/generic/GenericLowerings.h"
#include "templates/linear/Mlp.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

llvm::Expected<LinearCall> linearCall(StepBuilder &b, Op &op, ArgList &args, Value *x, Value *bias,
                                      Value *residual, Epilogue first, Op *gate) {
  Value *w = op.operand(ops::Linear::W), *y = gate ? gate->result() : op.result(0);
  LinearCall call;
  call.shape = linearProblem(b, op);
  call.epilogue = std::move(first);
  call.what = op.info().mnemonic;
  size_t operands = llvm::count_if(call.epilogue, hasOperand);
  auto operandName = [&] { return "e" + std::to_string(operands++); };
  if (bias) {
    call.epilogue.push_back({EpilogueStage::AddBias, scalarOf(bias->type.dtype)});
    args.in(operandName(), bias);
    call.what += "+bias";
  }
  const std::string &activation = (gate ? *gate : op).stringAttr("activation");
  const Activation a = *activationNamed(activation);
  if (gate) {
    call.epilogue.push_back({EpilogueStage::Gate, Scalar::F32,
                             a == Activation::None ? EpilogueStage::Gate : stageOf(a)});
    call.what += "+" + activation + " gate";
  } else if (a != Activation::None) {
    call.epilogue.push_back({stageOf(a)});
    call.what += "+" + activation;
  }
  if (residual) {
    const std::string name = operandName();
    const bool inPlace = isReadInPlace(residual);
    call.epilogue.push_back({inPlace ? EpilogueStage::AddLastRows : EpilogueStage::AddMatrix,
                             scalarOf(residual->type.dtype)});
    if (inPlace) {
      const Op &gather = *residual->def();
      args.in(name, gather.operand(ops::GatherLast::X))
          .in(name + "Length", gather.operand(ops::GatherLast::Length))
          .i32(name + "Seq", gather.operand(ops::GatherLast::X)->type.shape[1]);
    } else {
      args.in(name, residual);
    }
    call.what += "+residual";
  }
  const int64_t n = call.shape.n, k = call.shape.k;
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

std::string choiceKey(const LinearCall &call, const Op &op) {
  const LinearShape &s = call.shape;
  std::string key = llvm::formatv("{0} rows={1} n={2} k={3} {4} x {5}", call.what, s.rows, s.n, s.k,
                                  dtypeName(op.operand(ops::Linear::X)->type.dtype),
                                  dtypeName(op.operand(ops::Linear::W)->type.dtype));
  if (s.xGroup > 0)
    key += " x_group=" + std::to_string(s.xGroup);
  if (s.wGroup > 0)
    key += " w_group=" + std::to_string(s.wGroup);
  return key;
}

llvm::Error chooseAndLaunch(StepBuilder &b, Op &op, LinearCall &call, const LinearProblem &p,
                            std::string key, Op *norm) {
  const std::vector<LinearCandidate> list = linearCandidates(p);
  if (list.empty()) {
    std::string why;
    for (const LinearKernel *k : linearKernels())
      why += ("\n  " + k->name() + ": " + k->refusal(p)).str();
    return noKernel(op, "no kernel computes " + key + why);
  }
  std::vector<std::string> names;
  std::vector<SumOption> options;
  for (const LinearCandidate &c : list) {
    names.push_back(c.name);
    options.push_back({c.name, c.order, c.microseconds});
  }
  const LinearCandidate &chosen = list[p.batchInvariant ? b.choose(std::move(key), op, options)
                                                        : b.choose(std::move(key), names)];
  LinearLaunch launch{b, op, call, p, norm};
  return chosen.kernel->emit(launch, chosen.config);
}

llvm::Error launchLinear(StepBuilder &b, Op &op, LinearCall call, Op *norm, Op *gate) {
  LinearProblem p(call.shape);
  p.fused.gate = gate != nullptr;
  if (norm) {
    p = withNorm(p, op, *norm);
    call.what = (norm->info().mnemonic + llvm::Twine("+") + call.what).str();
    if (wantsNormStatistics(p)) {
      const StepBuilder::RowStatistics &statistics =
          *b.statistics(norm->operand(ops::LayerNorm::X));
      p.fused.normParts = statistics.parts;
      p.fused.normWidth = statistics.width;
    }
  }
  std::string key = choiceKey(call, op);
  auto also = [&](bool LinearFusions::*what) {
    LinearProblem more = p.plain();
    more.fused.*what = true;
    // For any rows a vocabulary alone leaves something, its largest elements, which changes no sum.
    return !p.batchInvariant ? leaderComputes(more)
                             : what == &LinearFusions::best && p.rows <= 256 && computes(more);
  };
  if (!gate && also(&LinearFusions::statistics) && leavesStatistics(b, op)) {
    p.fused.statistics = true;
    key += " statistics";
  }
  p.fused.best = !gate && also(&LinearFusions::best) && hasGreedyChoice(op.result(0));
  return chooseAndLaunch(b, op, call, p, std::move(key), norm);
}

static llvm::Error lowerProduct(StepBuilder &b, Op &op, Op *gate) {
  using enum ops::Linear::Operand;
  if (!hasKernelTypes(op))
    return noKernel(op, "products with weights are in f32, f16 or bf16");
  if (!op.operand(W)->type.isStatic())
    return noKernel(op, "the size of its weights is not constant");
  if (isMlpHidden(b, op)) // launched with the second product
    return llvm::Error::success();
  if (Op *hidden = mlpHidden(b, op))
    return launchMlp(b, op, *hidden);
  ArgList args(b);
  Op *norm = fusedNorm(b, op);
  auto call = linearCall(b, op, args, norm ? norm->operand(ops::LayerNorm::X) : op.operand(X),
                         op.operand(Bias), op.operand(Residual), {}, gate);
  if (!call)
    return call.takeError();
  return launchLinear(b, op, std::move(*call), norm, gate);
}

llvm::Error lowerLinear(StepBuilder &b, Op &op) {
  if (fusedGate(b, op)) // launched with the gate
    return llvm::Error::success();
  return lowerProduct(b, op, nullptr);
}

llvm::Error lowerGatedProduct(StepBuilder &b, Op &op) {
  Op *product = op.operand(ops::Gated::X)->def();
  if (!product || fusedGate(b, *product) != &op)
    return lowerGated(b, op);
  return product->is(OpCode::Linear) ? lowerProduct(b, *product, &op)
                                     : lowerInt8Product(b, *product, &op);
}

} // namespace gpt2c
