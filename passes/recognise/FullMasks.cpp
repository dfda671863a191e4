// full-masks: some graphs take the lengths of their sequences from the attention mask, and pick by
// them which rows of past and new keys are present ones, as GroupQueryAttention does with
// seqlens_k. A KV state knows the lengths itself, and generation stands for masks of ones alone. So
// such a graph gets a second function, @generation, in which the mask is ones and
//   gather_nd(x, rows) = x[:, 0:past + seq]
// which is proven by evaluation. kv-transform makes @prefill and @decode of it; @forward stays the
// exported graph, right under every mask.
#include "ir/FunctionNames.h"
#include "ir/ops/Common.h"
#include "passes/Rewrite.h"
#include "passes/proof/KvInterface.h"
#include "passes/proof/PositionProof.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Keys or values whose rows a mask picks.
struct PickedRows {
  Op *gather;
  Value *mask, *past; // arguments
};

/// The one argument of a kind among the leaves of a slice; null where there is none or several.
static Value *onlyArgument(const BackwardSlice &slice, llvm::function_ref<bool(const Value &)> is) {
  Value *found = nullptr;
  for (Value *leaf : slice.leaves)
    if (!leaf->def() && is(*leaf)) {
      if (found)
        return nullptr;
      found = leaf;
    }
  return found;
}

static std::optional<PickedRows> pickedRows(Op &op, const Value *ids) {
  if (!op.is(OpCode::GatherND) || op.intAttr("batch_dims") != 1)
    return std::nullopt;
  Value *rows = op.operand(ops::GatherND::Indices), *data = op.operand(ops::GatherND::X);
  if (data->type.rank() != 4 || rows->type.rank() != 3 || rows->type.shape[2] != Dim(1))
    return std::nullopt;
  BackwardSlice computed = backwardSlice(rows, [](Value *) { return false; });
  BackwardSlice copied =
      backwardSlice(data, [](Value *v) { return !v->def()->info().has(DataMovement); });
  Value *mask = onlyArgument(computed, [&](const Value &v) {
    return v.type.rank() == 2 && !isFloat(v.type.dtype) && &v != ids;
  });
  Value *past = onlyArgument(
      copied, [](const Value &v) { return v.type.rank() == 4 && isFloat(v.type.dtype); });
  if (!mask || !past)
    return std::nullopt;
  return PickedRows{&op, mask, past};
}

/// All such gathers where they agree in the mask and in the past's length; else none.
static std::vector<PickedRows> allPickedRows(Function &f, const Value *ids) {
  std::vector<PickedRows> all;
  for (auto &op : f.ops())
    if (auto picked = pickedRows(*op, ids)) {
      if (!all.empty() && (picked->mask != all[0].mask ||
                           picked->past->type.shape[2] != all[0].past->type.shape[2]))
        return {};
      all.push_back(*picked);
    }
  return all;
}

/// The mask of `f` becomes ones, as many as there are keys, and is no argument any more.
static llvm::Error fillMask(Function &f, Value *mask, const Dim &keys) {
  if (auto symbol = mask->type.shape[1].asSymbol(); symbol && !keys.uses(*symbol)) {
    f.substitute(*symbol, keys);
    if (llvm::Error e = f.inferTypes())
      return e;
  }
  Builder b(f, f.ops().front().get());
  Value *one = b.constant(Tensor::scalar<int64_t>(1).cast(mask->type.dtype));
  const Shape &shape = mask->type.shape;
  auto ones = b.value(OpCode::Expand, {one}, {{"shape", Dims(shape.begin(), shape.end())}});
  if (!ones)
    return ones.takeError();
  mask->replaceAllUsesWith(*ones);
  f.eraseArgument(mask->index());
  return f.inferTypes();
}

