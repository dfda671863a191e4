#include "templates/linear/Launch.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static llvm::Error addArguments(LinearCall &call, ArgList &list) {
  auto args = list.take();
  if (!args)
    return args.takeError();
  for (auto &entry : *args)
    call.args[entry.first()] = entry.second;
  return llvm::Error::success();
}

llvm::Error LinearLaunch::addNorm() const {
  if (!norm)
    return llvm::Error::success();
  ArgList list(b);
  list.in("gain", norm->operand(ops::LayerNorm::Scale))
      .in("shift", norm->operand(ops::LayerNorm::Bias))
      .set("epsilon", StepBuilder::f32(norm->floatAttr("epsilon")));
  return addArguments(call, list);
}

llvm::Error LinearLaunch::addNormSums() const {
  if (!norm)
    return llvm::Error::success();
  if (p.fused.normParts > 0)
    call.args["xStatistics"] = b.statistics(norm->operand(ops::LayerNorm::X));
  // What fold-norms leaves behind.
  Value *scale = norm->operand(ops::LayerNorm::Scale), *shift = norm->operand(ops::LayerNorm::Bias);
  Value *gain = isOnes(scale) ? nullptr : scale;
  ArgList list(b);
  list.in("gain", gain)
      .in("shift", shift)
      .set("epsilon", StepBuilder::f32(norm->floatAttr("epsilon")));
  if (llvm::Error e = addArguments(call, list))
    return e;
  // One scale for a column is a matter of the epilogue.
  const Value *w = op.operand(ops::Linear::W),
              *scales = p.wGroup > 0 ? op.operand(ops::QuantizedLinear::WScale) : nullptr,
              *zeros = p.wZeros ? op.operand(ops::QuantizedLinear::WZero) : nullptr;
  call.args["rowSums"] = b.rowSums(w, gain, scales, zeros);
  call.args["shiftSums"] = shift ? b.rowSums(w, shift, scales, zeros) : StepBuilder::null();
  return llvm::Error::success();
}

llvm::Error LinearLaunch::addNormStatistics() const {
  if (!norm)
    return llvm::Error::success();
  call.args["xStatistics"] = b.statistics(norm->operand(ops::LayerNorm::X));
  if (!norm->is(OpCode::RmsNorm)) // no mean is taken out
    call.args["rowSums"] = b.rowSums(op.operand(ops::Linear::W));
  call.args["epsilon"] = StepBuilder::f32(norm->floatAttr("epsilon"));
  return llvm::Error::success();
}

void LinearLaunch::addStatistics(int width) const {
  call.args["yStatistics"] = b.addStatistics(call.y, call.m, {int(p.n / width), width});
}

void LinearLaunch::addLargest(int64_t parts) const {
  call.bytes = call.bytes - bytesOf(op.result(0));
  call.args["best"] = b.sharedScratch("linear-best-" + std::to_string(parts), p.rows * parts * 8);
  call.args["choices"] = b.choices();
  b.setLargest(op.result(0), {call.args["best"], int(parts)});
}

void LinearLaunch::addMaps(int bm, int bn, int64_t ofX, int64_t ofW) const {
  call.args["xMap"] = b.tensorMap(call.args["x"], call.m, ofX, bm);
  call.args["wMap"] = b.tensorMap(call.args["w"], p.n, ofW, bn);
}

void LinearLaunch::halveActivations() const {
  if (isNarrow(p.y))
    gpt2c::halveActivations(call.epilogue);
}

} // namespace gpt2c
