#include "passes/shard/ShardedFunction.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

llvm::Expected<std::unique_ptr<Function>> ShardedFunction::finish() {
  llvm::SmallVector<Value *> returned;
  for (Value *v : from_.returned()) {
    auto r = whole(v);
    if (!r)
      return r.takeError();
    returned.push_back(*r);
  }
  b_.ret(returned);
  made_->resultNames = from_.resultNames;
  made_->limits = from_.limits;
  made_->eraseDeadOps();
  return std::move(made_);
}

void ShardedFunction::setPart(const Value *of, Value *value, Cut cut, int axes) {
  value->name = of->name;
  parts_[of] = {value, std::move(cut), axes};
}

void ShardedFunction::setWhole(const Value *of, Value *value) {
  value->name = of->name;
  whole_[of] = value;
}

Value *ShardedFunction::constant(const Value *v) {
  const Op &op = *v->def();
  Op *copy = made_->insert(OpCode::Constant, {}, 1, nullptr);
  for (const NamedAttr &a : op.givenAttrs())
    copy->setAttr(a.name, a.value);
  copy->constant = op.constant;
  copy->locations = op.locations;
  copy->result()->type = v->type;
  copy->result()->content = v->content;
  copy->result()->name = v->name;
  return copy->result();
}

llvm::Expected<Value *> ShardedFunction::whole(const Value *v) {
  if (Value *known = whole_.lookup(v))
    return known;
  if (v->def()->is(OpCode::Constant))
    return whole_[v] = constant(v);
  auto gathered = gather(*part(v), v);
  if (gathered)
    whole_[v] = *gathered;
  return gathered;
}

/// Columns of all ranks, in their own order and without those of zeros.
llvm::Expected<Value *> ShardedFunction::gather(const Part &part, const Value *v) {
  auto all =
      b_.value(OpCode::AllGather, {part.value}, {{"axis", int64_t(-part.axes)}, {"ranks", ranks_}});
  if (!all)
    return all;
  const Shape &shape = v->type.shape;
  const auto axis = int64_t(shape.size()) - part.axes;
  const int64_t behind = part.axes == 2 ? *shape.back().constant() : 1;
  const int64_t size = *shape[axis].constant(), unit = part.cut.unit / behind;
  std::vector<int32_t> order(size);
  bool inOrder = true;
  for (int64_t i = 0; i < size; ++i) {
    const auto at = llvm::find(part.cut.units, i / unit) - part.cut.units.begin();
    order[i] = int32_t(at * unit + i % unit);
    inOrder &= order[i] == i;
  }
  if (inOrder && int64_t(part.cut.units.size()) * unit == size)
    return all;
  if (inOrder)
    return b_.value(
        OpCode::Slice, {*all},
        {{"starts", Dims{Dim(0)}}, {"ends", Dims{Dim(size)}}, {"axes", Dims{Dim(axis)}}});
  return b_.value(OpCode::Gather, {*all, b_.constant(Tensor::of<int32_t>(order, {size}))},
                  {{"axis", axis}});
}

llvm::Expected<Value *> ShardedFunction::rankPart(const Value *v, int64_t axis, const Cut &cut) {
  Value *&known = rankParts_[{v, axis, cut.unit, cut.units}];
  if (known)
    return known;
  auto x = whole(v);
  if (!x)
    return x;
  Dims units(cut.units.begin(), cut.units.end());
  auto part = b_.value(
      OpCode::RankPart, {*x},
      {{"axis", axis}, {"unit", cut.unit}, {"units", std::move(units)}, {"ranks", ranks_}});
  if (part) {
    (*part)->name = v->name.empty() ? "" : v->name + ".part";
    known = *part;
  }
  return part;
}

} // namespace gpt2c
