// Sums over ranks: what is added behind them is part of their launch.
#include "schedule/FunctionScheduler.h"

namespace gpt2c {

/// The one op that reads `v`; null: there are others, or none.
static Op *onlyReader(const Value *v) { return v->uses().size() == 1 ? v->uses()[0].op : nullptr; }

/// What an add of equal elements adds to `v`; null: `op` is none.
static Value *addedTo(const Op &op, const Value *v) {
  if (!op.is(OpCode::Add) || op.operand(0) == op.operand(1))
    return nullptr;
  Value *other = op.operand(op.operand(0) == v);
  return other->type.dtype == v->type.dtype && op.result()->type == v->type ? other : nullptr;
}

AllReduceGroup FunctionScheduler::sumOf(Op &op) const {
  AllReduceGroup group{.reduce = &op, .last = &op, .what = "all_reduce"};
  group.processors = options_.target.multiprocessors;
  auto take = [&](Op &behind, llvm::StringRef what) {
    group.last = &behind;
    group.what += what;
  };
  const DType sums = op.result()->type.dtype;
  Op *next = onlyReader(op.result());
  if (next && next->is(OpCode::Cast) && isFloat(next->result()->type.dtype) &&
      hasKernelTypes(*next)) {
    take(*next, "");
    next = onlyReader(next->result());
  }
  for (; next && hasKernelTypes(*next); next = onlyReader(next->result())) {
    const Value *sum = group.last->result();
    Value *added = addedTo(*next, sum);
    if (!added || sums != DType::F32)
      break;
    const bool isRow = isConstant(added) && added->type.rank() == 1 && sum->type.rank() > 0 &&
                       added->type.shape.back() == sum->type.shape.back();
    Value *&at = isRow ? group.bias : group.residual;
    // A bias is added before a residual.
    if (at || (isRow && group.residual) || (!isRow && added->type != sum->type))
      break;
    at = added;
    take(*next, isRow ? "+bias" : "+residual");
  }
  const Value *y = group.last->result();
  constexpr int width = AllReduceGroup::statisticsWidth;
  if (wishes_.of(y) && sums == DType::F32 && lastDim(y) % width == 0)
    group.statistics = {int(lastDim(y) / width), width};
  return group;
}

void FunctionScheduler::setCovered(const AllReduceGroup &group) {
  for (Op *op = group.reduce; op != group.last; op = onlyReader(op->result()))
    if (op != group.reduce || !group.sent) // the product's launch has the place of the sum
      setFused(*op);
  if (group.statistics.parts > 0)
    statistics_[group.last->result()] = group.statistics;
}

void FunctionScheduler::allReduce(Op &op) {
  AllReduceGroup group = sumOf(op);
  const auto product = groups_.find(&op);
  group.sent = product != groups_.end() && product->second.get<LinearGroup>();
  setCovered(group);
  Op &last = *group.last;
  set(last, {std::move(group)});
}

} // namespace gpt2c
