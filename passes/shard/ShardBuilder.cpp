#include "passes/shard/ShardBuilder.h"

#include "ir/Format.h"
#include "passes/shard/ShardedFunction.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

namespace {

class ShardBuilder {
public:
  ShardBuilder(const Function &f, const ShardPlan &plan, llvm::StringRef name)
      : f_(f), plan_(plan), to_(f, plan.ranks, name) {}

  llvm::Expected<std::unique_ptr<Function>> build() {
    for (unsigned i = 0; i < f_.numArguments(); ++i) {
      const Value *a = f_.argument(i);
      Type type = a->type;
      if (a->name == "kv")
        type.shape[3] = Dim(plan_.heads.keysOfRank());
      to_.setWhole(a, to_.function().addArgument(std::move(type), a->name));
    }
    for (auto &op : f_.ops()) {
      if (op->is(OpCode::Return))
        break;
      to_.builder().setLocations(op->locations);
      if (llvm::Error e = add(*op))
        return e;
    }
    return to_.finish();
  }

private:
  using Attrs = llvm::SmallVector<NamedAttr, 4>;

  llvm::Error add(const Op &op) {
    if (op.is(OpCode::Constant)) // where it is read
      return llvm::Error::success();
    if (op.is(OpCode::AppendAttention))
      return addAttention(op);
    const Part *x = op.numOperands() && op.operand(0) ? to_.part(op.operand(0)) : nullptr;
    if (isProductOfWeights(op) && x && takesRowsOfWeights(op, *x))
      return addSummand(op, *x);
    if (auto it = plan_.columns.find(&op); it != plan_.columns.end() && !x)
      return addColumns(op, it->second);
    if (llvm::any_of(op.operands(), [&](const Value *v) { return v && to_.part(v); })) {
      auto done = addByColumns(to_, op);
      if (!done)
        return done.takeError();
      if (*done)
        return llvm::Error::success();
    }
    return addWhole(op);
  }

  llvm::Error addWhole(const Op &op) {
    llvm::SmallVector<Value *> operands;
    for (const Value *v : op.operands()) {
      auto x = to_.wholeIfAny(v);
      if (!x)
        return x.takeError();
      operands.push_back(*x);
    }
    auto copy = to_.builder().create(op.code(), operands, op.givenAttrs(), op.numResults());
    if (!copy)
      return copy.takeError();
    for (auto [from, made] : llvm::zip_equal(op.results(), (*copy)->results()))
      to_.setWhole(from, made);
    return llvm::Error::success();
  }

  llvm::Error addAttention(const Op &op) {
    using enum ops::AppendAttention::Operand;
    llvm::SmallVector<Value *> operands;
    for (auto [i, v] : llvm::enumerate(op.operands())) {
      auto x = i == Qkv ? heads(op) : to_.wholeIfAny(v);
      if (!x)
        return x.takeError();
      operands.push_back(*x);
    }
    Attrs attrs(op.givenAttrs());
    for (NamedAttr &a : attrs)
      if (a.name == "num_heads")
        a.value = plan_.heads.queriesOfRank();
    auto copy = to_.builder().create(OpCode::AppendAttention, operands, attrs);
    if (!copy)
      return copy.takeError();
    const Value *y = op.result(ops::AppendAttention::Y);
    to_.setWhole(op.result(ops::AppendAttention::NextKv),
                 (*copy)->result(ops::AppendAttention::NextKv));
    const int64_t headDim = *y->type.shape.back().constant() / op.intAttr("num_heads");
    to_.setPart(y, (*copy)->result(ops::AppendAttention::Y), {headDim, plan_.heads.queries});
    return llvm::Error::success();
  }

  /// The heads of a rank: those that it computes, or its part of all of them.
  llvm::Expected<Value *> heads(const Op &attention) {
    using enum ops::AppendAttention::Operand;
    const Value *qkv = attention.operand(Qkv);
    const int64_t heads = attention.intAttr("num_heads"),
                  keyHeads = *attention.operand(Kv)->type.shape[3].constant(),
                  width = *qkv->type.shape.back().constant();
    const Cut cut = packedCut(plan_.heads, heads, keyHeads, width / (heads + 2 * keyHeads));
    const Part *part = to_.part(qkv);
    return part && part->axes == 1 && part->cut == cut
               ? llvm::Expected<Value *>(part->value)
               : to_.rankPart(qkv, int64_t(qkv->type.rank()) - 1, cut);
  }

