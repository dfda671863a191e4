#include "verify/RoundedGraph.h"
#include "ir/Builder.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Gives the readers of `value` what rounding to `type` leaves of it.
static llvm::Error round(Builder &b, Value *value, DType type) {
  const llvm::SmallVector<Use> readers(value->uses());
  auto narrow = b.value(OpCode::Cast, {value}, {{"to", type}});
  if (!narrow)
    return narrow.takeError();
  auto wide = b.value(OpCode::Cast, {*narrow}, {{"to", value->type.dtype}});
  if (!wide)
    return wide.takeError();
  for (const Use &reader : readers)
    reader.op->setOperand(reader.operand, *wide);
  return llvm::Error::success();
}

/// The constant of which `v` is another form, if it is a weight.
static Op *weightBehind(Value *v) {
  while (v && v->def() && (v->def()->is(OpCode::Transpose) || v->def()->is(OpCode::Reshape)))
    v = v->def()->operand(0);
  const bool isWeight = v && v->def() && v->def()->is(OpCode::Constant) &&
                        v->type.dtype == DType::F32 && v->type.rank() > 0;
  return isWeight ? v->def() : nullptr;
}

llvm::Expected<std::unique_ptr<Function>>
roundedGraph(const Function &graph, llvm::ArrayRef<const Value *> data, DType type) {
  llvm::DenseMap<Value *, Value *> map;
  auto rounded = graph.clone(graph.name(), &map);
  llvm::DenseSet<const Value *> reached;
  for (const Value *v : data)
    reached.insert(map.lookup(const_cast<Value *>(v)));
  llvm::DenseSet<const Op *> computed; // what is rounded
  llvm::SmallVector<Op *> ops;
  for (auto &op : rounded->ops()) {
    ops.push_back(op.get());
    if (op->is(OpCode::Shape) ||
        llvm::none_of(op->operands(), [&](Value *v) { return v && reached.contains(v); }))
      continue;
    reached.insert(op->results().begin(), op->results().end());
    for (Value *v : op->operands())
      if (const Op *weight = weightBehind(v))
        computed.insert(weight);
    if (!op->info().has(DataMovement)) // what it moves is rounded
      computed.insert(op.get());
  }
  for (auto [i, op] : llvm::enumerate(ops)) {
    if (!computed.contains(op) || op->info().has(Terminator))
      continue;
    Builder b(*rounded, ops[i + 1]);
    b.setLocations(op->locations);
    for (Value *result : op->results())
      if (result->type.dtype == DType::F32)
        if (llvm::Error e = round(b, result, type))
          return e;
  }
  return rounded;
}

} // namespace gpt2c
