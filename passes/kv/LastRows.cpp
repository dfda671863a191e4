#include "passes/kv/LastRows.h"

#include "ir/Builder.h"
#include "ir/Op.h"
#include "ir/Operands.h"
#include "passes/fuse/MergedProduct.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// The operands of `f` that have the rows of its result, where each row of that follows from one
/// row of theirs; otherwise none.
static llvm::SmallVector<unsigned> operandsWithRows(const Op &f) {
  llvm::SmallVector<unsigned> rows;
  switch (f.code()) {
  case OpCode::LayerNorm:
    if (f.intAttr("axis") != -1 && f.intAttr("axis") + 1 != int64_t(f.result()->type.rank()))
      return {};
    [[fallthrough]];
  case OpCode::RmsNorm:
    return {ops::RmsNorm::X};
  case OpCode::Linear:
    rows.push_back(ops::Linear::X);
    if (f.operand(ops::Linear::Residual))
      rows.push_back(ops::Linear::Residual);
    return rows;
  case OpCode::Slice:
    if (columnSlice(f.result()).source == f.operand(ops::Slice::X))
      rows.push_back(ops::Slice::X);
    return rows;
  case OpCode::AffineQuantize:
  case OpCode::AffineDequantize: {
    const Value *zero = f.operand(ops::AffineQuantize::ZeroPoint);
    if (f.operand(ops::AffineQuantize::Scale)->type.rank() == 0 &&
        (!zero || zero->type.rank() == 0))
      rows.push_back(ops::AffineQuantize::X);
    return rows;
  }
  default:
    if (!f.info().has(Elementwise))
      return {};
    for (auto [i, v] : llvm::enumerate(f.operands())) {
      if (v && v->type.shape == f.result()->type.shape)
        rows.push_back(i);
      else if (v && v->type.rank() > 1)
        return {};
    }
    return rows;
  }
}

llvm::Error sinkLastRows(Function &f, bool belowSums) {
  for (bool changed = true; changed;) {
    changed = false;
    llvm::SmallVector<Op *> gathers;
    for (auto &op : f.ops())
      if (op->is(OpCode::GatherLast))
        gathers.push_back(op.get());
    for (Op *gather : gathers) {
      const Value *y = gather->operand(ops::GatherLast::X);
      Value *length = gather->operand(ops::GatherLast::Length);
      auto isLastRow = [&](const Use &u) {
        return u.op->is(OpCode::GatherLast) && u.op->operand(ops::GatherLast::Length) == length;
      };
      const Op *inner = y->def();
      auto rows = inner ? operandsWithRows(*inner) : llvm::SmallVector<unsigned>();
      if (rows.empty() || (rows.size() > 1 && !belowSums) || !llvm::all_of(y->uses(), isLastRow))
        continue;
      Builder b(f, gather);
      b.setLocations(inner->locations);
      llvm::SmallVector<Value *> operands(inner->operands());
      for (unsigned i : rows) {
        auto last = b.value(OpCode::GatherLast, {operands[i], length});
        if (!last)
          return last.takeError();
        operands[i] = *last;
      }
      llvm::SmallVector<NamedAttr> attrs(inner->givenAttrs());
      for (NamedAttr &a : attrs)
        if (inner->is(OpCode::LayerNorm) && a.name == "axis")
          a.value = int64_t(-1);
        else if (inner->is(OpCode::Slice) && a.name == "axes")
          a.value = Dims{1};
      auto last = b.value(inner->code(), operands, attrs);
      if (!last)
        return last.takeError();
      gather->result()->replaceAllUsesWith(*last);
      changed = true;
    }
    f.eraseDeadOps();
  }
  return llvm::Error::success();
}

llvm::Expected<Value *> lastLogits(Function &f, Value *logits, Op *takesLast, Value *length) {
  if (!takesLast) {
    Builder b(f, f.terminator());
    return b.value(OpCode::GatherLast, {logits, length});
  }
  Builder b(f, takesLast);
  b.setLocations(takesLast->locations);
  auto row = b.value(OpCode::GatherLast, {takesLast->operand(0), length});
  if (!row)
    return row.takeError();
  const Shape &shape = takesLast->result()->type.shape;
  auto shaped = b.value(OpCode::Reshape, {*row}, {{"shape", Dims(shape.begin(), shape.end())}});
  if (!shaped)
    return shaped.takeError();
  bool isLogits = logits == takesLast->result();
  takesLast->result()->replaceAllUsesWith(*shaped);
  if (isLogits)
    logits = *shaped;
  Builder end(f, f.terminator());
  return end.value(OpCode::Reshape, {logits},
                   {{"shape", Dims{logits->type.shape.front(), logits->type.shape.back()}}});
}

} // namespace gpt2c