  /// The same product of rows of weights, bias and scales that are the rank's columns.
  llvm::Error addColumns(const Op &op, const Cut &cut) {
    llvm::SmallVector<Value *> operands;
    for (auto [i, v] : llvm::enumerate(op.operands())) {
      auto x = i == ops::Linear::X || !v ? to_.wholeIfAny(v) : to_.rankPart(v, 0, cut);
      if (!x)
        return x.takeError();
      operands.push_back(*x);
    }
    auto y = to_.builder().value(op.code(), operands, op.givenAttrs());
    if (!y)
      return y.takeError();
    to_.setPart(op.result(), *y, cut);
    return llvm::Error::success();
  }

  static bool takesRowsOfWeights(const Op &op, const Part &x) {
    const int64_t k = op.operand(ops::Linear::W)->type.shape[1].constant().value_or(0);
    return x.axes == 1 && op.stringAttr("activation") == "none" && dealsOnce(x.cut, k) &&
           x.cut.unit % weightGroup(op) == 0;
  }

  /// all_reduce(x of the rank w[:, columns of the rank]^T) + bias + residual; partial sums are in
  /// single precision where results are narrow.
  llvm::Error addSummand(const Op &op, const Part &x) {
    const DType type = op.result()->type.dtype;
    auto y = partialSum(op, x);
    Builder &b = to_.builder();
    if (y)
      y = b.value(OpCode::AllReduce, {*y}, {{"ranks", plan_.ranks}});
    if (y && (*y)->type.dtype != type)
      y = b.value(OpCode::Cast, {*y}, {{"to", type}});
    const bool quantised = op.is(OpCode::QuantizedLinear);
    const unsigned behind[] = {
        quantised ? unsigned(ops::QuantizedLinear::Bias) : unsigned(ops::Linear::Bias),
        quantised ? unsigned(ops::QuantizedLinear::Residual) : unsigned(ops::Linear::Residual)};
    for (unsigned operand : behind)
      if (const Value *added = op.operand(operand); added && y)
        y = sum(*y, added);
    if (!y)
      return y.takeError();
    to_.setWhole(op.result(), *y);
    return llvm::Error::success();
  }

  llvm::Expected<Value *> partialSum(const Op &op, const Part &x) {
    const DType type = op.result()->type.dtype;
    auto w = to_.rankPart(op.operand(ops::Linear::W), 1, x.cut);
    if (!w)
      return w;
    llvm::SmallVector<Value *> operands{x.value, *w};
    if (op.is(OpCode::QuantizedLinear)) {
      const Value *scale = op.operand(ops::QuantizedLinear::WScale);
      const int64_t group = weightGroup(op);
      auto s =
          group > 1 ? to_.rankPart(scale, 1, {x.cut.unit / group, x.cut.units}) : to_.whole(scale);
      if (!s)
        return s;
      operands.push_back(*s);
    }
    Attrs attrs(op.givenAttrs());
    if (isNarrow(type)) {
      llvm::erase_if(attrs, [](const NamedAttr &a) { return a.name == "dtype"; });
      attrs.push_back({"dtype", DType::F32});
    }
    return to_.builder().value(op.code(), operands, attrs);
  }

  llvm::Expected<Value *> sum(Value *a, const Value *b) {
    auto x = to_.whole(b);
    if (x && (*x)->type.dtype != a->type.dtype)
      x = to_.builder().value(OpCode::Cast, {*x}, {{"to", a->type.dtype}});
    return x ? to_.builder().value(OpCode::Add, {a, *x}) : std::move(x);
  }

  const Function &f_;
  const ShardPlan &plan_;
  ShardedFunction to_;
};

} // namespace

llvm::Expected<std::unique_ptr<Function>> buildShard(const Function &f, const ShardPlan &plan,
                                                     llvm::StringRef name) {
  return ShardBuilder(f, plan, name).build();
}

} // namespace gpt2c
