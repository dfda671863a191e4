#include "passes/proof/bounds/Probabilities.h"

namespace gpt2c {

static bool isLast(int64_t axis, const Value &x) {
  return axis == -1 || axis == int64_t(x.type.rank()) - 1;
}

/// sum(x) over the last axis, which it keeps.
static bool isRowSum(const Value *v, const Value *x) {
  const Op *op = v->def();
  if (!op || !op->is(OpCode::ReduceSum) || op->operand(0) != x || v->type.rank() != x->type.rank())
    return false;
  const std::vector<int64_t> axes =
      op->hasAttr("axes") ? op->intsAttr("axes") : std::vector<int64_t>();
  return axes.size() == 1 && isLast(axes[0], *x);
}

/// exp(x) / sum(exp(x)), or the same by logarithms: x; null where `v` is something else.
static Value *spelledSoftmax(const Op &op) {
  auto of = [](Value *powers, const Value *sum) -> Value * {
    const Op *exp = powers->def();
    return exp && exp->is(OpCode::Exp) && isRowSum(sum, powers) ? exp->operand(0) : nullptr;
  };
  // exp(x - log(sum(exp(x))))
  if (op.is(OpCode::Exp)) {
    const Op *less = op.operand(0)->def();
    const Op *log = less && less->is(OpCode::Sub) ? less->operand(1)->def() : nullptr;
    Value *x = log && log->is(OpCode::Log) ? less->operand(0) : nullptr;
    const Op *sum = x ? log->operand(0)->def() : nullptr;
    const Value *powers = sum && sum->is(OpCode::ReduceSum) ? sum->operand(0) : nullptr;
    return powers && of(const_cast<Value *>(powers), log->operand(0)) == x ? x : nullptr;
  }
  if (op.is(OpCode::Div))
    return of(op.operand(0), op.operand(1));
  if (!op.is(OpCode::Mul))
    return nullptr;
  for (unsigned i : {0, 1})
    if (const Op *inverse = op.operand(i)->def(); inverse && inverse->is(OpCode::Reciprocal))
      if (Value *x = of(op.operand(1 - i), inverse->operand(0)))
        return x;
  return nullptr;
}

std::optional<Probabilities> probabilitiesOf(Value *v) {
  Probabilities out;
  auto isCopy = [](const Op *op) {
    return op && op->is(OpCode::Cast) && isFloat(op->operand(0)->type.dtype) &&
           isFloat(op->result()->type.dtype);
  };
  while (v->def() && (isCopy(v->def()) || (v->def()->is(OpCode::Log) && !out.logarithms))) {
    out.logarithms |= v->def()->is(OpCode::Log);
    v = v->def()->operand(0);
  }
  const Op *op = v->def();
  if (!op)
    return std::nullopt;
  if (op->is(OpCode::Softmax) && isLast(op->intAttr("axis"), *v)) {
    out.softmax = op;
    out.logits = op->operand(0);
    return out;
  }
  out.logits = spelledSoftmax(*op);
  return out.logits ? std::optional(out) : std::nullopt;
}

} // namespace gpt2c