/// The number that all elements of an integer `v` are, whatever the sizes; none where that is not
/// seen by its structure.
static std::optional<Dim> numberOf(const Value *v) {
  const Op *op = v->def();
  if (!op || isFloat(v->type.dtype))
    return std::nullopt;
  auto of = [&](unsigned i) { return numberOf(op->operand(i)); };
  switch (op->code()) {
  case OpCode::Constant:
    if (auto c = scalarConstant(v))
      return Dim(int64_t(*c));
    return std::nullopt;
  case OpCode::DimValues:
    if (op->dimsAttr("values").size() == 1)
      return op->dimsAttr("values")[0];
    return std::nullopt;
  case OpCode::Cast:
    if (v->type.dtype != DType::I32 && v->type.dtype != DType::I64)
      return std::nullopt;
    [[fallthrough]];
  case OpCode::Reshape:
  case OpCode::Expand:
    return of(0);
  case OpCode::ReduceSum: {
    auto all = of(0);
    auto each = elementCount(op->operand(0)->type.shape).exactDiv(elementCount(v->type.shape));
    return all && each ? std::optional<Dim>(*all * *each) : std::nullopt;
  }
  case OpCode::Add:
  case OpCode::Sub: {
    auto a = of(0), b = of(1);
    if (!a || !b)
      return std::nullopt;
    return op->is(OpCode::Add) ? *a + *b : *a - *b;
  }
  case OpCode::Where: {
    using enum ops::Where::Operand;
    const Op *equal = op->operand(Condition)->def();
    auto x = of(A), y = of(B);
    if (!x || !y || !equal || !equal->is(OpCode::Equal))
      return std::nullopt;
    auto a = numberOf(equal->operand(ops::Equal::A)), b = numberOf(equal->operand(ops::Equal::B));
    // Where a = b, x and y are one.
    bool same = a && b && (*y - *x == *a - *b || *y - *x == *b - *a);
    return same ? y : std::nullopt;
  }
  default:
    return std::nullopt;
  }
}

/// What is chosen by a length, but is the same number either way, is that number.
static llvm::Error writeNumbers(Function &f) {
  llvm::SmallVector<Op *> choices;
  for (auto &op : f.ops())
    if (op->is(OpCode::Where))
      choices.push_back(op.get());
  for (Op *op : choices) {
    auto number = numberOf(op->result());
    if (!number)
      continue;
    Builder b(f, op);
    b.setLocations(op->locations);
    auto value = b.value(OpCode::DimValues, {}, {{"values", Dims{*number}}, {"scalar", true}});
    if (value && (*value)->type.dtype != op->result()->type.dtype)
      value = b.value(OpCode::Cast, {*value}, {{"to", op->result()->type.dtype}});
    if (!value)
      return value.takeError();
    const Shape &shape = op->result()->type.shape;
    auto all = b.value(OpCode::Expand, {*value}, {{"shape", Dims(shape.begin(), shape.end())}});
    if (!all)
      return all.takeError();
    op->result()->replaceAllUsesWith(*all);
  }
  f.eraseDeadOps();
  return llvm::Error::success();
}

/// The rows that `picked` gathers, where they are proven to be all that there are; null otherwise.
static llvm::Expected<Value *> inOrder(Function &f, const KvInterface &io, const PickedRows &picked,
                                       const Dim &keys, int64_t context,
                                       llvm::DenseSet<Value *> &proven) {
  Value *rows = picked.gather->operand(ops::GatherND::Indices);
  std::string why;
  if (!proven.contains(rows) &&
      !countsFromZero(f, io, picked.past->type.shape[2], rows, context, why))
    return nullptr;
  proven.insert(rows);
  Builder b(f, picked.gather);
  b.setLocations(picked.gather->locations);
  return b.value(OpCode::Slice, {picked.gather->operand(ops::GatherND::X)},
                 {{"starts", Dims{0}}, {"ends", Dims{keys}}, {"axes", Dims{1}}});
}

llvm::Error fullMasks(PassContext &ctx) {
  Module &m = ctx.module();
  if (m.functions.size() != 1 || m.function(functions::forward))
    return llvm::Error::success();
  KvInterface exported;
  findIndexInputs(*m.functions.front(), exported);
  if (!exported.ids || allPickedRows(*m.functions.front(), exported.ids).empty())
    return llvm::Error::success();
  auto owned = m.functions.front()->clone(functions::generation);
  Function &f = *owned;
  KvInterface io;
  findIndexInputs(f, io);
  std::vector<PickedRows> picked = allPickedRows(f, io.ids);
  const Dim keys = picked[0].past->type.shape[2] + io.ids->type.shape[1];
  if (llvm::Error e = fillMask(f, picked[0].mask, keys))
    return e;
  if (llvm::Error e = writeNumbers(f))
    return e;
  const int64_t context = ctx.options().maxContext ? ctx.options().maxContext
                          : io.positions           ? io.positions
                                                   : comparedTokens;
  llvm::DenseSet<Value *> proven;
  for (const PickedRows &p : picked) {
    auto all = inOrder(f, io, p, keys, context, proven);
    if (!all)
      return all.takeError();
    if (!*all || (*all)->type != p.gather->result()->type)
      return llvm::Error::success(); // recognise-attention says what is in the way
    p.gather->result()->replaceAllUsesWith(*all);
  }
  f.eraseDeadOps();
  m.functions.push_back(std::move(owned));
  return llvm::Error::success();
}

} // namespace gpt2c
