// fold-constants: an op whose operands are all constants, and whose attributes mention no symbol,
// is evaluated by the reference executor. Results larger than their operands and than 64 Ki
// elements stay unfolded (an expand of a scalar to a matrix costs less at run time than in the
// plan), and so do transposes of weights, which `linear` absorbs, and weights and the table of
// tokens in int8. Other tables in int8 become floating point: their rows are dequantised here.
#include "ir/Executor.h"
#include "passes/Rewrite.h"
#include "passes/recognise/QuantizedWeights.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using P = Pattern;

static bool isByteMatrix(const Value *v) {
  return infoOf(v->type.dtype).bits <= 8 && v->type.rank() > 1;
}

/// A widened matrix of bytes or less that a product, or a lookup of tokens, may read as it is.
static bool isForProduct(const Use &u) {
  if (u.op->is(OpCode::Reshape))
    return llvm::all_of(u.op->result()->uses(), isForProduct);
  if (u.op->is(OpCode::Gather))
    return u.operand == ops::Gather::X && isTokenLookup(*u.op);
  return u.op->is(OpCode::MatMul) || u.op->is(OpCode::Transpose) || u.op->is(OpCode::Sub);
}

static std::vector<Rule> rowRules() {
  std::vector<Rule> rules;
  rules.push_back(
      {"dequantised-rows", "dequantised(gather(q, i)) = gather(dequantised(q), i)",
       P::op(OpCode::AffineDequantize,
             {P::op(OpCode::Gather, {P::constant("q"), P::any("i")}, "rows"), P::any("s"),
              P::any("z")}),
       [](const Match &m) {
         return m.value("s")->type.rank() == 0 && m.value("z")->type.rank() == 0;
       },
       [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
         auto table = b.value(OpCode::AffineDequantize, {m.value("q"), m.value("s"), m.value("z")},
                              m.root()->givenAttrs());
         if (!table)
           return table.takeError();
         return b.value(OpCode::Gather, {*table, m.value("i")}, m.op("rows")->givenAttrs());
       }});
  return rules;
}

static bool hasSymbolicAttr(const Op &op) {
  return llvm::any_of(op.givenAttrs(), [](const NamedAttr &a) {
    const Dims *dims = std::get_if<Dims>(&a.value);
    return dims && llvm::any_of(*dims, [](const Dim &d) { return !d.isConstant(); });
  });
}

static bool foldable(const Op &op) {
  if (op.is(OpCode::Constant) || op.info().has(Terminator) || op.info().has(InPlace) ||
      !op.info().eval)
    return false;
  int64_t inputs = 0;
  for (Value *v : op.operands()) {
    if (!v)
      continue;
    Op *c = constantOp(v);
    if (!c || !c->constant.valid())
      return false;
    inputs += c->constant.count();
  }
  if (hasSymbolicAttr(op))
    return false;
  bool widens = op.is(OpCode::AffineDequantize) || op.is(OpCode::Cast);
  if (widens && isByteMatrix(op.operand(0)) && llvm::all_of(op.result()->uses(), isForProduct))
    return false;
  constexpr int64_t small = 64 * 1024;
  int64_t outputs = 0;
  for (Value *r : op.results()) {
    auto n = elementCount(r->type.shape).constant();
    if (!n)
      return false;
    outputs += *n;
  }
  if (op.is(OpCode::Transpose) && outputs > small)
    return false;
  return outputs <= std::max(small, inputs);
}

/// Gives `wide` to the readers of a dequantised matrix that are no products.
static void widen(PassContext &ctx, Op &dequantize, Value *wide) {
  const std::string &name = dequantize.operand(ops::AffineDequantize::Q)->name;
  wide->name = name;
  llvm::SmallVector<Use> uses(dequantize.result()->uses());
  for (const Use &u : uses) {
    if (isForProduct(u))
      continue;
    ctx.note("the int8 constant " + (name.empty() ? "" : name + " ") + "of " + u.op->describe() +
                 " becomes floating point: " + u.op->info().mnemonic + " takes no int8",
             u.op->locations);
    u.op->setOperand(u.operand, wide);
  }
}

llvm::Error foldConstants(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    auto n = applyRules(*f, rowRules());
    if (!n)
      return n.takeError();
    for (auto &op : f->ops()) {
      if (!foldable(*op))
        continue;
      llvm::SmallVector<Tensor> inputs;
      for (Value *v : op->operands())
        inputs.push_back(v ? constantOp(v)->constant : Tensor());
      auto outputs = evaluateOp(*op, inputs, {});
      if (!outputs) {
        // An op that cannot be evaluated on these constants fails at run time as well: say so now.
        return outputs.takeError();
      }
      Builder b(*f, op.get());
      b.setLocations(op->locations);
      if (op->is(OpCode::AffineDequantize) && isByteMatrix(op->operand(ops::AffineDequantize::Q))) {
        widen(ctx, *op, b.constant((*outputs)[0]));
        continue;
      }
      for (unsigned i = 0; i < op->numResults(); ++i)
        op->result(i)->replaceAllUsesWith(b.constant((*outputs)[i]));
    }
    f->eraseDeadOps();
    if (llvm::Error e = f->inferTypes())
      return e;
  }
  return llvm::Error::success();
}

} // namespace gpt2c
