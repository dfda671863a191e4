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

void FunctionScheduler::allReduce(Op &op) {
  AllReduceGroup group{.reduce = &op, .last = &op, .what = "all_reduce"};
  const auto product = groups_.find(&op);
  group.sent = product != groups_.end() && product->second.get<LinearGroup>();
  group.processors = options_.target.multiprocessors;
  auto take = [&](Op &behind, llvm::StringRef what) {
    if (!group.sent || group.last != &op) // the product's launch has the place of the op
      setFused(*group.last);
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
  Op &last = *group.last;
  const Value *y = last.result();
  if (wishes_.of(y) && sums == DType::F32 && lastDim(y) % AllReduceGroup::statisticsWidth == 0) {
    constexpr int width = AllReduceGroup::statisticsWidth;
    group.statistics = statistics_[y] = {int(lastDim(y) / width), width};
  }
  set(last, {std::move(group)});
}

} // namespace gpt2c
